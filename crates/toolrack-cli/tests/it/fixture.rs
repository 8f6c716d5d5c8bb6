//! Test fixture: a fresh home directory and the program in it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use toolrack_testkit::{ChildGuard, Marker, program};

/// Long enough for a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// A temporary home, and a marker for all processes started in it.
#[derive(Debug)]
pub(crate) struct Fixture {
    dir: TempDir,
    pub(crate) marker: Marker,
}

/// Exit status and output of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        Self { dir, marker: Marker::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// A command with this home and a clean environment.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let mut command = Command::new(program);
        let (name, value) = self.marker.env_var();
        command
            .env_clear()
            .env("PATH", path())
            .env("HOME", self.path())
            .env("TOOLRACK_HOME", self.path().join("home"))
            .env("TERM", "xterm-256color")
            // No daemon unless a test starts one, and no fixed port.
            .env("TOOLRACK_NO_AUTOSTART", "1")
            .env("TOOLRACK_LISTEN", "127.0.0.1:0")
            .env("MARK", self.marker.value())
            .env(name, value)
            .current_dir(self.path().join("work"))
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn toolrack(&self, args: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_toolrack"));
        command.args(args);
        command
    }

    /// Runs the program to completion.
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        self.run_within(LONG, args)
    }

    /// Runs the program to completion, or kills it and fails after the limit.
    pub(crate) fn run_within(&self, limit: Duration, args: &[&str]) -> Outcome {
        outcome_within(limit, self.toolrack(args))
    }

    /// Runs a shell command.
    pub(crate) fn shell(&self, line: &str) -> Outcome {
        let mut shell = self.command("sh");
        shell.args(["-c", line]);
        outcome(shell)
    }
}

/// Runs a command to completion.
pub(crate) fn outcome(command: Command) -> Outcome {
    outcome_within(LONG, command)
}

fn outcome_within(limit: Duration, mut command: Command) -> Outcome {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (status, stdout, stderr) = ChildGuard::new(child).wait_with_output(limit).unwrap();
    Outcome { status, stdout, stderr }
}

/// Directory of the workspace's programs.
pub(crate) fn programs() -> String {
    // The test servers are built next to the program; if missing, this explains how to build them.
    program("scripted-server").parent().unwrap().display().to_string()
}

/// PATH with the workspace's programs first.
fn path() -> String {
    format!("{}:/usr/local/bin:/usr/bin:/bin", programs())
}
