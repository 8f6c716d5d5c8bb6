//! What a server is, as its user says it, and how it is to be run.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use toolrack_transport::Mask;

use crate::launch_spec::Inheritance;

/// What closing may take beyond the patience of the ladder: killing, and hearing of it.
const KILL_LIMIT: Duration = Duration::from_secs(1);

/// What closing may take beyond that to end what the server has elsewhere.
const FAREWELL_LIMIT: Duration = Duration::from_secs(3);

/// A server to start. Its `Debug` shows neither arguments nor values of the environment, because many are secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct McpServerDef {
    /// A program on `PATH`, or a path to one.
    pub command: String,
    /// Passed as they are; no shell reads them.
    pub args: Vec<String>,
    /// Added to the small environment every server gets.
    pub env: HashMap<String, String>,
    /// Where it runs. Ours, if not given.
    pub cwd: Option<PathBuf>,
}

/// How a server is run. The defaults suit every server we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdioOptions {
    /// Who ends the server's processes when we cannot.
    pub guardian: Guardian,
    /// The longest message taken from the server. A longer one is thrown away and fails only the
    /// call it answers.
    pub line_limit_bytes: usize,
    /// What may wait for a server that does not read. Beyond it, callers wait within their patience.
    pub outbox_limit_bytes: usize,
    /// How much of our environment the server gets.
    pub inherit_env: Inheritance,
    /// How patiently the server is ended.
    pub ladder: Ladder,
    /// What is run once nothing is left of the server, to end what it has elsewhere, such as a container.
    /// Also when we are gone, if there is a guardian.
    pub farewell: Option<Farewell>,
    /// What is taken out of what the server writes for people.
    pub mask: Mask,
}

/// A command that ends what a server has elsewhere. It has the environment of the server.
///
/// It may take twenty seconds; whoever closes the line waits for three of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Farewell {
    /// A program on `PATH`, or a path to one.
    pub command: String,
    /// Passed as they are; no shell reads them.
    pub args: Vec<String>,
}

/// Who ends the server's processes when we cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Guardian {
    /// This very program, if it called [`init`](crate::init); otherwise nobody.
    #[default]
    Auto,
    /// This program, which has to be a guardian (`toolrack-guard`, or one that calls `init`).
    Program(PathBuf),
    /// Nobody. Only the server's process group is ended, and only while we live.
    Nobody,
}

/// How long each rung of the shutdown ladder is given before the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    /// After closing the server's input.
    pub close: Duration,
    /// After asking it to terminate.
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
            line_limit_bytes: 32 << 20,
            outbox_limit_bytes: 8 << 20,
            inherit_env: Inheritance::default(),
            ladder: Ladder::default(),
            farewell: None,
            mask: Mask::default(),
        }
    }
}

impl StdioOptions {
    /// How long closing a line waits at most.
    pub(crate) fn closing_limit(&self) -> Duration {
        let farewell = self.farewell.as_ref().map_or(Duration::ZERO, |_| FAREWELL_LIMIT);
        let ladder = self.ladder.close.saturating_add(self.ladder.terminate);
        ladder.saturating_add(KILL_LIMIT + farewell)
    }
}

impl Default for Ladder {
    fn default() -> Self {
        Self { close: Duration::from_secs(2), terminate: Duration::from_secs(3) }
    }
}

impl Ladder {
    /// When we are gone there is nobody to wait for, and what is left behind must not stay.
    pub(crate) const ABANDONED: Ladder =
        Ladder { close: Duration::from_millis(200), terminate: Duration::from_millis(300) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_does_not_show_its_secrets() {
        let definition = McpServerDef {
            command: "server".to_owned(),
            args: vec!["--token=s3cret".to_owned()],
            env: HashMap::from([("TOKEN".to_owned(), "s3cret".to_owned())]),
            cwd: None,
        };
        let shown = r#"McpServerDef { command: "server", n_args: 1, env: ["TOKEN"], cwd: None }"#;
        assert_eq!(format!("{definition:?}"), shown);
    }

    #[test]
    fn a_ladder_may_be_endless() {
        let ladder = Ladder { close: Duration::MAX, terminate: Duration::MAX };
        let options = StdioOptions { ladder, ..StdioOptions::default() };
        assert_eq!(options.closing_limit(), Duration::MAX);
    }
}
