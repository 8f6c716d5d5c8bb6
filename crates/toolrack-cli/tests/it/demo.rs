//! `toolrack demo`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use toolrack_testkit::Marker;

fn toolrack(marker: &Marker, args: &[&str]) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrack"));
    let (name, value) = marker.env_var();
    command.args(args).env(name, value).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> (Output, Marker) {
    let marker = Marker::new();
    let output = toolrack(&marker, args).output().unwrap();
    (output, marker)
}

const DEMO: &str = "\
Starting the built-in demo server …
Connected, protocol revision 2026-07-28

5 tools
  greet        Greets somebody
  add          Adds two numbers
  dice         Rolls dice; the same seed rolls the same
  countdown    Counts down to zero, telling its progress
  word_count   Counts lines, words and characters

Calls
  greet {\"name\": \"world\"} → Hello, world!
  add {\"a\": 19, \"b\": 23} → 42
  word_count {\"text\": \"one rack for every server\"} → 1 lines, 5 words, 25 characters

Three slow calls and a fast one, at the same time
  dice → 5
  countdown (slow) → Lift-off!
  countdown (medium) → Lift-off!
  countdown (fast) → Lift-off!
Server stopped

Next steps
  toolrack --help           all commands
  cargo xtask test          all tests, against real servers
  README.md                 the library, for your own program
";

#[test]
fn demo_calls_tools_and_leaves_no_process() {
    let (output, marker) = run(&["demo"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), DEMO);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    marker.assert_no_processes_left(Duration::ZERO);
}

#[test]
fn demo_supports_the_legacy_protocol() {
    let (output, _) = run(&["demo", "--legacy"]);
    let expected = DEMO.replace("2026-07-28", "2025-11-25");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn unknown_command_suggests_a_similar_one() {
    let (output, _) = run(&["demoo"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        stderr.contains("unrecognized subcommand 'demoo'") && stderr.contains("`demo`"),
        "{stderr}"
    );
    assert!(!stderr.contains("__"), "{stderr}");
}

#[test]
fn help_exits_with_success() {
    let (output, _) = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        String::from_utf8_lossy(&output.stdout)
            .contains("Manage and call MCP servers from one place")
    );
}

#[test]
fn ctrl_c_stops_the_program_and_its_server() {
    let marker = Marker::new();
    let mut child = toolrack(&marker, &["demo"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut seen = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(seen.any(|line| line.starts_with("Connected")));
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    marker.assert_no_processes_left(Duration::from_secs(2));
}

#[test]
fn closed_pipe_is_not_an_error() {
    let marker = Marker::new();
    let mut child = toolrack(&marker, &["demo"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    marker.assert_no_processes_left(Duration::from_secs(1));
}
