//! Fuzz target of `toolrack-daemon`, whose file is included: the daemon with its database takes minutes to build.
#![no_main]

#[path = "../../../crates/toolrack-daemon/src/routes/merge_patch.rs"]
mod merge_patch;

libfuzzer_sys::fuzz_target!(|data: &[u8]| toolrack_fuzz_programs::run(&[("merge_patch", merge_patch::fuzz)], data));
