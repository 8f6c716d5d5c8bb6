//! goose: `extensions` of its YAML config. `timeout` is seconds.
//!
//! `env_keys` name secrets of goose's keyring and become secret references of the same names.
//! Built-in extensions of goose are skipped.

use super::servers;
use crate::config_file::ConfigFile;
use crate::diagnostics::{DiagnosticKind, Diagnostics};
use crate::dialect::variables::{self, ReferenceSyntax};
use crate::keys::{KeyType, TableKeys, alias, foreign, foreign_table};
use crate::raw_server::{RawServer, TransportKind};
use crate::server::EnvValue;
use crate::suggest::suggest;
use crate::table_reader::{self, TableReader, join};
use crate::tree::{Member, Node, Value};

static SERVER: TableKeys = foreign_table(
    "extensions",
    &[
        foreign("type", KeyType::Text),
        foreign("enabled", KeyType::Flag),
        alias("cmd", KeyType::Template, "command"),
        foreign("args", KeyType::Templates),
        alias("envs", KeyType::ScalarMap, "env"),
        foreign("env_keys", KeyType::Texts),
        foreign("cwd", KeyType::Template),
        alias("uri", KeyType::Template, "url"),
        foreign("headers", KeyType::ScalarMap),
        foreign("timeout", KeyType::Seconds),
        alias("available_tools", KeyType::Texts, "allow"),
        foreign("name", KeyType::Ignored),
        foreign("display_name", KeyType::Ignored),
        foreign("description", KeyType::Ignored),
        foreign("bundled", KeyType::Ignored),
        foreign("config", KeyType::Ignored),
    ],
);

/// Extension types, with their transport; `None` is not an MCP server.
const KINDS: [(&str, Option<TransportKind>); 7] = [
    ("stdio", Some(TransportKind::Stdio)),
    ("sse", Some(TransportKind::Http)),
    ("streamable_http", Some(TransportKind::Http)),
    ("builtin", None),
    ("platform", None),
    ("frontend", None),
    ("inline_python", None),
];

pub(super) fn read(diagnostics: &mut Diagnostics<'_>, root: &Node) -> ConfigFile {
    let map = root.get("extensions");
    let defaults = servers(diagnostics, "extensions", map, |diagnostics, path, member| {
        let flat = flat(&member.value);
        let mut fields = table_reader::read(diagnostics, &SERVER, path, &flat);
        let way = kind(diagnostics, &mut fields)?;
        let mut server = server(&mut fields, way);
        variables::server(diagnostics, &mut server, ReferenceSyntax::Shell);
        secrets(&mut server, &mut fields);
        Some(server)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
}

/// Some versions put everything but `enabled` into a table `config`. Merges both.
fn flat(node: &Node) -> Node {
    let Some(config) = node.get("config").filter(|config| config.is_table()) else {
        return node.clone();
    };
    let members: Vec<Member> = node.members().iter().chain(config.members()).cloned().collect();
    Node { at: node.at, value: Value::Table(members) }
}

/// Transport of an extension; `None` if it is not a server, which is reported.
fn kind(
    diagnostics: &mut Diagnostics<'_>,
    fields: &mut TableReader<'_>,
) -> Option<Option<TransportKind>> {
    let Some(word) = fields.text("type") else { return Some(None) };
    match KINDS.iter().find(|kind| kind.0 == word) {
        Some((_, Some(way))) => Some(Some(*way)),
        Some((_, None)) => {
            let message = "is built into goose and cannot be imported";
            let (at, field) = (fields.location("type"), fields.field("type"));
            diagnostics.warn(DiagnosticKind::Unsupported, at, &field, message);
            None
        }
        None => {
            let message = format!("unknown type `{word}`");
            fields.error(diagnostics, DiagnosticKind::Invalid, "type", &message);
            let near = suggest(&word, KINDS.iter().map(|kind| kind.0));
            diagnostics.suggest(&fields.field("type"), near);
            None
        }
    }
}

fn server(fields: &mut TableReader<'_>, way: Option<TransportKind>) -> RawServer {
    let mut server = RawServer::from_table(fields);
    server.transport = way;
    // In goose an empty list means all tools; here it means none.
    server.settings.allow.take_if(|allow| allow.is_empty());
    if way == Some(TransportKind::Http) {
        // goose writes these for every type; they have no meaning for HTTP.
        for field in ["args", "env", "cwd"] {
            server.locations.remove(field);
        }
    }
    server
}

fn secrets(server: &mut RawServer, fields: &mut TableReader<'_>) {
    for (n, name) in fields.texts("env_keys").unwrap_or_default().into_iter().enumerate() {
        server.locations.insert(join("env", &name), fields.location(&format!("env_keys[{n}]")));
        let secret = EnvValue::Secret { secret_ref: name.clone(), required: true };
        server.env.push((name, secret));
    }
}
