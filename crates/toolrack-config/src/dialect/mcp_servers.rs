//! `mcpServers`: the format that most tools share, with the aliases of each tool.
//!
//! A bare `timeout` is in milliseconds, except in files of Cline and Roo, where it is in seconds.

use std::collections::HashMap;

use super::is_bare_map;
use super::{Dialect, servers, transport_kind};
use crate::config_file::{Agent, ConfigFile, ServerEntry};
use crate::diagnostics::Diagnostics;
use crate::dialect::variables::{self, ReferenceSyntax};
use crate::keys::{KeyType, TableKeys, alias, foreign, foreign_table};
use crate::raw_server::RawServer;
use crate::table_reader::{self, TableReader, join};
use crate::tree::{Member, Node};

static SERVER: TableKeys = foreign_table(
    "mcpServers",
    &[
        foreign("type", KeyType::Text),
        alias("transport", KeyType::Text, "type"),
        alias("transportType", KeyType::Text, "type"),
        foreign("command", KeyType::Template),
        foreign("args", KeyType::Templates),
        foreign("env", KeyType::ScalarMap),
        foreign("cwd", KeyType::Template),
        foreign("url", KeyType::Template),
        alias("serverUrl", KeyType::Template, "url"),
        alias("httpUrl", KeyType::Template, "url"),
        alias("baseUrl", KeyType::Template, "url"),
        foreign("headers", KeyType::ScalarMap),
        foreign("disabled", KeyType::Flag),
        foreign("enabled", KeyType::Flag),
        foreign("timeout", KeyType::Millis),
        alias("allowedTools", KeyType::Texts, "allow"),
        alias("enabledTools", KeyType::Texts, "allow"),
        alias("includeTools", KeyType::Texts, "allow"),
        alias("disabledTools", KeyType::Texts, "deny"),
        alias("blockedTools", KeyType::Texts, "deny"),
        alias("excludeTools", KeyType::Texts, "deny"),
        // Approval and display settings do not belong to a server config.
        foreign("alwaysAllow", KeyType::Ignored),
        foreign("autoApprove", KeyType::Ignored),
        foreign("trust", KeyType::Ignored),
        foreign("alwaysLoad", KeyType::Ignored),
        foreign("name", KeyType::Ignored),
        foreign("description", KeyType::Ignored),
        foreign("icon", KeyType::Ignored),
    ],
);

pub(super) fn read(diagnostics: &mut Diagnostics<'_>, root: &Node, dialect: Dialect) -> ConfigFile {
    let file = ConfigFile::default();
    if root.get("mcpServers").is_none() && is_bare_map(root) {
        return ConfigFile { defaults: list(diagnostics, "", Some(root), dialect), ..file };
    }
    let projects = root.get("projects").map(Node::members).unwrap_or_default();
    let map = root.get("mcpServers");
    let defaults = match map {
        // A file of Claude Code may have servers in projects only; the missing map is
        // no mistake then.
        None if !projects.is_empty() => Vec::new(),
        _ => list(diagnostics, "mcpServers", map, dialect),
    };
    // Claude Code keeps servers of a project beside the user's, and they take precedence, as an
    // agent's do.
    let agents = projects.iter().filter_map(|item| project(diagnostics, item, dialect)).collect();
    ConfigFile { defaults, agents, ..file }
}

fn project(diagnostics: &mut Diagnostics<'_>, project: &Member, dialect: Dialect) -> Option<Agent> {
    let map =
        project.value.get("mcpServers").filter(|mcp_servers| !mcp_servers.members().is_empty())?;
    let path = join(&join("projects", &project.key), "mcpServers");
    Some(Agent { id: project.key.clone(), mcp: list(diagnostics, &path, Some(map), dialect) })
}

fn list(
    diagnostics: &mut Diagnostics<'_>,
    path: &str,
    map: Option<&Node>,
    dialect: Dialect,
) -> Vec<ServerEntry> {
    servers(diagnostics, path, map, |diagnostics, path, member| {
        let mut fields = table_reader::read(diagnostics, &SERVER, path, &member.value);
        let mut server = server(diagnostics, &mut fields, dialect);
        let nothing = HashMap::new();
        let syntax = match dialect {
            Dialect::ClaudeDesktop => ReferenceSyntax::Plain,
            Dialect::ClaudeCode => ReferenceSyntax::Shell,
            _ => ReferenceSyntax::Editor(&nothing),
        };
        variables::server(diagnostics, &mut server, syntax);
        Some(server)
    })
}

fn server(
    diagnostics: &mut Diagnostics<'_>,
    fields: &mut TableReader<'_>,
    dialect: Dialect,
) -> RawServer {
    let mut server = RawServer::from_table(fields);
    server.transport = transport_kind(diagnostics, fields);
    // Some tools write an empty command beside a URL.
    if server.url.is_some() && server.command.take_if(|command| command.is_empty()).is_some() {
        server.locations.remove("command");
    }
    let settings = &mut server.settings;
    let is_number = fields.node.get("timeout").is_some_and(|timeout| timeout.text().is_none());
    if dialect == Dialect::Cline && is_number {
        // The key is read as milliseconds; Cline and Roo write seconds.
        settings.timeout = settings.timeout.map(|timeout| timeout * 1000);
    }
    if dialect == Dialect::ClaudeCode {
        // In that tool it ends the call regardless of progress.
        settings.max_timeout = settings.timeout;
    }
    server
}
