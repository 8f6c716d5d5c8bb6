//! What a daemon was started with: a variable that is set later never reaches it, and whoever misses one is told.

use std::path::Path;

use toolrack_config::{Lookup, Source};
use toolrack_service::SharedLookup;

use crate::suggested_command::Aim;

/// The environment of a daemon.
pub(crate) struct Inherited {
    pub(crate) values: SharedLookup,
    /// The command that starts the daemon for the same servers.
    pub(crate) start: String,
}

impl Lookup for Inherited {
    fn look_up(&self, source: Source, name: &str) -> Result<Option<String>, String> {
        self.values.look_up(source, name)
    }

    fn advice(&self, variable: &str) -> Option<String> {
        Some(format!(
            "the daemon was started without `{variable}`; set it, run `toolrack daemon stop`, then `{}`",
            self.start
        ))
    }
}

/// The command that starts a daemon for these servers.
pub(crate) fn start_command(config: Option<&Path>, agent: Option<&str>) -> String {
    Aim::at(config, agent).command("toolrack daemon start")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_started_for_the_same_servers_again() {
        let check = |config: Option<&str>, agent, expected: &str| {
            assert_eq!(start_command(config.map(Path::new), agent), expected);
        };
        check(None, None, "toolrack daemon start");
        check(Some("/c.toml"), Some("a"), "toolrack --config /c.toml --agent a daemon start");
        check(Some("/my c.toml"), None, "toolrack --config '/my c.toml' daemon start");
    }
}
