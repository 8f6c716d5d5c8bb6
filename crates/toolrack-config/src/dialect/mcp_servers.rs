//! `mcpServers`: the format that most tools share, with the aliases of each tool.
//!
//! A bare `timeout` is in milliseconds, except in files of Cline and Roo, where it is in seconds.

use std::collections::HashMap;

use super::is_bare_map;
use super::{Dialect, servers, transport_kind};
use crate::config_file::{Agent, ConfigFile, ServerEntry};
use crate::diagnostics::Diagnostics;
use crate::dialect::variables::{self, ReferenceSyntax};
use crate::keys::{Key, KeyType, TableKeys, UnknownKeys};
use crate::raw_server::RawServer;
use crate::server::EnvValue;
use crate::table_reader::{self, TableReader, join};
use crate::tree::{Member, Node};

const fn key(name: &'static str, kind: KeyType) -> Key {
    Key { name, kind, default: "", doc: "" }
}

static SERVER: TableKeys = TableKeys {
    title: "mcpServers",
    unknown_keys: UnknownKeys::NotImported,
    keys: &[
        key("type", KeyType::Text),
        key("transport", KeyType::Text),
        key("transportType", KeyType::Text),
        key("command", KeyType::Template),
        key("args", KeyType::Templates),
        key("env", KeyType::ScalarMap),
        key("cwd", KeyType::Template),
        key("url", KeyType::Template),
        key("serverUrl", KeyType::Template),
        key("httpUrl", KeyType::Template),
        key("baseUrl", KeyType::Template),
        key("headers", KeyType::ScalarMap),
        key("disabled", KeyType::Flag),
        key("enabled", KeyType::Flag),
        key("timeout", KeyType::Millis),
        key("allowedTools", KeyType::Texts),
        key("enabledTools", KeyType::Texts),
        key("includeTools", KeyType::Texts),
        key("disabledTools", KeyType::Texts),
        key("blockedTools", KeyType::Texts),
        key("excludeTools", KeyType::Texts),
        // Approval and display settings do not belong to a server config.
        key("alwaysAllow", KeyType::Ignored),
        key("autoApprove", KeyType::Ignored),
        key("trust", KeyType::Ignored),
        key("alwaysLoad", KeyType::Ignored),
        key("name", KeyType::Ignored),
        key("description", KeyType::Ignored),
        key("icon", KeyType::Ignored),
    ],
};

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
    let mut server = RawServer::from_table(fields, "");
    let word = first(["type", "transport", "transportType"], |value| fields.text(value));
    server.transport =
        transport_kind(diagnostics, &fields.field("type"), fields.location("type"), word);
    server.command = fields.text("command").filter(|text| !text.is_empty());
    server.args = fields.texts("args").unwrap_or_default();
    server.env = texts(fields.map("env"));
    server.cwd = fields.text("cwd");
    for theirs in ["serverUrl", "httpUrl", "baseUrl"] {
        server.rename_location(theirs, "url");
    }
    server.url = first(["url", "serverUrl", "httpUrl", "baseUrl"], |value| fields.text(value));
    server.headers = fields.map("headers");
    server.enabled = match (fields.flag("enabled"), fields.flag("disabled")) {
        (_, Some(disabled)) => Some(!disabled),
        (enabled, None) => enabled,
    };
    let settings = &mut server.settings;
    settings.timeout = fields.time("timeout").map(|timeout| match dialect {
        // The key is read as milliseconds; Cline and Roo write seconds.
        Dialect::Cline => timeout * 1000,
        _ => timeout,
    });
    if dialect == Dialect::ClaudeCode {
        // In that tool it ends the call regardless of progress.
        settings.max_timeout = settings.timeout;
    }
    settings.allow =
        first(["allowedTools", "enabledTools", "includeTools"], |value| fields.texts(value));
    settings.deny =
        first(["disabledTools", "blockedTools", "excludeTools"], |value| fields.texts(value));
    server
}

/// The first of several aliases that has a value.
pub(super) fn first<const N: usize, T>(
    names: [&str; N],
    value: impl FnMut(&str) -> Option<T>,
) -> Option<T> {
    names.into_iter().find_map(value)
}

pub(super) fn texts(map: Vec<(String, String)>) -> Vec<(String, EnvValue)> {
    map.into_iter().map(|(name, text)| (name, EnvValue::Text(text))).collect()
}
