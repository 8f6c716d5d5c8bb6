//! A config file as the servers of one agent.
//!
//! **Invariant:** a file is taken whole or not at all, and whatever is wrong with it is said at once.

use std::path::{Path, PathBuf};

use toolrack_config::{ConfigFile, Fault, McpServerConfig, read};
use toolrack_manager::read_at_most;

use crate::error::{Lines, OpenError};

/// The longest config file that is read.
const FILE_LIMIT_BYTES: u64 = 16 << 20;

/// Whose servers are wanted, and what is added to every reading of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Without one, the servers that every agent has.
    pub(crate) agent: Option<String>,
    /// Servers from code. One with the name of a server in the file takes its place.
    pub(crate) servers: Vec<McpServerConfig>,
    /// Patterns that are denied on every server.
    pub(crate) deny: Vec<String>,
}

impl Selection {
    /// Refuses servers from code whose names no file may have.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let faults: Vec<Fault> =
            self.servers.iter().filter_map(McpServerConfig::name_fault).collect();
        if faults.is_empty() { Ok(()) } else { Err(OpenError::Faulty { faults }) }
    }

    /// The servers that `file` means for the agent, with what was added in code.
    pub(crate) fn servers(&self, file: &ConfigFile) -> Vec<McpServerConfig> {
        let mut servers = match &self.agent {
            Some(agent) => file.resolve(agent),
            None => file.resolve_defaults(),
        };
        for server in &self.servers {
            match servers.iter_mut().find(|it| it.name == server.name) {
                Some(place) => *place = server.clone(),
                None => servers.push(server.clone()),
            }
        }
        for server in &mut servers {
            server.deny.extend(self.deny.iter().cloned());
        }
        servers
    }

    /// The same for the text of a file that has changed. The error says everything that is wrong.
    pub(crate) fn reread(&self, path: &Path, text: &str) -> Result<Vec<McpServerConfig>, String> {
        let accepted = parse(path, text).map_err(|faults| Lines(&faults).to_string())?;
        let (file, warnings) = accepted;
        warn(&warnings);
        Ok(self.servers(&file))
    }
}

/// Reads a file. Gives what is odd about it besides.
pub(crate) fn load(path: &Path) -> Result<(ConfigFile, Vec<Fault>), OpenError> {
    let unreadable = |source| OpenError::Unreadable { path: PathBuf::from(path), source };
    let text = read_at_most(path, FILE_LIMIT_BYTES).map_err(unreadable)?;
    let (file, warnings) = parse(path, &text).map_err(|faults| OpenError::Faulty { faults })?;
    warn(&warnings);
    Ok((file, warnings))
}

fn parse(path: &Path, text: &str) -> Result<(ConfigFile, Vec<Fault>), Vec<Fault>> {
    read(&path.display().to_string(), text).accept()
}

fn warn(warnings: &[Fault]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
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
        let servers = selection.reread(Path::new("rack.toml"), FILE).unwrap();
        let shown: Vec<_> = servers.iter().map(|it| (it.name.as_str(), it.deny.clone())).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, deny)| (*name, deny.iter().map(|it| (*it).to_owned()).collect()))
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_selection_is_the_file_for_one_agent_and_what_code_adds() {
        let all = Selection::default();
        check(all.clone(), &[("files", &["write_*"])]);
        let main = Selection { agent: Some("main".to_owned()), ..all.clone() };
        check(main, &[("files", &["write_*"]), ("mail", &[])]);
        let unknown = Selection { agent: Some("nobody".to_owned()), ..all.clone() };
        check(unknown, &[("files", &["write_*"])]);
        let servers = vec![
            McpServerConfig::stdio("files", "other", &[]),
            McpServerConfig::stdio("more", "more", &[]),
        ];
        let added = Selection { servers, deny: vec!["delete_*".to_owned()], ..all };
        check(added, &[("files", &["delete_*"]), ("more", &["delete_*"])]);
    }

    #[test]
    fn every_fault_is_told_with_its_place() {
        let text = "[[defaults.mcp]]\nname = \"a\"\n\n[[defaults.mcp]]\nname = 3\n";
        let message = Selection::default().reread(Path::new("rack.toml"), text).unwrap_err();
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines.len() >= 2, "{message}");
        assert!(lines.iter().all(|it| it.starts_with("rack.toml:")), "{message}");
        assert!(lines.iter().any(|it| it.starts_with("rack.toml:1:")), "{message}");
        assert!(lines.iter().any(|it| it.starts_with("rack.toml:5:")), "{message}");
    }
}
