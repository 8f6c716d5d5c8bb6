//! Fuzz targets of `toolrack-stdio`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| toolrack_fuzz_programs::run(toolrack_stdio::fuzz::TARGETS, data));
