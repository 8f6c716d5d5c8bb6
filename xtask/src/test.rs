//! `cargo xtask test`: runs every check.
//!
//! **Invariant:** a failed step does not prevent the next one, and a step that did not run never
//! counts as passed.

use std::io::{IsTerminal as _, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::commands::unexpected;
use crate::install;
use crate::subprocess::{ExitResult, Subprocess, now};
use crate::test_summary::TestSummary;

/// Time limit of one step. A cold build on two slow cores stays well below it.
const STEP_LIMIT: Duration = Duration::from_mins(45);

/// Package selection of every build. rig and rmcp enable features of shared dependencies, so they are built apart.
/// Another selection would rebuild the dependencies with other features.
pub(crate) const WORKSPACE: [&str; 5] =
    ["--workspace", "--exclude", "toolrack-rig", "--exclude", "toolrack-rmcp"];

/// The benchmarks with the clients that they compare.
const BENCH: [&str; 4] = ["-p", "toolrack-bench", "--features", "toolrack-bench/peers"];

/// Options of `cargo xtask test`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    no_install: bool,
    /// Runs only the tests whose names contain this text, and no other check.
    filter: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Install,
    /// A command that passes or fails, and the Rust component that it needs.
    Check(&'static str, Subprocess, Option<&'static str>),
    Tests(Subprocess),
}

pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let options = parse(args)?;
    let started = now();
    let mut summary = TestSummary::default();
    let steps = plan(root, &options);
    for (number, step) in (1..).zip(&steps) {
        crate::print(&format!("\n[{number}/{}] {}", steps.len(), describe(step)));
        let began = now();
        match step {
            Step::Install => install(root, &mut summary)?,
            Step::Check(title, command, component) => {
                check(title, command, *component, &mut summary)?;
            }
            Step::Tests(command) => test(command, &mut summary)?,
        }
        crate::print(&format!(
            "[{number}/{}] took {:.1} s",
            steps.len(),
            began.elapsed().as_secs_f64()
        ));
    }
    if let Some(filter) = options.filter.as_deref().filter(|_| summary.n_tests() == 0) {
        summary.fail(format!("no test has `{filter}` in its name"));
    }
    crate::print(&format!("\n{}", summary.report(started.elapsed())));
    Ok(if summary.n_failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options::default();
    for word in args {
        if word == "--no-install" {
            options.no_install = true;
        } else if word.starts_with('-') || options.filter.is_some() {
            return unexpected("test", word);
        } else {
            options.filter = Some(word.clone());
        }
    }
    Ok(options)
}

/// The steps in order. A filter leaves only the steps that its tests need.
fn plan(root: &Path, options: &Options) -> Vec<Step> {
    let cargo = |verb: &str| Subprocess::new("cargo", root, STEP_LIMIT).args([verb]);
    let xtask = |args: &[&str]| cargo("run").args(["--quiet", "-p", "xtask", "--"]).args(args);
    let deny_warnings = ["--", "-D", "warnings"];
    let build = Step::Check("build", cargo("build").args(WORKSPACE).args(["--bins"]), None);
    // Third-party client that gateway tests start.
    let rmcp = Step::Check("rmcp", cargo("build").args(["-p", "toolrack-rmcp"]), None);
    // Every test program runs, also after one has failed.
    let tests = cargo("test").args(WORKSPACE).args(["--no-fail-fast"]);
    let install = (!options.no_install).then_some(Step::Install);
    if let Some(filter) = &options.filter {
        let steps = [build, rmcp, Step::Tests(tests.args([filter]))];
        return install.into_iter().chain(steps).collect();
    }
    let clippy = cargo("clippy").args(WORKSPACE).args(["--all-targets"]).args(deny_warnings);
    let separate_clippy = cargo("clippy").args(["-p", "toolrack-rig", "-p", "toolrack-rmcp"]);
    let separate_clippy = separate_clippy.args(["--all-targets", "--no-deps"]).args(deny_warnings);
    let rig_033 = ["-p", "toolrack-rig", "--features", "toolrack-rig/rig-033"];
    let rig_033_clippy = cargo("clippy").args(rig_033).args(["-p", "toolrack-manager"]);
    let rig_033_clippy = rig_033_clippy.args(["--all-targets", "--no-deps"]).args(deny_warnings);
    let doc = cargo("doc").args(["--no-deps"]).args(WORKSPACE);
    let checks = [
        Step::Check("fmt", cargo("fmt").args(["--all", "--check"]), Some("rustfmt")),
        Step::Check("clippy", clippy, Some("clippy")),
        build,
        rmcp,
        Step::Tests(tests),
        Step::Check("clippy of separate crates", separate_clippy, Some("clippy")),
        Step::Tests(cargo("test").args(["-p", "toolrack-rig", "--no-fail-fast"])),
        Step::Check("clippy with rig 0.33", rig_033_clippy, Some("clippy")),
        Step::Tests(cargo("test").args(rig_033).args(["--no-fail-fast", "rig_033"])),
        Step::Check("doc", doc.env("RUSTDOCFLAGS", "-D warnings"), None),
        Step::Check("public API", xtask(&["public-api"]), None),
        Step::Check("bench", cargo("check").args(BENCH), None),
        Step::Check("conformance", xtask(&["conformance", "--quiet"]), None),
        Step::Check("dashboard", xtask(&["dashboard"]), None),
    ];
    install.into_iter().chain(checks).collect()
}

