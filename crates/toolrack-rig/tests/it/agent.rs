//! End-to-end test of the example agent with a filesystem tool, without an API key.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use toolrack_testkit::{ChildGuard, Marker, program};

/// Long enough for a busy machine, short enough for a test.
const LONG: Duration = Duration::from_mins(2);

/// Built by `cargo test` next to this test.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples").join(name)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the example runs as a separate program")]
fn example_agent_calls_a_tool() {
    // The demo server is the fallback if the npm server is not installed.
    assert!(program("demo-server").is_file());
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("found-by-the-agent.txt")).unwrap();
    let marker = Marker::new();
    let (variable, value) = marker.env_var();
    let agent = Command::new(example("agent"))
        .arg(dir.path())
        .env(variable, value)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (status, stdout, stderr) = ChildGuard::new(agent).wait_with_output(LONG).unwrap();
    assert!(status.success(), "{stdout}{stderr}");
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/node");
    let has_files = node.join("node_modules/.bin/mcp-server-filesystem").exists();
    let expected = if has_files { "[FILE] found-by-the-agent.txt" } else { "Hello, World!" };
    assert_eq!(stdout.trim(), format!("The tool says: {expected}"));
    marker.assert_no_processes_left(Duration::from_secs(5));
}
