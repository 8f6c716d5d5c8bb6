//! Reader of `toolrack.toml`, also Spacebot's format: `[defaults]`, `[[defaults.mcp]]`, `[[agents]]`,
//! `[[agents.mcp]]`.
//!
//! Other programs keep their settings in the same file and tables. Unknown keys at the top, in `[defaults]`
//! and in `[[agents]]` are ignored unless they look like misspelled ones of ours. The server tables are
//! ours alone, so every unknown key there is reported.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::config_file::{Agent, ConfigFile, ServerEntry, Settings};
use crate::diagnostics::{DiagnosticKind, Diagnostics, Parsed};
use crate::keys;
use crate::raw_server::{RawServer, TransportKind};
use crate::server::{Package, PackageKind, Pin, Sandbox, StartMode};
use crate::table_reader::{self, TableReader};
use crate::tree::Node;

/// Top-level keys of other tools for servers.
const MISPLACED: [&str; 4] = ["mcp", "mcpServers", "mcp_servers", "servers"];

pub(crate) fn read(diagnostics: &mut Diagnostics<'_>, root: &Node) -> ConfigFile {
    let mut file = table_reader::read(diagnostics, &keys::FILE, "", root);
    for key in MISPLACED.iter().filter(|misplaced| file.has(misplaced)) {
        let message = "has no effect here; servers are written as `[[defaults.mcp]]`";
        diagnostics.warn(DiagnosticKind::UnknownKey, file.location(key), key, message);
    }
    let mut config = ConfigFile::default();
    if let Some(mut defaults) = file.table("defaults") {
        config.settings = Settings::from_table(&mut defaults);
        config.name_separator = separator(diagnostics, &mut defaults);
        config.name_limit = limit(diagnostics, &mut defaults);
        config.defaults = servers(diagnostics, defaults.tables("mcp"));
    }
    let mut known: HashMap<String, usize> = HashMap::new();
    for fields in file.tables("agents") {
        config.agents.extend(agent(diagnostics, fields, &mut known));
    }
    config
}

/// Reads one server table without a file, such as one of the HTTP API. Its diagnostics have no useful position.
pub fn read_server(table: &Map<String, Value>) -> Parsed<Option<ServerEntry>> {
    let mut diagnostics = Diagnostics::new("", "");
    let node = Node::from_json_object(table, 0);
    let mut fields = table_reader::read(&mut diagnostics, &keys::SERVER, "", &node);
    let value = server(&mut diagnostics, &mut fields).accept(&mut diagnostics);
    Parsed { value, diagnostics: diagnostics.into_vec() }
}

fn agent(
    diagnostics: &mut Diagnostics<'_>,
    mut fields: TableReader<'_>,
    known: &mut HashMap<String, usize>,
) -> Option<Agent> {
    // Before the id is checked, so that servers of an agent without an id are reported too.
    let mcp = servers(diagnostics, fields.tables("mcp"));
    let Some(id) = fields.text("id") else {
        if !fields.has("id") {
            let message = "is required";
            diagnostics.error(
                DiagnosticKind::Missing,
                fields.node.at,
                &fields.field("id"),
                message,
            );
        }
        return None;
    };
    if let Some(first) = known.insert(id.clone(), fields.location("id")) {
        let line = diagnostics.position(first).line;
        let message = format!("`{id}` is already used by the agent on line {line}; use unique ids");
        fields.error(diagnostics, DiagnosticKind::Duplicate, "id", &message);
        return None;
    }
    Some(Agent { id, mcp })
}

fn servers(diagnostics: &mut Diagnostics<'_>, tables: Vec<TableReader<'_>>) -> Vec<ServerEntry> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut servers = Vec::new();
    for mut fields in tables {
        let place = (fields.location("name"), fields.field("name"));
        let server = server(diagnostics, &mut fields);
        let first = known.get(&server.name).copied();
        known.entry(server.name.clone()).or_insert(place.0);
        if let (Some(first), false) = (first, server.name.is_empty()) {
            let line = diagnostics.position(first).line;
            let message = format!(
                "`{}` is already used by the server on line {line}; rename one of them",
                server.name
            );
            diagnostics.error(DiagnosticKind::Duplicate, place.0, &place.1, &message);
        } else {
            servers.extend(server.accept(diagnostics));
        }
    }
    servers
}

