//! Our own format, which is also that of Spacebot: `[defaults]`, `[[defaults.mcp]]`, `[[agents]]`,
//! `[[agents.mcp]]`.
//!
//! Other programs keep their settings in the same file and even in the same tables. Keys of theirs are
//! passed over in silence at the top, in `[defaults]` and in `[[agents]]`, unless one looks like ours
//! misspelt. The tables of servers are ours alone, so there every unknown key is named.

use std::collections::HashMap;

use crate::config_file::{Agent, ConfigFile, ServerEntry, Settings};
use crate::diagnostic::FaultKind;
use crate::diagnostics::Notes;
use crate::keys;
use crate::package::{Package, PackageKind};
use crate::raw_server::{Draft, Way};
use crate::server::{Pin, Sandbox, StartMode};
use crate::table_reader::{self, Fields};
use crate::tree::Node;

/// Top-level keys of those who expect servers somewhere else.
const MISPLACED: [&str; 4] = ["mcp", "mcpServers", "mcp_servers", "servers"];

pub(crate) fn read(notes: &mut Notes<'_>, root: &Node) -> ConfigFile {
    let mut file = table_reader::read(notes, &keys::FILE, "", root);
    for key in MISPLACED.iter().filter(|it| file.has(it)) {
        let message = "has no effect here; servers are written as `[[defaults.mcp]]`";
        notes.warn(FaultKind::UnknownKey, file.place(key), key, message);
    }
    let mut config = ConfigFile::default();
    if let Some(mut defaults) = file.table("defaults") {
        config.settings = settings(&mut defaults);
        config.name_separator = separator(notes, &mut defaults);
        config.name_limit = limit(notes, &mut defaults);
        config.defaults = servers(notes, defaults.tables("mcp"));
    }
    let mut known: HashMap<String, usize> = HashMap::new();
    for fields in file.tables("agents") {
        config.agents.extend(agent(notes, fields, &mut known));
    }
    config
}

fn agent(
    notes: &mut Notes<'_>,
    mut fields: Fields,
    known: &mut HashMap<String, usize>,
) -> Option<Agent> {
    let mcp = servers(notes, fields.tables("mcp"));
    let Some(id) = fields.text("id") else {
        if !fields.has("id") {
            let message = "is required, so that the agent can be told from others";
            notes.error(FaultKind::Missing, fields.at, &fields.field("id"), message);
        }
        return None;
    };
    if let Some(first) = known.insert(id.clone(), fields.place("id")) {
        let line = notes.position(first).line;
        let message =
            format!("`{id}` is already the agent of line {line}; give them different ids");
        notes.error(FaultKind::Duplicate, fields.place("id"), &fields.field("id"), &message);
        return None;
    }
    Some(Agent { id, mcp })
}

fn servers(notes: &mut Notes<'_>, tables: Vec<Fields>) -> Vec<ServerEntry> {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut servers = Vec::new();
    for mut fields in tables {
        let place = (fields.place("name"), fields.field("name"));
        let draft = draft(notes, &mut fields);
        let first = known.get(&draft.name).copied();
        known.entry(draft.name.clone()).or_insert(place.0);
        if let (Some(first), false) = (first, draft.name.is_empty()) {
            let line = notes.position(first).line;
            let message = format!(
                "`{}` is already the server of line {line}; rename one of them",
                draft.name
            );
            notes.error(FaultKind::Duplicate, place.0, &place.1, &message);
        } else {
            servers.extend(draft.accept(notes));
        }
    }
    servers
}

fn draft(notes: &mut Notes<'_>, fields: &mut Fields) -> Draft {
    let name = fields.text("name").unwrap_or_default();
    let mut draft = Draft::of(fields, &name);
    draft.id = uuid(notes, fields);
    draft.enabled = fields.flag("enabled");
    draft.transport = fields.text("transport").map(|it| match it.as_str() {
        "stdio" => Way::Process,
        _ => Way::Endpoint,
    });
    draft.command = fields.text("command");
    draft.args = fields.texts("args").unwrap_or_default();
    draft.env = fields.env("env");
    draft.cwd = fields.text("cwd");
    draft.url = fields.text("url");
    draft.headers = fields.map("headers");
    draft.settings = settings(fields);
    if let Some(package) = fields.table("package") {
        let places = package.places.iter().map(|(field, at)| (format!("package.{field}"), *at));
        draft.places.extend(places.collect::<Vec<_>>());
        draft.package = self::package(notes, package);
    }
    draft
}

fn uuid(notes: &mut Notes<'_>, fields: &mut Fields) -> Option<String> {
    let id = fields.text("id")?;
    let groups: Vec<usize> = id.split('-').map(str::len).collect();
    let hexadecimal = id.chars().all(|it| it == '-' || it.is_ascii_hexdigit());
    if groups == [8, 4, 4, 4, 12] && hexadecimal {
        return Some(id);
    }
    let message = "is no UUID; leave it out, and `toolrack` assigns one";
    notes.error(FaultKind::Invalid, fields.place("id"), &fields.field("id"), message);
    None
}

fn package(notes: &mut Notes<'_>, mut fields: Fields) -> Option<Package> {
    for key in ["type", "identifier"].iter().filter(|it| !fields.has(it)) {
        let message = "is required for a package";
        notes.error(FaultKind::Missing, fields.at, &fields.field(key), message);
    }
    let word = fields.text("type")?;
    let kind = PackageKind::ALL.into_iter().find(|it| it.word() == word)?;
    let (identifier, url) = (fields.text("identifier")?, fields.text("url"));
    Some(Package {
        kind,
        // An endpoint may have a name in a registry beside the URL by which it is reached.
        identifier: url.filter(|_| kind == PackageKind::Http).unwrap_or(identifier),
        version: fields.text("version"),
        args: fields.texts("args").unwrap_or_default(),
        program: fields.text("program"),
        runtime_args: fields.texts("runtime_args").unwrap_or_default(),
    })
}

/// The settings that a table has. Tables that cannot have some of them do not have those keys.
fn settings(fields: &mut Fields) -> Settings {
    Settings {
        timeout: fields.time("timeout"),
        max_timeout: fields.time("max_timeout"),
        startup_timeout: fields.time("startup_timeout"),
        install_timeout: fields.time("install_timeout"),
        start: fields.text("start").map(|it| match it.as_str() {
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
        pin: fields.flag("pin").map(|it| if it { Pin::Hold } else { Pin::Show }),
        sandbox: fields.table("sandbox").map(|mut it| Sandbox {
            read: it.texts("read"),
            write: it.texts("write").unwrap_or_default(),
            net: it.flag("net").unwrap_or(true),
        }),
    }
}

fn separator(notes: &mut Notes<'_>, fields: &mut Fields) -> Option<String> {
    let separator = fields.text("name_separator")?;
    let letter = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    if separator.len() <= 4 && separator.chars().all(letter) {
        return Some(separator);
    }
    let (at, field) = (fields.place("name_separator"), fields.field("name_separator"));
    let message = "must be one to four letters, digits, `_` or `-`";
    notes.error(FaultKind::Invalid, at, &field, message);
    None
}

fn limit(notes: &mut Notes<'_>, fields: &mut Fields) -> Option<usize> {
    let limit = fields.count("name_limit")?;
    if (24..=256).contains(&limit) {
        return Some(limit);
    }
    let (at, field) = (fields.place("name_limit"), fields.field("name_limit"));
    notes.error(FaultKind::Invalid, at, &field, "must be from 24 to 256");
    None
}
