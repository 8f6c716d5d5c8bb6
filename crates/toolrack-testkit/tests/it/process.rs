//! Faults of processes. Each test ends what it started.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use toolrack_testkit::{Marker, Process, eventually, open_fds, rss_bytes, zombies_of};

use crate::peer::{Peer, TIMEOUT};

#[test]
fn server_ignoring_eof_runs_until_sigterm() {
    let mut peer = Peer::legacy(&["--plan", "ignore=eof; eof=garbage(blank)"]);
    peer.close_stdin();
    assert_eq!(peer.line(), Some(Vec::new()), "it has read the end");
    assert!(peer.is_running());
    terminate(&peer);
    assert_eq!(peer.exit().code(), None);
}

#[test]
fn server_ignoring_sigterm_runs_until_eof() {
    let mut peer = Peer::legacy(&["--plan", "ignore=term"]);
    terminate(&peer);
    assert_eq!(peer.call_text("echo", json!({ "text": "alive" })), json!("alive"));
    peer.finish();
}

#[test]
fn server_ignoring_both_exits_after_its_lifetime() {
    let mut peer = Peer::legacy(&["--plan", "ignore=term,eof", "--lifetime", "1s"]);
    terminate(&peer);
    peer.close_stdin();
    assert!(peer.is_running());
    assert_eq!(peer.exit().code(), Some(0));
}

#[test]
fn server_can_close_stdout_and_keep_running() {
    let mut peer = Peer::legacy(&["--plan", "call:2=close(stdout)"]);
    assert_eq!(peer.call_text("echo", json!({ "text": "1" })), json!("1"));
    peer.call("echo", json!({ "text": "2" }));
    assert_eq!(peer.line(), None);
    assert!(peer.is_running());
    peer.finish();
}

#[test]
fn server_can_close_stdin_and_keep_running() {
    let mut peer = Peer::legacy(&["--plan", "call:1=close(stdin)", "--lifetime", "1s"]);
    assert_eq!(peer.call_text("echo", json!({ "text": "1" })), json!("1"));
    assert!(peer.is_running());
    assert_eq!(peer.exit().code(), Some(0));
}

#[test]
fn exited_server_can_leave_a_process_holding_stdout() {
    let mut peer = Peer::legacy(&["--plan", "call:1=leak(3)", "--lifetime", "3s"]);
    peer.call("echo", json!({ "text": "x" }));
    assert_eq!(peer.exit().code(), Some(3));
    let left = peer.marker.survivors();
    assert_eq!(left.len(), 1, "{left:?}");
    // Only the exit of the holder closes the pipe.
    assert_eq!(peer.line(), None);
    peer.marker.assert_no_processes_left(TIMEOUT);
}

#[test]
fn tree_has_launcher_and_shell_above_the_server() {
    for (plan, n_processes) in [("tree", 3), ("tree=2", 5)] {
        let mut peer = Peer::legacy(&["--plan", plan]);
        let process: Value = call_json(&mut peer, "pid");
        assert_ne!(process["pid"], json!(peer.child.id()));
        assert_eq!(peer.marker.survivors().len(), n_processes, "{plan}");
        peer.finish();
    }
}

#[test]
fn killing_the_launcher_leaves_the_server() {
    let mut peer = Peer::legacy(&["--plan", "tree"]);
    peer.child.kill().expect("our child");
    peer.exit();
    assert_eq!(peer.call_text("echo", json!({ "text": "orphan" })), json!("orphan"));
    assert_eq!(peer.marker.survivors().len(), 2);
    peer.close_stdin();
    peer.marker.assert_no_processes_left(TIMEOUT);
}

#[test]
fn escapees_leave_the_session_and_ignore_sigterm() {
    let mut peer = Peer::legacy(&["--plan", "escape=2"]);
    peer.close_stdin();
    assert_eq!(peer.exit().code(), Some(0));
    let escapees = peer.marker.survivors();
    assert_eq!(escapees.len(), 2, "{escapees:?}");
    for Process { pid, .. } in &escapees {
        let session = rustix::process::getsid(Some(as_pid(*pid))).expect("it lives");
        assert_eq!(session, as_pid(*pid));
        kill_process(as_pid(*pid), Signal::TERM).expect("it lives");
    }
    assert_eq!(peer.marker.survivors().len(), 2);
    peer.clean_up();
}

#[test]
fn escapees_and_children_exit_after_their_lifetime() {
    let mut peer = Peer::legacy(&["--plan", "call=escape(1)+children(3)", "--lifetime", "3s"]);
    assert_eq!(peer.call_text("echo", json!({ "text": "x" })), json!("x"));
    assert_eq!(peer.marker.survivors().len(), 5);
    eventually(TIMEOUT, "the children end", || zombies_of(peer.child.id()).len() == 3);
    peer.finish();
}

#[test]
fn marker_argument_reaches_every_process() {
    let marker = Marker::new();
    let plan = "tree; escape=1; children=1";
    let mut peer = Peer::legacy(&["--marker", marker.value(), "--plan", plan]);
    let pids = |marker: &Marker| -> Vec<u32> {
        marker.survivors().iter().map(|survivor| survivor.pid).collect()
    };
    assert_eq!(pids(&marker), pids(&peer.marker));
    assert_eq!(pids(&marker).len(), 5);
    peer.close_stdin();
    peer.exit();
    peer.clean_up();
    marker.assert_no_processes_left(Duration::ZERO);
}

#[test]
fn processes_are_measured_from_outside() {
    let mut peer = Peer::legacy(&[]);
    let pid = peer.child.id();
    let own: Value = call_json(&mut peer, "fds");
    assert_eq!(open_fds(pid).ok(), own.as_object().map(serde_json::Map::len));
    let before = rss_bytes(pid).expect("it lives");
    peer.call_text("big", json!({ "bytes": 32 << 20 }));
    assert!(rss_bytes(pid).expect("it lives") > before, "a result of 32 MiB takes memory");
    peer.finish();
}

fn call_json(peer: &mut Peer, tool: &str) -> Value {
    let text = peer.call_text(tool, json!({}));
    serde_json::from_str(text.as_str().expect("a text")).expect("JSON")
}

fn terminate(peer: &Peer) {
    kill_process(as_pid(peer.child.id()), Signal::TERM).expect("our child lives");
}

fn as_pid(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid")
}