fn describe(step: &Step) -> String {
    match step {
        Step::Install => "install test servers".to_owned(),
        Step::Check(title, command, _) => format!("{title}: {}", command.command_line()),
        Step::Tests(command) => format!("test: {}", command.command_line()),
    }
}

fn install(root: &Path, summary: &mut TestSummary) -> Result<()> {
    for (what, outcome) in install::install(root)? {
        if let Some(reason) = outcome.skipped() {
            summary.skip(format!("{what}: {reason}"));
        }
    }
    Ok(())
}

fn check(
    title: &str,
    command: &Subprocess,
    component: Option<&str>,
    summary: &mut TestSummary,
) -> Result<()> {
    if let Some(component) = component.filter(|component| !install::has_component(component)) {
        let reason = format!("{component} is missing: `rustup component add {component}`");
        crate::print(&format!("SKIPPED: {title}: {reason}"));
        summary.skip(format!("{title}: {reason}"));
        return Ok(());
    }
    let mut skipped = None;
    let exit = in_color(command.clone()).stream(|line| {
        if let Some(reason) = line.strip_prefix("SKIPPED: ") {
            skipped = Some(reason.to_owned());
        }
    })?;
    match (exit, skipped) {
        (ExitResult::Success, None) => summary.pass(),
        (ExitResult::Success, Some(reason)) => summary.skip(reason),
        (exit, _) => summary.fail(format!("{title}: {exit}")),
    }
    Ok(())
}

fn test(command: &Subprocess, summary: &mut TestSummary) -> Result<()> {
    let exit = in_color(command.clone()).stream(|line| summary.read_line(line))?;
    summary.end_tests(exit);
    Ok(())
}

