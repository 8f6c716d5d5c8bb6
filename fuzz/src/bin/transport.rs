//! Fuzz targets of `toolrack-transport`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| toolrack_fuzz_programs::run(toolrack_transport::fuzz::TARGETS, data));
