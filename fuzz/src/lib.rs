//! Chooses the fuzz target of a libFuzzer program.

use std::sync::OnceLock;

/// Name and function of a fuzz target.
pub type FuzzTarget = (&'static str, fn(&[u8]));

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

/// Runs the target that the environment variable `FUZZ_TARGET` names.
pub fn run(targets: &[FuzzTarget], data: &[u8]) {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
        let found = targets.iter().find(|(target, _)| *target == name);
        found.unwrap_or_else(|| panic!("this program has no target `{name}`")).1
    });
    target(data);
}
