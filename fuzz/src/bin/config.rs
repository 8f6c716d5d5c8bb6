//! Fuzz targets of `toolrack-config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| toolrack_fuzz_programs::run(toolrack_config::fuzz::TARGETS, data));
