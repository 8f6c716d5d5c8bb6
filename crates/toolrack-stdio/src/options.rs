//! Server definition and options of the stdio transport, with shutdown timeouts.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolrack_transport::Redactor;

use crate::launch_spec::EnvInheritance;
use crate::prepared_guardian::PreparedGuardian;

/// The part of the close timeout for SIGKILL and its report: a second until a guardian counts as silent, and two to end
/// its server without it.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// The part of the close timeout for the cleanup command.
const CLEANUP_WAIT: Duration = Duration::from_secs(3);

/// A server to start. `Debug` shows neither arguments nor values of variables, because many are secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct McpServerDef {
    /// The name of a program on `PATH`, or a path.
    pub command: String,
    /// Arguments, passed unchanged and without a shell.
    pub args: Vec<String>,
    /// Variables in addition to the inherited ones.
    pub env: HashMap<String, String>,
    /// The working directory. Ours by default.
    pub cwd: Option<PathBuf>,
}

/// Options of the stdio transport. The defaults suit every server we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdioOptions {
    /// The guardian, which ends the server's processes when we cannot.
    pub guardian: Guardian,
    /// The maximum size of a message from the server. A larger one is discarded, and only its call fails.
    pub max_message_bytes: usize,
    /// The maximum size of the write queue. When it is full, callers wait within their timeouts.
    pub max_queued_bytes: usize,
    /// How much of our environment the server inherits.
    pub inherit_env: EnvInheritance,
    /// Timeouts of the graceful shutdown.
    pub shutdown: ShutdownTimeouts,
    /// A command that runs after the last process of the server has exited, to clean up resources elsewhere, such as
    /// a container. With a guardian it runs even if we are gone.
    pub cleanup: Option<CleanupCommand>,
    /// Redacts stderr and unreadable output.
    pub redactor: Redactor,
}

/// A command that cleans up resources of a server, such as a container. It runs with the server's environment.
///
/// It may run for twenty seconds; closing the transport waits for three of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanupCommand {
    /// The name of a program on `PATH`, or a path.
    pub command: String,
    /// Arguments, passed unchanged and without a shell.
    pub args: Vec<String>,
}

/// The guardian process, which ends the server's processes when we cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Guardian {
    /// Our own program, if it called [`init`](crate::init); otherwise none.
    #[default]
    Auto,
    /// This program, which has to be a guardian: `toolrack-guard`, or a program that calls `init`.
    Program(PathBuf),
    /// A guardian that was started ahead. The first server takes it; for others this means `Auto`.
    Prepared(PreparedGuardian),
    /// No guardian. Only the server's process group is ended, and only while we run.
    None,
}

/// How long each step of the shutdown may take before the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutdownTimeouts {
    /// The time after the server's stdin was closed, before SIGTERM.
    pub close_stdin: Duration,
    /// The time after SIGTERM, before SIGKILL.
    pub terminate: Duration,
}

impl fmt::Debug for McpServerDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&String> = self.env.keys().collect();
        names.sort_unstable();
        f.debug_struct("McpServerDef")
            .field("command", &self.command)
            .field("n_args", &self.args.len())
            .field("env", &names)
            .field("cwd", &self.cwd)
            .finish()
    }
}

impl Default for StdioOptions {
    fn default() -> Self {
        Self {
            guardian: Guardian::Auto,
            max_message_bytes: 32 << 20,
            max_queued_bytes: 8 << 20,
            inherit_env: EnvInheritance::default(),
            shutdown: ShutdownTimeouts::default(),
            cleanup: None,
            redactor: Redactor::default(),
        }
    }
}

impl StdioOptions {
    /// The longest time that closing the transport waits.
    pub(crate) fn close_timeout(&self) -> Duration {
        let cleanup = self.cleanup.as_ref().map_or(Duration::ZERO, |_| CLEANUP_WAIT);
        let shutdown = self.shutdown.close_stdin.saturating_add(self.shutdown.terminate);
        shutdown.saturating_add(KILL_TIMEOUT + cleanup)
    }
}

impl Default for ShutdownTimeouts {
    fn default() -> Self {
        Self { close_stdin: Duration::from_secs(2), terminate: Duration::from_secs(3) }
    }
}

impl ShutdownTimeouts {
    /// The timeouts for a server without an owner: short, because no caller waits for a graceful exit.
    pub(crate) const ABANDONED: ShutdownTimeouts = ShutdownTimeouts {
        close_stdin: Duration::from_millis(200),
        terminate: Duration::from_millis(300),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_of_a_server_definition_hides_secrets() {
        let definition = McpServerDef {
            command: "server".to_owned(),
            args: vec!["--token=s3cret".to_owned()],
            env: HashMap::from([("TOKEN".to_owned(), "s3cret".to_owned())]),
            cwd: None,
        };
        let expected =
            r#"McpServerDef { command: "server", n_args: 1, env: ["TOKEN"], cwd: None }"#;
        assert_eq!(format!("{definition:?}"), expected);
    }

    #[test]
    fn shutdown_timeouts_do_not_overflow() {
        let shutdown = ShutdownTimeouts { close_stdin: Duration::MAX, terminate: Duration::MAX };
        let options = StdioOptions { shutdown, ..StdioOptions::default() };
        assert_eq!(options.close_timeout(), Duration::MAX);
    }
}
