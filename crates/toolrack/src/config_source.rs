//! Config source: the config file with the selection of servers.
//!
//! **Invariant:** a file is accepted as a whole or not at all, with all its diagnostics.

use std::path::{Path, PathBuf};

use toolrack_config::{ConfigFile, Diagnostic, McpServerConfig, read};
use toolrack_platform::read_at_most;

use crate::builder::{OpenError, join_lines};

/// Maximum size of a config file.
const CONFIG_LIMIT_BYTES: u64 = 16 << 20;

/// Selects the servers of one agent, and adds servers and rules from code.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Agent id. `None` selects the default servers.
    pub(crate) agent: Option<String>,
    /// Servers from code. They replace servers of the file with the same name.
    pub(crate) servers: Vec<McpServerConfig>,
    /// Patterns denied on every server.
    pub(crate) deny: Vec<String>,
}

impl Selection {
    /// Validates the names of servers from code.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let diagnostics: Vec<Diagnostic> =
            self.servers.iter().filter_map(McpServerConfig::name_fault).collect();
        if diagnostics.is_empty() { Ok(()) } else { Err(OpenError::Invalid { diagnostics }) }
    }

    /// The agent's servers of `file`, merged with those from code.
    pub(crate) fn servers(&self, file: &ConfigFile) -> Vec<McpServerConfig> {
        let mut servers = match &self.agent {
            Some(agent) => file.resolve(agent),
            None => file.resolve_defaults(),
        };
        for server in &self.servers {
            match servers.iter_mut().find(|configured| configured.name == server.name) {
                Some(known) => *known = server.clone(),
                None => servers.push(server.clone()),
            }
        }
        for server in &mut servers {
            // Added to the rules of the file, never in place of them.
            server.deny.extend(self.deny.iter().cloned());
        }
        servers
    }

    /// Like [`servers`](Self::servers), for a changed file. The error lists all diagnostics.
    pub(crate) fn reload(&self, path: &Path, text: &str) -> Result<Vec<McpServerConfig>, String> {
        let (file, _warnings) = parse(path, text).map_err(|faults| join_lines(&faults))?;
        Ok(self.servers(&file))
    }
}

/// Reads a file. Returns its warnings too.
pub(crate) fn load(path: &Path) -> Result<(ConfigFile, Vec<Diagnostic>), OpenError> {
    let unreadable = |source| OpenError::Unreadable { path: PathBuf::from(path), source };
    let text = read_at_most(path, CONFIG_LIMIT_BYTES).map_err(unreadable)?;
    parse(path, &text).map_err(|diagnostics| OpenError::Invalid { diagnostics })
}

/// Parses a file and logs its warnings.
fn parse(path: &Path, text: &str) -> Result<(ConfigFile, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (file, warnings) = read(&path.display().to_string(), text).accept()?;
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    Ok((file, warnings))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        [[defaults.mcp]]
        name = \"files\"
        transport = \"stdio\"
        command = \"one\"
        deny = [\"write_*\"]

        [[agents]]
        id = \"main\"
        [[agents.mcp]]
        name = \"mail\"
        transport = \"stdio\"
        command = \"two\"
    ";

    #[track_caller]
    fn check(selection: Selection, expected: &[(&str, &[&str])]) {
        let servers = selection.reload(Path::new("rack.toml"), FILE).unwrap();
        let merged: Vec<_> =
            servers.iter().map(|server| (server.name.as_str(), server.deny.clone())).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, deny)| (*name, deny.iter().map(|pattern| (*pattern).to_owned()).collect()))
            .collect();
        assert_eq!(merged, expected);
    }

    #[test]
    fn selection_merges_file_agent_and_code() {
        let all = Selection::default();
        check(all.clone(), &[("files", &["write_*"])]);
        let main = Selection { agent: Some("main".to_owned()), ..all.clone() };
        check(main, &[("files", &["write_*"]), ("mail", &[])]);
        let unknown = Selection { agent: Some("unknown".to_owned()), ..all.clone() };
        check(unknown, &[("files", &["write_*"])]);
        let servers = vec![
            McpServerConfig::stdio("files", "other", &[]),
            McpServerConfig::stdio("more", "more", &[]),
        ];
        let added = Selection { servers, deny: vec!["delete_*".to_owned()], ..all };
        check(added, &[("files", &["delete_*"]), ("more", &["delete_*"])]);
    }

    #[test]
    fn every_diagnostic_has_a_line() {
        let text = "[[defaults.mcp]]\nname = \"a\"\n\n[[defaults.mcp]]\nname = 3\n";
        let message = Selection::default().reload(Path::new("rack.toml"), text).unwrap_err();
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines.len() >= 2, "{message}");
        assert!(lines.iter().all(|line| line.starts_with("rack.toml:")), "{message}");
        assert!(lines.iter().any(|line| line.starts_with("rack.toml:1:")), "{message}");
        assert!(lines.iter().any(|line| line.starts_with("rack.toml:5:")), "{message}");
    }
}