fn server(diagnostics: &mut Diagnostics<'_>, fields: &mut TableReader<'_>) -> RawServer {
    let mut server = RawServer::from_table(fields);
    server.table = Some(fields.node.to_json_object());
    server.id = uuid(diagnostics, fields);
    server.transport = fields.text("transport").map(|text| match text.as_str() {
        "stdio" => TransportKind::Stdio,
        _ => TransportKind::Http,
    });
    if let Some(package) = fields.table("package") {
        let locations =
            package.locations.iter().map(|(field, at)| (format!("package.{field}"), *at));
        server.locations.extend(locations);
        server.package = self::package(diagnostics, package);
    }
    server
}

fn uuid(diagnostics: &mut Diagnostics<'_>, fields: &mut TableReader<'_>) -> Option<String> {
    let id = fields.text("id")?;
    let groups: Vec<usize> = id.split('-').map(str::len).collect();
    let hexadecimal = id.chars().all(|character| character == '-' || character.is_ascii_hexdigit());
    if groups == [8, 4, 4, 4, 12] && hexadecimal {
        return Some(id);
    }
    let message = "is not a valid UUID; remove it, and `toolrack` assigns one";
    fields.error(diagnostics, DiagnosticKind::Invalid, "id", message);
    None
}

fn package(diagnostics: &mut Diagnostics<'_>, mut fields: TableReader<'_>) -> Option<Package> {
    for key in ["type", "identifier"].iter().filter(|value| !fields.has(value)) {
        let message = "is required for a package";
        fields.error(diagnostics, DiagnosticKind::Missing, key, message);
    }
    let word = fields.text("type")?;
    let kind = PackageKind::ALL.into_iter().find(|all| all.as_str() == word)?;
    let (identifier, url) = (fields.text("identifier")?, fields.text("url"));
    Some(Package {
        kind,
        // An HTTP package may have a registry name beside its URL.
        identifier: url.filter(|_| kind == PackageKind::Http).unwrap_or(identifier),
        version: fields.text("version"),
        args: fields.texts("args").unwrap_or_default(),
        program: fields.text("program"),
        runtime_args: fields.texts("runtime_args").unwrap_or_default(),
    })
}

impl Settings {
    /// Settings of a table. A table that does not allow a setting lacks its key.
    pub(crate) fn from_table(fields: &mut TableReader<'_>) -> Self {
        Self {
            timeout: fields.time("timeout"),
            max_timeout: fields.time("max_timeout"),
            startup_timeout: fields.time("startup_timeout"),
            install_timeout: fields.time("install_timeout"),
            start: fields.text("start").map(|text| match text.as_str() {
                "lazy" => StartMode::Lazy,
                _ => StartMode::Eager,
            }),
            idle: fields.time_or_never("idle"),
            max_output_bytes: fields.count("max_output_bytes"),
            max_message_bytes: fields.count("max_message_bytes"),
            allow: fields.texts("allow"),
            deny: fields.texts("deny"),
            repeatable: fields.texts("repeatable"),
            inherit_env: fields.flag("inherit_env"),
            pin: fields.flag("pin").map(|pin| if pin { Pin::Hold } else { Pin::Show }),
            sandbox: fields.table("sandbox").map(|mut sandbox| Sandbox {
                read: sandbox.texts("read"),
                write: sandbox.texts("write").unwrap_or_default(),
                net: sandbox.flag("net").unwrap_or(true),
            }),
        }
    }
}

fn separator(diagnostics: &mut Diagnostics<'_>, fields: &mut TableReader<'_>) -> Option<String> {
    let separator = fields.text("name_separator")?;
    let letter = |value: char| value.is_ascii_alphanumeric() || matches!(value, '_' | '-');
    if separator.len() <= 4 && separator.chars().all(letter) {
        return Some(separator);
    }
    let message = "must be one to four letters, digits, `_` or `-`";
    fields.error(diagnostics, DiagnosticKind::Invalid, "name_separator", message);
    None
}

fn limit(diagnostics: &mut Diagnostics<'_>, fields: &mut TableReader<'_>) -> Option<usize> {
    let limit = fields.count("name_limit")?;
    if (24..=256).contains(&limit) {
        return Some(limit);
    }
    fields.error(diagnostics, DiagnosticKind::Invalid, "name_limit", "must be from 24 to 256");
    None
}
