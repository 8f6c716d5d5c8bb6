//! Fuzz targets of `toolrack-http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| toolrack_fuzz_programs::run(toolrack_http::fuzz::TARGETS, data));
