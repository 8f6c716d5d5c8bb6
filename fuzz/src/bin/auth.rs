//! Fuzz targets of `toolrack-auth`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| toolrack_fuzz_programs::run(toolrack_auth::fuzz::TARGETS, data));
