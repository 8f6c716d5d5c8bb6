//! The example agent calls a filesystem tool from end to end, without an API key.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use toolrack_testkit::{Kept, Marker, program};

/// Long enough for a busy machine, short enough for a test.
const LONG: Duration = Duration::from_mins(2);

/// Built by `cargo test` beside this test.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples").join(name)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the example is run as its reader runs it")]
fn example_agent_calls_a_tool() {
    // The demo server has to be there in case the one from npm is not.
    assert!(program("demo-server").is_file());
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("found-by-the-agent.txt")).unwrap();
    let marker = Marker::new();
    let (variable, value) = marker.pair();
    let agent = Command::new(example("agent"))
        .arg(dir.path())
        .env(variable, value)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (status, said, complained) = Kept::new(agent).output(LONG).unwrap();
    assert!(status.success(), "{said}{complained}");
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/node");
    let has_files = node.join("node_modules/.bin/mcp-server-filesystem").exists();
    let expected = if has_files { "[FILE] found-by-the-agent.txt" } else { "Hello, World!" };
    assert_eq!(said.trim(), format!("The tool says: {expected}"));
    marker.assert_nobody_left(Duration::from_secs(5));
}