/// Keeps cargo's colors on a terminal: cargo itself only sees our pipe.
fn in_color(command: Subprocess) -> Subprocess {
    if stdout().is_terminal() { command.env("CARGO_TERM_COLOR", "always") } else { command }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &str) -> Result<Options, String> {
        let words: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn command_lines_are_parsed() {
        let parsed = |no_install, filter: Option<&str>| {
            Ok(Options { no_install, filter: filter.map(str::to_owned) })
        };
        assert_eq!(options(""), parsed(false, None));
        assert_eq!(options("--no-install"), parsed(true, None));
        assert_eq!(options("late_response"), parsed(false, Some("late_response")));
        assert_eq!(options("late_response --no-install"), parsed(true, Some("late_response")));
        let unexpected =
            |word| Err(format!("unexpected argument `{word}` for `test`; see `cargo xtask help`"));
        assert_eq!(options("a b"), unexpected("b"));
        assert_eq!(options("-q"), unexpected("-q"));
    }

    #[track_caller]
    fn check_plan(args: &str, expected: &[&str]) {
        let options = options(args).unwrap();
        let steps: Vec<String> = plan(Path::new("."), &options).iter().map(describe).collect();
        assert_eq!(steps, expected);
    }

    #[test]
    fn every_check_is_a_step() {
        check_plan(
            "",
            &[
                "install test servers",
                "fmt: cargo fmt --all --check",
                "clippy: cargo clippy --workspace --exclude toolrack-rig --exclude toolrack-rmcp --all-targets -- -D warnings",
                "build: cargo build --workspace --exclude toolrack-rig --exclude toolrack-rmcp --bins",
                "rmcp: cargo build -p toolrack-rmcp",
                "test: cargo test --workspace --exclude toolrack-rig --exclude toolrack-rmcp --no-fail-fast",
                "clippy of separate crates: cargo clippy -p toolrack-rig -p toolrack-rmcp --all-targets --no-deps -- -D warnings",
                "test: cargo test -p toolrack-rig --no-fail-fast",
                "clippy with rig 0.33: cargo clippy -p toolrack-rig --features toolrack-rig/rig-033 -p toolrack-manager --all-targets --no-deps -- -D warnings",
                "test: cargo test -p toolrack-rig --features toolrack-rig/rig-033 --no-fail-fast rig_033",
                "doc: RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --workspace --exclude toolrack-rig --exclude toolrack-rmcp",
                "public API: cargo run --quiet -p xtask -- public-api",
                "bench: cargo check -p toolrack-bench --features toolrack-bench/peers",
                "conformance: cargo run --quiet -p xtask -- conformance --quiet",
                "dashboard: cargo run --quiet -p xtask -- dashboard",
            ],
        );
    }

    #[test]
    fn filter_leaves_only_the_needed_steps() {
        check_plan(
            "--no-install late",
            &[
                "build: cargo build --workspace --exclude toolrack-rig --exclude toolrack-rmcp --bins",
                "rmcp: cargo build -p toolrack-rmcp",
                "test: cargo test --workspace --exclude toolrack-rig --exclude toolrack-rmcp --no-fail-fast late",
            ],
        );
    }

    fn script(text: &str) -> Subprocess {
        Subprocess::new("sh", Path::new("."), Duration::from_secs(20)).args(["-c", text])
    }

    #[track_caller]
    fn check_tests(text: &str, expected: &str) {
        let mut summary = TestSummary::default();
        test(&script(text), &mut summary).unwrap();
        let report = summary.report(Duration::ZERO);
        assert_eq!(report.lines().last(), Some(expected), "{report}");
    }

    #[test]
    fn test_program_that_crashes_is_a_failure() {
        let ok = "echo running 2 tests; echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
        check_tests(ok, "2 passed, 0 failed, 0 skipped");
        check_tests(&format!("{ok}; exit 101"), "2 passed, 1 failed, 0 skipped");
        let failed = "echo 'test result: FAILED. 2 passed; 3 failed; 0 ignored'";
        check_tests(&format!("{failed}; exit 101"), "2 passed, 3 failed, 0 skipped");
        let crashed = format!("echo running 1 test; {failed}; echo running 7 tests; exit 101");
        check_tests(&crashed, "2 passed, 4 failed, 0 skipped");
        let skipped = format!("echo 'SKIPPED: a: no node' >&2; {ok}");
        check_tests(&skipped, "1 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn failing_check_is_counted_and_named() {
        let mut summary = TestSummary::default();
        check("fmt", &script("exit 1"), None, &mut summary).unwrap();
        check("doc", &script("exit 0"), None, &mut summary).unwrap();
        check("x", &script("echo 'SKIPPED: x: no y'"), None, &mut summary).unwrap();
        let report = summary.report(Duration::ZERO);
        assert!(report.contains("FAILED: fmt: exit code 1\n"), "{report}");
        assert!(report.ends_with("1 passed, 1 failed, 1 skipped"), "{report}");
    }
}
