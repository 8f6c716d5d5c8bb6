//! `mcpServers`: the shape that most tools share, with the aliases each of them has added.
//!
//! A bare `timeout` is milliseconds, except in files of Cline and Roo, where it is seconds.

use std::collections::HashMap;

use super::detect::is_bare_map;
use super::variables::{self, Manner};
use super::{Dialect, servers, way};
use crate::config_file::{Agent, ConfigFile, ServerEntry};
use crate::diagnostics::Notes;
use crate::keys::{Key, Kind, Scope, Strangers};
use crate::raw_server::Draft;
use crate::server::EnvValue;
use crate::table_reader::{self, Fields, join};
use crate::tree::{Member, Node};

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, default: "", doc: "" }
}

static SERVER: Scope = Scope {
    title: "mcpServers",
    strangers: Strangers::NotTakenOver,
    keys: &[
        key("type", Kind::Text),
        key("transport", Kind::Text),
        key("transportType", Kind::Text),
        key("command", Kind::Template),
        key("args", Kind::Templates),
        key("env", Kind::ScalarMap),
        key("cwd", Kind::Template),
        key("url", Kind::Template),
        key("serverUrl", Kind::Template),
        key("httpUrl", Kind::Template),
        key("baseUrl", Kind::Template),
        key("headers", Kind::ScalarMap),
        key("disabled", Kind::Flag),
        key("enabled", Kind::Flag),
        key("timeout", Kind::Millis),
        key("allowedTools", Kind::Texts),
        key("enabledTools", Kind::Texts),
        key("includeTools", Kind::Texts),
        key("disabledTools", Kind::Texts),
        key("blockedTools", Kind::Texts),
        key("excludeTools", Kind::Texts),
        // Who is asked before a call, and what it looks like, is not for a config of servers.
        key("alwaysAllow", Kind::Ignored),
        key("autoApprove", Kind::Ignored),
        key("trust", Kind::Ignored),
        key("alwaysLoad", Kind::Ignored),
        key("name", Kind::Ignored),
        key("description", Kind::Ignored),
        key("icon", Kind::Ignored),
    ],
};

pub(super) fn read(notes: &mut Notes<'_>, root: &Node, dialect: Dialect) -> ConfigFile {
    let file = ConfigFile::default();
    if root.get("mcpServers").is_none() && is_bare_map(root) {
        return ConfigFile { defaults: list(notes, "", Some(root), dialect), ..file };
    }
    let projects = root.get("projects").map(Node::members).unwrap_or_default();
    let map = root.get("mcpServers");
    let defaults = match map {
        None if !projects.is_empty() => Vec::new(),
        _ => list(notes, "mcpServers", map, dialect),
    };
    // Claude Code keeps servers of one project beside those of the user, and they win there, as those of
    // an agent do.
    let agents = projects.iter().filter_map(|it| project(notes, it, dialect)).collect();
    ConfigFile { defaults, agents, ..file }
}

fn project(notes: &mut Notes<'_>, project: &Member, dialect: Dialect) -> Option<Agent> {
    let map = project.value.get("mcpServers").filter(|it| !it.members().is_empty())?;
    let path = join(&join("projects", &project.key), "mcpServers");
    Some(Agent { id: project.key.clone(), mcp: list(notes, &path, Some(map), dialect) })
}

fn list(
    notes: &mut Notes<'_>,
    path: &str,
    map: Option<&Node>,
    dialect: Dialect,
) -> Vec<ServerEntry> {
    servers(notes, path, map, |notes, path, member| {
        let mut fields = table_reader::read(notes, &SERVER, path, &member.value);
        let mut draft = draft(notes, &mut fields, dialect);
        let nothing = HashMap::new();
        let manner = match dialect {
            Dialect::ClaudeDesktop => Manner::Plain,
            Dialect::ClaudeCode => Manner::Shell,
            _ => Manner::Editor(&nothing),
        };
        variables::draft(notes, &mut draft, manner);
        Some(draft)
    })
}

fn draft(notes: &mut Notes<'_>, fields: &mut Fields, dialect: Dialect) -> Draft {
    let mut draft = Draft::of(fields, "");
    let word = first(["type", "transport", "transportType"], |it| fields.text(it));
    draft.transport = way(notes, &fields.field("type"), fields.place("type"), word);
    draft.command = fields.text("command").filter(|it| !it.is_empty());
    draft.args = fields.texts("args").unwrap_or_default();
    draft.env = texts(fields.map("env"));
    draft.cwd = fields.text("cwd");
    for theirs in ["serverUrl", "httpUrl", "baseUrl"] {
        draft.renamed(theirs, "url");
    }
    draft.url = first(["url", "serverUrl", "httpUrl", "baseUrl"], |it| fields.text(it));
    draft.headers = fields.map("headers");
    draft.enabled = match (fields.flag("enabled"), fields.flag("disabled")) {
        (_, Some(disabled)) => Some(!disabled),
        (enabled, None) => enabled,
    };
    let settings = &mut draft.settings;
    settings.timeout = fields.time("timeout").map(|it| match dialect {
        Dialect::Cline => it * 1000,
        _ => it,
    });
    if dialect == Dialect::ClaudeCode {
        // There it is the end of a call, whatever progress the server shows.
        settings.max_timeout = settings.timeout;
    }
    settings.allow = first(["allowedTools", "enabledTools", "includeTools"], |it| fields.texts(it));
    settings.deny = first(["disabledTools", "blockedTools", "excludeTools"], |it| fields.texts(it));
    draft
}

/// The first of several names for a key that has a value.
pub(super) fn first<const N: usize, T>(
    names: [&str; N],
    value: impl FnMut(&str) -> Option<T>,
) -> Option<T> {
    names.into_iter().find_map(value)
}

pub(super) fn texts(map: Vec<(String, String)>) -> Vec<(String, EnvValue)> {
    map.into_iter().map(|(name, text)| (name, EnvValue::Text(text))).collect()
}
