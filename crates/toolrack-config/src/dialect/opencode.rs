//! `OpenCode`: `mcp`, and since version 2 `mcp.servers`. The command is one list.
//!
//! `timeout` is in milliseconds: a number limits the start of the server; a table has `startup` and `request`.

use super::{servers, transport_kind};
use crate::config_file::{ConfigFile, Settings};
use crate::diagnostics::Diagnostics;
use crate::dialect::variables::{self, ReferenceSyntax};
use crate::keys::{KeyType, TableKeys, alias, foreign, foreign_table};
use crate::raw_server::RawServer;
use crate::table_reader;
use crate::tree::{Member, Node, Value};

static SERVER: TableKeys = foreign_table(
    "mcp",
    &[
        foreign("type", KeyType::Text),
        foreign("command", KeyType::Templates),
        alias("environment", KeyType::ScalarMap, "env"),
        foreign("cwd", KeyType::Template),
        foreign("url", KeyType::Template),
        foreign("headers", KeyType::ScalarMap),
        foreign("enabled", KeyType::Flag),
        foreign("disabled", KeyType::Flag),
        // Read separately, because it has two formats.
        foreign("timeout", KeyType::Ignored),
    ],
);

static TIMEOUT: TableKeys = foreign_table(
    "timeout",
    &[foreign("startup", KeyType::Millis), foreign("request", KeyType::Millis)],
);

pub(super) fn read(diagnostics: &mut Diagnostics<'_>, root: &Node) -> ConfigFile {
    let mcp = root.get("mcp");
    // With a `type` it is a server of the first format that is named `servers`.
    let second = mcp.and_then(|mcp| mcp.get("servers")).filter(|mcp| mcp.get("type").is_none());
    let (map, path) = match second {
        Some(servers) => (Some(servers), "mcp.servers"),
        None => (mcp, "mcp"),
    };
    let defaults = servers(diagnostics, path, map, |diagnostics, path, member| {
        let mut server = server(diagnostics, path, &member.value);
        variables::server(diagnostics, &mut server, ReferenceSyntax::Braces);
        Some(server)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
}

fn server(diagnostics: &mut Diagnostics<'_>, path: &str, node: &Node) -> RawServer {
    let mut fields = table_reader::read(diagnostics, &SERVER, path, node);
    let mut command = fields.texts("command").unwrap_or_default().into_iter();
    let mut server = RawServer::from_table(&mut fields);
    server.transport = transport_kind(diagnostics, &mut fields);
    // An empty list becomes an empty command, so that the diagnostic says so.
    server.command = command.next().or_else(|| fields.has("command").then(String::new));
    server.args = command.collect();
    for n in 0..server.args.len() {
        let at = fields.location(&format!("command[{}]", n + 1));
        server.locations.insert(format!("args[{n}]"), at);
    }
    if let Some(timeout) = node.get("timeout") {
        server.settings = times(diagnostics, &fields.field("timeout"), timeout);
    }
    server
}

fn times(diagnostics: &mut Diagnostics<'_>, path: &str, timeout: &Node) -> Settings {
    // A bare number is read as the member `startup`.
    let startup = Member { key: "startup".to_owned(), at: timeout.at, value: timeout.clone() };
    let bare = Node { at: timeout.at, value: Value::Table(vec![startup]) };
    let table = if timeout.is_table() { timeout } else { &bare };
    let mut fields = table_reader::read(diagnostics, &TIMEOUT, path, table);
    Settings {
        startup_timeout: fields.time("startup"),
        timeout: fields.time("request"),
        ..Settings::default()
    }
}
