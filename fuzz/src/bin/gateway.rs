//! Fuzz targets of `toolrack-gateway`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| toolrack_fuzz_programs::run(toolrack_gateway::fuzz::TARGETS, data));
