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
use crate::table_reader::{self, TableReader, join};
use crate::tree::Node;

/// Top-level keys of other tools for servers.
const MISPLACED: [&str; 4] = ["mcp", "mcpServers", "mcp_servers", "servers"];

pub(crate) fn read(diagnostics: &Diagnostics<'_>, root: &Node) -> ConfigFile {
    let mut file = table_reader::read(diagnostics, &keys::FILE, "", root);
    for key in MISPLACED.iter().filter(|misplaced| file.place.has(misplaced)) {
        let message = "has no effect here; servers are written as `[[defaults.mcp]]`";
        file.place.warn(DiagnosticKind::UnknownKey, key, message);
    }
    let mut config = ConfigFile::default();
    if let Some(mut defaults) = file.table("defaults") {
        config.settings = Settings::from_table(&mut defaults);
        config.name_separator = separator(&mut defaults);
        config.name_limit = limit(&mut defaults);
        config.defaults = servers(defaults.tables("mcp"));
    }
    let mut known: HashMap<String, usize> = HashMap::new();
    for fields in file.tables("agents") {
        config.agents.extend(agent(fields, &mut known));
    }
    config
}

/// Reads one server table without a file, such as one of the HTTP API. Its diagnostics have no useful position.
pub fn read_server(table: &Map<String, Value>) -> Parsed<Option<ServerEntry>> {
    let diagnostics = Diagnostics::new("", "");
    let node = Node::from_json_object(table, 0);
    let mut fields = table_reader::read(&diagnostics, &keys::SERVER, "", &node);
    let value = server(&mut fields).accept();
    Parsed { value, diagnostics: diagnostics.into_vec() }
}

fn agent(mut fields: TableReader<'_, '_>, known: &mut HashMap<String, usize>) -> Option<Agent> {
    // Before the id is checked, so that servers of an agent without an id are reported too.
    let mcp = servers(fields.tables("mcp"));
    let Some(id) = fields.take::<String>("id") else {
        if !fields.place.has("id") {
            fields.place.error(DiagnosticKind::Missing, "id", "is required");
        }
        return None;
    };
    if let Some(first) = known.insert(id.clone(), fields.place.location("id")) {
        let line = fields.place.diagnostics.position(first).line;
        let message = format!("`{id}` is already used by the agent on line {line}; use unique ids");
        fields.place.error(DiagnosticKind::Duplicate, "id", &message);
        return None;
    }
    Some(Agent { id, mcp })
}

fn servers(tables: Vec<TableReader<'_, '_>>) -> Vec<ServerEntry> {
    let mut known: HashMap<String, usize> = HashMap::with_capacity(tables.len());
    let mut servers = Vec::with_capacity(tables.len());
    for mut fields in tables {
        let at = fields.place.location("name");
        let server = server(&mut fields);
        let first = *known.entry(server.name.clone()).or_insert(at);
        if first != at && !server.name.is_empty() {
            let line = fields.place.diagnostics.position(first).line;
            let message = format!(
                "`{}` is already used by the server on line {line}; rename one of them",
                server.name
            );
            fields.place.error(DiagnosticKind::Duplicate, "name", &message);
        } else {
            servers.extend(server.accept());
        }
    }
    servers
}

fn server<'d>(fields: &mut TableReader<'d, '_>) -> RawServer<'d> {
    let mut server = RawServer::from_table(fields);
    server.table = Some(fields.node.clone());
    server.id = uuid(fields);
    let transport: Option<String> = fields.take("transport");
    server.transport = transport.map(|text| match text.as_str() {
        "stdio" => TransportKind::Stdio,
        _ => TransportKind::Http,
    });
    let free = fields.node.members().iter().find(|member| member.key == "config");
    for member in free.iter().flat_map(|free| free.value.members()) {
        if keys::is_setting(&member.key) {
            let path = join(&fields.place.field("config"), &member.key);
            let message = "has no effect in `config`; write it in the entry itself";
            fields.place.diagnostics.warn(DiagnosticKind::Conflict, member.at, &path, message);
        }
    }
    if let Some(package) = fields.table("package") {
        let fields = package.place.fields();
        let fields = fields.map(|(field, at)| (format!("package.{field}").into(), at));
        server.place.locations().extend(fields);
        server.package = self::package(package);
    }
    server
}

