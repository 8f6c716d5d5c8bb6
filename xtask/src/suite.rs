//! `cargo xtask test`: every check there is, in one command.
//!
//! **Invariant:** a failing step does not hide the next one, and nothing that did not run is counted
//! as passed.

use std::io::{IsTerminal as _, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::child::{Chore, Ending, now};
use crate::command::{Install, TestOptions};
use crate::printer;
use crate::servers::{self, Outcome};
use crate::tally::Tally;

/// No step may take longer. A cold build on two slow cores stays well below it.
const STEP_LIMIT: Duration = Duration::from_mins(45);

/// The benchmarks bring the clients they measure, so they are only checked, in a step of their own. And rig
/// and rmcp turn on features of shared dependencies that the rest is neither built nor tested with. Whatever
/// is built for a check is built with these words: others would build the dependencies anew, with other features.
pub(crate) const WORKSPACE: [&str; 7] = [
    "--workspace",
    "--exclude",
    "toolrack-bench",
    "--exclude",
    "toolrack-rig",
    "--exclude",
    "toolrack-rmcp",
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Install,
    Check { title: &'static str, chore: Chore, component: Option<&'static str> },
    Tests(Chore),
}

pub(crate) fn run(root: &Path, options: &TestOptions) -> Result<ExitCode> {
    let started = now();
    let mut tally = Tally::default();
    let steps = plan(root, options);
    for (number, step) in (1..).zip(&steps) {
        printer::say(&format!("\n[{number}/{}] {}", steps.len(), describe(step)));
        let began = now();
        match step {
            Step::Install => install(root, &mut tally)?,
            Step::Check { title, chore, component } => check(title, chore, *component, &mut tally)?,
            Step::Tests(chore) => test(chore, &mut tally)?,
        }
        printer::say(&format!(
            "[{number}/{}] took {:.1} s",
            steps.len(),
            began.elapsed().as_secs_f64()
        ));
    }
    if let Some(filter) = options.filter.as_deref().filter(|_| tally.n_tests() == 0) {
        tally.fail(format!("no test has `{filter}` in its name"));
    }
    printer::say(&format!("\n{}", tally.summary(started.elapsed())));
    Ok(if tally.n_failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The steps in order. With a filter, only what it takes to run those tests.
fn plan(root: &Path, options: &TestOptions) -> Vec<Step> {
    let cargo = |verb: &str| Chore::new("cargo", root, STEP_LIMIT).args([verb]);
    let build = Step::Check {
        title: "build",
        chore: cargo("build").args(WORKSPACE).args(["--bins"]),
        component: None,
    };
    // A client of others that tests of the gateway start.
    let rmcp = Step::Check {
        title: "rmcp",
        chore: cargo("build").args(["-p", "toolrack-rmcp"]),
        component: None,
    };
    // Every test program runs, also after one has failed.
    let tests = cargo("test").args(WORKSPACE).args(["--no-fail-fast"]);
    let install = (options.install == Install::First).then_some(Step::Install);
    if let Some(filter) = &options.filter {
        let steps = [build, rmcp, Step::Tests(tests.args([filter]))];
        return install.into_iter().chain(steps).collect();
    }
    let fmt = Step::Check {
        title: "fmt",
        chore: cargo("fmt").args(["--all", "--check"]),
        component: Some("rustfmt"),
    };
    let clippy = Step::Check {
        title: "clippy",
        chore: cargo("clippy").args(WORKSPACE).args(["--all-targets", "--", "-D", "warnings"]),
        component: Some("clippy"),
    };
    let doc = Step::Check {
        title: "doc",
        chore: cargo("doc").args(["--no-deps"]).args(WORKSPACE).env("RUSTDOCFLAGS", "-D warnings"),
        component: None,
    };
    let bench = Step::Check {
        title: "bench",
        chore: cargo("check").args(["-p", "toolrack-bench"]),
        component: None,
    };
    let apart_clippy = Step::Check {
        title: "clippy of what is built apart",
        chore: cargo("clippy").args(["-p", "toolrack-rig", "-p", "toolrack-rmcp"]).args([
            "--all-targets",
            "--no-deps",
            "--",
            "-D",
            "warnings",
        ]),
        component: Some("clippy"),
    };
    let rig_tests = Step::Tests(cargo("test").args(["-p", "toolrack-rig", "--no-fail-fast"]));
    let suites = Step::Check {
        title: "conformance",
        chore: cargo("run").args(["--quiet", "-p", "xtask", "--", "conformance", "--quiet"]),
        component: None,
    };
    let page = Step::Check {
        title: "dashboard",
        chore: cargo("run").args(["--quiet", "-p", "xtask", "--", "dashboard"]),
        component: None,
    };
    let checks = [
        fmt,
        clippy,
        build,
        rmcp,
        Step::Tests(tests),
        apart_clippy,
        rig_tests,
        doc,
        bench,
        suites,
        page,
    ];
    install.into_iter().chain(checks).collect()
}

fn describe(step: &Step) -> String {
    match step {
        Step::Install => "install what tests need".to_owned(),
        Step::Check { title, chore, .. } => format!("{title}: {}", chore.line()),
        Step::Tests(chore) => format!("test: {}", chore.line()),
    }
}

fn install(root: &Path, tally: &mut Tally) -> Result<()> {
    for (what, outcome) in servers::install(root)? {
        if let Outcome::Skipped(reason) = outcome {
            tally.skip(format!("{what}: {reason}"));
        }
    }
    Ok(())
}

fn check(title: &str, chore: &Chore, component: Option<&str>, tally: &mut Tally) -> Result<()> {
    if let Some(component) = component.filter(|it| !servers::has_component(it)) {
        let reason = format!("{component} is missing: `rustup component add {component}`");
        printer::say(&format!("SKIPPED: {title}: {reason}"));
        tally.skip(format!("{title}: {reason}"));
        return Ok(());
    }
    let mut skipped = None;
    let ending = in_color(chore.clone()).stream(|line| {
        if let Some(reason) = line.strip_prefix("SKIPPED: ") {
            skipped = Some(reason.to_owned());
        }
    })?;
    match (ending, skipped) {
        (Ending::Success, None) => tally.pass(),
        (Ending::Success, Some(reason)) => tally.skip(reason),
        (ending, _) => tally.fail(format!("{title}: {ending}")),
    }
    Ok(())
}

fn test(chore: &Chore, tally: &mut Tally) -> Result<()> {
    let ending = in_color(chore.clone()).stream(|line| tally.hear(line))?;
    tally.end_tests(ending);
    Ok(())
}

/// Our pipe would turn cargo's colors off, also for a person at a terminal.
fn in_color(chore: Chore) -> Chore {
    if stdout().is_terminal() { chore.env("CARGO_TERM_COLOR", "always") } else { chore }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_plan(install: Install, filter: Option<&str>, expected: &[&str]) {
        let options = TestOptions { install, filter: filter.map(str::to_owned) };
        let steps: Vec<String> = plan(Path::new("."), &options).iter().map(describe).collect();
        assert_eq!(steps, expected);
    }

    #[test]
    fn every_check_is_a_step() {
        check_plan(
            Install::First,
            None,
            &[
                "install what tests need",
                "fmt: cargo fmt --all --check",
                "clippy: cargo clippy --workspace --exclude toolrack-bench --exclude toolrack-rig --exclude toolrack-rmcp --all-targets -- -D warnings",
                "build: cargo build --workspace --exclude toolrack-bench --exclude toolrack-rig --exclude toolrack-rmcp --bins",
                "rmcp: cargo build -p toolrack-rmcp",
                "test: cargo test --workspace --exclude toolrack-bench --exclude toolrack-rig --exclude toolrack-rmcp --no-fail-fast",
                "clippy of what is built apart: cargo clippy -p toolrack-rig -p toolrack-rmcp --all-targets --no-deps -- -D warnings",
                "test: cargo test -p toolrack-rig --no-fail-fast",
                "doc: RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --workspace --exclude toolrack-bench --exclude toolrack-rig --exclude toolrack-rmcp",
                "bench: cargo check -p toolrack-bench",
                "conformance: cargo run --quiet -p xtask -- conformance --quiet",
                "dashboard: cargo run --quiet -p xtask -- dashboard",
            ],
        );
    }

    #[test]
    fn filter_leaves_only_what_those_tests_need() {
        check_plan(
            Install::Never,
            Some("late"),
            &[
                "build: cargo build --workspace --exclude toolrack-bench --exclude toolrack-rig --exclude toolrack-rmcp --bins",
                "rmcp: cargo build -p toolrack-rmcp",
                "test: cargo test --workspace --exclude toolrack-bench --exclude toolrack-rig --exclude toolrack-rmcp --no-fail-fast late",
            ],
        );
    }

    fn script(text: &str) -> Chore {
        Chore::new("sh", Path::new("."), Duration::from_secs(20)).args(["-c", text])
    }

    #[track_caller]
    fn check_tests(text: &str, expected: &str) {
        let mut tally = Tally::default();
        test(&script(text), &mut tally).unwrap();
        let summary = tally.summary(Duration::ZERO);
        assert_eq!(summary.lines().last(), Some(expected), "{summary}");
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
        let mut tally = Tally::default();
        check("fmt", &script("exit 1"), None, &mut tally).unwrap();
        check("doc", &script("exit 0"), None, &mut tally).unwrap();
        check("x", &script("echo 'SKIPPED: x: no y'"), None, &mut tally).unwrap();
        let summary = tally.summary(Duration::ZERO);
        assert!(summary.contains("FAILED: fmt: exit code 1\n"), "{summary}");
        assert!(summary.ends_with("1 passed, 1 failed, 1 skipped"), "{summary}");
    }
}
