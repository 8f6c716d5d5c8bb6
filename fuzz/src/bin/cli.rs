//! Fuzz targets of `toolrack-cli`, whose files are included: a program cannot be a dependency.
#![no_main]
#![allow(dead_code)]

mod error {
    /// Stands for the error of the program.
    #[derive(Debug)]
    pub struct CliError;

    impl CliError {
        pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
            assert!(!message.into().is_empty() && !hint.into().is_empty());
            Self
        }

        pub fn with_hint(self, _hint: impl Into<String>) -> Self {
            self
        }

        pub fn with_field(self, _field: impl Into<String>) -> Self {
            self
        }
    }
}

#[path = "../../../crates/toolrack-cli/src"]
mod cli {
    pub mod tool_args;
}

use cli::tool_args;

libfuzzer_sys::fuzz_target!(|data: &[u8]| toolrack_fuzz_programs::run(tool_args::fuzz::TARGETS, data));
