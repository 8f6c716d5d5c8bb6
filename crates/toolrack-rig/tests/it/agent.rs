//! Issue 4: the example agent calls a filesystem tool from end to end, without an API key.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use toolrack_testkit::{Marker, eventually, program};

/// Long enough for a busy machine, short enough for a test.
const LONG: Duration = Duration::from_mins(2);

/// A program that does not outlive its test.
struct Kept(Child);

impl Kept {
    /// Waits for its end and gives what it printed.
    fn output(&mut self) -> (ExitStatus, String, String) {
        let mut status = None;
        eventually(LONG, "the program ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        let (mut said, mut complained) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut complained).unwrap();
        (status.unwrap(), said, complained)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            self.0.kill().unwrap_or_default();
            let _status = self.0.wait();
        }
    }
}

/// Built by `cargo test` beside this test.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples").join(name)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the example is run as its reader runs it")]
fn the_example_agent_calls_a_tool_and_answers_with_its_text() {
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
    let (status, said, complained) = Kept(agent).output();
    assert!(status.success(), "{said}{complained}");
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/node");
    let has_files = node.join("node_modules/.bin/mcp-server-filesystem").exists();
    let expected = if has_files { "[FILE] found-by-the-agent.txt" } else { "Hello, World!" };
    assert_eq!(said.trim(), format!("The tool says: {expected}"));
    marker.assert_nobody_left(Duration::from_secs(5));
}
