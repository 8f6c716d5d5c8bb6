//! A guardian that does not act or has not done its work leaves no process: frozen, silent, or gone without a report.
//!
//! Scripts play the guardian. The owner knows it by its reports and its process only.

#![expect(clippy::disallowed_methods, reason = "scripts and control groups are plain files")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use tokio::time::{Instant, timeout};
use toolrack_stdio::{CleanupCommand, Guardian, McpServerDef, StdioClientTransport, StdioOptions};
use toolrack_testkit::{Marker, eventually, skipped};
use toolrack_transport::Transport as _;

use crate::fixture::{RecordingHandler, connect, fast_shutdown, initialized, program};
use crate::process_tree::{
    CLOSE_LIMIT, STOPS_GUARDIAN, assert_gone, find_guardian, hostile_server,
};

/// The time in which a dropped connection ends its guardian, and a reserve.
const DROP_LIMIT: Duration = Duration::from_secs(25);

/// Options with a script as guardian, and a cleanup command that creates a file.
fn scripted_guardian(dir: &Path, script: &str) -> StdioOptions {
    let program = dir.join("guardian");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let file = cleaned_up(dir).display().to_string();
    let cleanup = CleanupCommand { command: "touch".to_owned(), args: vec![file] };
    let guardian = Guardian::Program(program);
    StdioOptions { guardian, cleanup: Some(cleanup), ..fast_shutdown() }
}

fn cleaned_up(dir: &Path) -> PathBuf {
    dir.join("cleaned-up")
}

/// Reports the start of a server that it does not start, and is the parent of processes.
fn silent_script(marker: &Marker) -> String {
    let (name, value) = marker.env_var();
    // The program starts itself again, because the environment that others see is that of its start.
    let mark = format!("[ -n \"${name}\" ] || exec env {name}={value} \"$0\" \"$@\"");
    let script = "sleep 300 & setsid sleep 300 & echo '\"Started\"' >&0; wait";
    format!("#!/bin/sh\n{mark}\n{script}\n")
}

#[tokio::test]
async fn silent_guardian_is_killed_with_its_server() {
    let (marker, dir) = (Marker::new(), tempfile::tempdir().unwrap());
    let options = scripted_guardian(dir.path(), &silent_script(&marker));
    let transport = connect(&program("true", &[]), options).await;
    eventually(DROP_LIMIT, "the guardian has children", || marker.survivors().len() == 3);
    let started = Instant::now();
    transport.close().await;
    let limit = CLOSE_LIMIT + Duration::from_secs(3);
    assert!(started.elapsed() < limit, "{:?}", started.elapsed());
    marker.assert_no_processes_left(Duration::ZERO);
    assert!(cleaned_up(dir.path()).exists());
}

#[tokio::test]
async fn silent_guardian_of_a_dropped_transport_is_killed_with_its_server() {
    let (marker, dir) = (Marker::new(), tempfile::tempdir().unwrap());
    let options = scripted_guardian(dir.path(), &silent_script(&marker));
    drop(connect(&program("true", &[]), options).await);
    let gone = async {
        while !marker.survivors().is_empty() || !cleaned_up(dir.path()).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DROP_LIMIT, gone).await.unwrap();
}

/// Starts a server outside of its session as the real guardian would, with the tag. Ends before its first report.
const EARLY_EXIT: &str = r#"#!/usr/bin/env python3
import json, os, signal, socket, subprocess, sys
owner, received = socket.socket(fileno=0), b""
while b"\n" not in received[1:]:
    received += owner.recv(1 << 20)
text = lambda value: bytes(value["Unix"])
spec = json.loads(received)
env = {text(name): text(value) for name, value in spec["env"]}
subprocess.Popen(["sleep", "300"], env=env, start_new_session=True, stdin=subprocess.DEVNULL)
"#;

