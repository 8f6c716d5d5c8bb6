//! Finds built programs of this workspace.

use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};

/// Path of a built program of this workspace: `scripted-server`, `toolrack`, …
///
/// It is in the profile directory of the test executable, so a test and its programs always match.
///
/// # Panics
///
/// When the program is not built; the message names the build command.
#[expect(clippy::panic, reason = "a test cannot run without its program")]
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe();
    let Some(dir) = own.as_deref().ok().and_then(profile_dir) else {
        panic!("the running test has no path: {own:?}");
    };
    let path = dir.join(format!("{name}{EXE_SUFFIX}"));
    let build = build_command(name, dir);
    assert!(path.is_file(), "{} does not exist; build it with `{build}`", path.display());
    path
}

/// `target/debug` for `target/debug/deps/it-0123` and for `target/debug/program`.
fn profile_dir(executable: &Path) -> Option<&Path> {
    let dir = executable.parent()?;
    if dir.ends_with("deps") || dir.ends_with("examples") { dir.parent() } else { Some(dir) }
}

fn build_command(name: &str, dir: &Path) -> String {
    let package = match name {
        "toolrack" => "toolrack-cli",
        "toolrack-guard" => "toolrack-stdio",
        "demo-server" => "toolrack-demo",
        "scripted-server" => "toolrack-testkit",
        other => other,
    };
    let profile = match dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => String::new(),
        Some("release") => " --release".to_owned(),
        Some(other) => format!(" --profile {other}"),
    };
    format!("cargo build -p {package} --bin {name}{profile}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_directory_is_found_from_any_executable() {
        let check = |executable: &str, expected: &str| {
            assert_eq!(profile_dir(Path::new(executable)), Some(Path::new(expected)));
        };
        check("/w/target/debug/deps/it-1", "/w/target/debug");
        check("/w/target/release/examples/one", "/w/target/release");
        check("/w/target/debug/toolrack", "/w/target/debug");
    }

    #[test]
    fn build_hint_names_package_and_profile() {
        let check = |name: &str, dir: &str, expected: &str| {
            assert_eq!(build_command(name, Path::new(dir)), expected);
        };
        check("toolrack", "t/debug", "cargo build -p toolrack-cli --bin toolrack");
        check(
            "demo-server",
            "t/release",
            "cargo build -p toolrack-demo --bin demo-server --release",
        );
        check("xtask", "t/ci", "cargo build -p xtask --bin xtask --profile ci");
    }

    #[test]
    #[should_panic(expected = "build it with `cargo build -p nothing --bin nothing")]
    fn missing_program_panics_with_the_build_command() {
        program("nothing");
    }
}