fn uuid(fields: &mut TableReader<'_, '_>) -> Option<String> {
    let id: String = fields.take("id")?;
    let groups: Vec<usize> = id.split('-').map(str::len).collect();
    let hexadecimal = id.chars().all(|character| character == '-' || character.is_ascii_hexdigit());
    if groups == [8, 4, 4, 4, 12] && hexadecimal {
        return Some(id);
    }
    let message = "is not a valid UUID; remove it, and `toolrack` assigns one";
    fields.place.error(DiagnosticKind::Invalid, "id", message);
    None
}

fn package(mut fields: TableReader<'_, '_>) -> Option<Package> {
    for key in ["type", "identifier"].iter().filter(|key| !fields.place.has(key)) {
        let message = "is required for a package";
        fields.place.error(DiagnosticKind::Missing, key, message);
    }
    let word: String = fields.take("type")?;
    let kind = PackageKind::ALL.into_iter().find(|kind| kind.as_str() == word)?;
    let (identifier, url) = (fields.take("identifier")?, fields.take("url"));
    let runtime_hint: Option<String> = fields.take("runtime_hint");
    if let Some(hint) = runtime_hint.as_deref().filter(|hint| !kind.runners().contains(hint)) {
        let message = match kind.runners() {
            [] => format!("`{hint}` has no effect on a `{word}` package; remove it"),
            runners => format!(
                "`{hint}` does not run `{word}` packages; use one of `{}`",
                runners.join("`, `")
            ),
        };
        fields.place.error(DiagnosticKind::Invalid, "runtime_hint", &message);
    }
    Some(Package {
        kind,
        // An HTTP package may have a registry name beside its URL.
        identifier: url.filter(|_| kind == PackageKind::Http).unwrap_or(identifier),
        version: fields.take("version"),
        args: fields.take("args").unwrap_or_default(),
        program: fields.take("program"),
        runtime_hint,
        runtime_args: fields.take("runtime_args").unwrap_or_default(),
    })
}

impl Settings {
    /// Settings of a table. A table that does not allow a setting lacks its key.
    pub(crate) fn from_table(fields: &mut TableReader<'_, '_>) -> Self {
        Self {
            timeout: fields.take("timeout"),
            max_timeout: fields.take("max_timeout"),
            startup_timeout: fields.take("startup_timeout"),
            install_timeout: fields.take("install_timeout"),
            start: fields.take("start").map(|text: String| match text.as_str() {
                "lazy" => StartMode::Lazy,
                _ => StartMode::Eager,
            }),
            idle: fields.take("idle"),
            max_output_bytes: fields.take("max_output_bytes"),
            max_message_bytes: fields.take("max_message_bytes"),
            max_list_bytes: fields.take("max_list_bytes"),
            allow: fields.take("allow"),
            deny: fields.take("deny"),
            repeatable: fields.take("repeatable"),
            inherit_env: fields.take("inherit_env"),
            pin: fields.take("pin").map(|pin| if pin { Pin::Hold } else { Pin::Show }),
            sandbox: fields.table("sandbox").map(|mut sandbox| Sandbox {
                read: sandbox.take("read"),
                write: sandbox.take("write").unwrap_or_default(),
                net: sandbox.take("net").unwrap_or(true),
            }),
        }
    }
}

fn separator(fields: &mut TableReader<'_, '_>) -> Option<String> {
    let separator: String = fields.take("name_separator")?;
    let letter = |value: char| value.is_ascii_alphanumeric() || matches!(value, '_' | '-');
    if separator.len() <= 4 && separator.chars().all(letter) {
        return Some(separator);
    }
    let message = "must be one to four letters, digits, `_` or `-`";
    fields.place.error(DiagnosticKind::Invalid, "name_separator", message);
    None
}

fn limit(fields: &mut TableReader<'_, '_>) -> Option<usize> {
    let limit: usize = fields.take("name_limit")?;
    if (24..=256).contains(&limit) {
        return Some(limit);
    }
    fields.place.error(DiagnosticKind::Invalid, "name_limit", "must be from 24 to 256");
    None
}