/// Starts the server under a guardian that ends before its first report.
async fn start_under(ending: &str, marker: &Marker, dir: &Path) -> Result<(), String> {
    let options = scripted_guardian(dir, &format!("{EARLY_EXIT}{ending}\n"));
    let mut definition = McpServerDef { command: "true".to_owned(), ..McpServerDef::default() };
    let (name, value) = marker.env_var();
    definition.env.insert(name.to_owned(), value.to_owned());
    let handler = std::sync::Arc::new(RecordingHandler::default());
    let started = StdioClientTransport::spawn(&definition, options, handler).await;
    started.map(drop).map_err(|error| error.to_string())
}

fn has_python(test: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join("python3").is_file());
    if !found {
        skipped(test, "python3 is not installed");
    }
    found
}

#[tokio::test]
async fn guardian_that_ends_before_its_first_report_leaves_no_process() {
    if !has_python("guardian_that_ends_before_its_first_report_leaves_no_process") {
        return;
    }
    for ending in ["", "os.kill(os.getpid(), signal.SIGKILL)"] {
        let (marker, dir) = (Marker::new(), tempfile::tempdir().unwrap());
        start_under(ending, &marker, dir.path()).await.unwrap_err();
        marker.assert_no_processes_left(Duration::ZERO);
        assert!(cleaned_up(dir.path()).exists());
    }
}

/// The connection is dropped first, so the guardian's end is noticed by its watch.
#[tokio::test]
async fn guardian_that_is_killed_after_its_connection_was_dropped_leaves_no_process() {
    if !has_python("guardian_that_is_killed_after_its_connection_was_dropped_leaves_no_process") {
        return;
    }
    let (marker, dir) = (Marker::new(), tempfile::tempdir().unwrap());
    // Waits for the end of the connection.
    let ending = "owner.recv(1)\nos.kill(os.getpid(), signal.SIGKILL)";
    let started = async {
        let server_runs = async {
            while marker.survivors().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            started = start_under(ending, &marker, dir.path()) => panic!("{started:?}"),
            () = server_runs => {}
        }
    };
    timeout(DROP_LIMIT, started).await.unwrap();
    let gone = async {
        while !marker.survivors().is_empty() || !cleaned_up(dir.path()).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DROP_LIMIT, gone).await.unwrap();
}

/// A control group with a frozen process. Removed on drop, when the process has ended.
struct FrozenGroup(PathBuf);

impl FrozenGroup {
    /// Freezes a process, where the system and our rights allow it.
    fn new(process: Pid) -> Result<Self, String> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<&str>>());
        let root = mounts.find(|fields| fields.get(2) == Some(&"cgroup2"));
        let root = root.ok_or("no control groups of version 2")?[1].to_owned();
        let pid = process.as_raw_nonzero().to_string();
        let group = Self(Path::new(&root).join(format!("toolrack-test-{pid}")));
        let write = |file: &str, text: &str| std::fs::write(group.0.join(file), text);
        let frozen = std::fs::create_dir(&group.0)
            .and_then(|()| write("cgroup.procs", &pid))
            .and_then(|()| write("cgroup.freeze", "1"));
        frozen.map_err(|error| format!("control group: {error}"))?;
        eventually(Duration::from_secs(5), "the process is frozen", || {
            let events = std::fs::read_to_string(group.0.join("cgroup.events"));
            events.is_ok_and(|events| events.contains("frozen 1"))
        });
        Ok(group)
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        // After a failed test the process is still there.
        std::fs::write(self.0.join("cgroup.freeze"), "0").unwrap_or_default();
        std::fs::remove_dir(&self.0).unwrap_or_default();
    }
}

#[tokio::test]
async fn frozen_guardian_is_killed_with_its_server() {
    let marker = Marker::new();
    let transport = initialized(&hostile_server(&marker, STOPS_GUARDIAN), fast_shutdown()).await;
    let guardian = find_guardian(&marker);
    let group = FrozenGroup::new(guardian);
    let started = Instant::now();
    transport.close().await;
    if let Err(reason) = &group {
        return skipped("frozen_guardian_is_killed_with_its_server", reason);
    }
    assert!(started.elapsed() < CLOSE_LIMIT, "{:?}", started.elapsed());
    marker.assert_no_processes_left(Duration::ZERO);
    assert_gone(guardian).await;
    assert!(test_kill_process(guardian).is_err());
}
