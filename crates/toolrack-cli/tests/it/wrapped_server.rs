//! A server behind a shell, with a grandchild that keeps stdout open: the program still returns
//! promptly, and no process is left. Repeated 20 times.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use toolrack_testkit::ChildGuard;

use crate::fixture::{Fixture, LONG};

const TIMES: usize = 20;
/// Each run mostly waits, so several run at once.
const AT_ONCE: usize = 5;
/// From the response to the exit.
const SOON: Duration = Duration::from_secs(3);

#[track_caller]
fn check(plan: &str) {
    for _ in 0..TIMES / AT_ONCE {
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| call_once(plan));
            }
        });
    }
}

fn call_once(plan: &str) {
    let fixture = Fixture::new();
    let (name, value) = fixture.marker.env_var();
    let mark = format!("{name}={value}");
    let script = format!("sh -c 'sleep 300 & exec scripted-server --plan \"{plan}\"'; true");
    let mut command = fixture.toolrack(&[
        "call",
        "echo",
        "text=hello",
        "--env",
        &mark,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    assert_eq!(answer, "hello\n");
    let answered = now();
    let (status, ..) = ChildGuard::new(child).wait_with_output(LONG).unwrap();
    let took = answered.elapsed();
    assert!(took < SOON, "{took:?} after the answer");
    assert_eq!(status.code(), Some(0));
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}

#[expect(clippy::disallowed_methods, reason = "another program's time cannot be paused")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[test]
fn wrapped_server_that_exits_at_eof() {
    check("call=ok");
}

#[test]
fn wrapped_server_that_ignores_eof() {
    check("ignore=eof");
}

#[test]
fn wrapped_server_that_ignores_eof_and_sigterm() {
    check("ignore=term,eof");
}
