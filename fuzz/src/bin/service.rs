//! Fuzz targets of `toolrack-service`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| toolrack_fuzz_programs::run(toolrack_service::fuzz::TARGETS, data));
