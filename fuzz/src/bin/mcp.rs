//! Fuzz targets of `toolrack-mcp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| toolrack_fuzz_programs::run(toolrack_mcp::fuzz::TARGETS, data));
