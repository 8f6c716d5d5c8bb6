//! Zed: `context_servers` of its settings, in both formats of `command`. `timeout` is in seconds.
//!
//! Servers provided by a Zed extension can only be started by Zed and are skipped.

use super::mcp_servers::texts;
use super::servers;
use crate::config_file::ConfigFile;
use crate::diagnostics::DiagnosticKind;
use crate::diagnostics::Diagnostics;
use crate::dialect::variables::{self, ReferenceSyntax};
use crate::keys::{Key, KeyType, TableKeys, UnknownKeys};
use crate::raw_server::RawServer;
use crate::table_reader::{self, TableReader};
use crate::tree::{Member, Node};

const fn key(name: &'static str, kind: KeyType) -> Key {
    Key { name, kind, default: "", doc: "" }
}

static SERVER: TableKeys = TableKeys {
    title: "context_servers",
    unknown_keys: UnknownKeys::NotImported,
    keys: &[
        key("command", KeyType::Template),
        key("args", KeyType::Templates),
        key("env", KeyType::ScalarMap),
        key("timeout", KeyType::Seconds),
        key("url", KeyType::Template),
        key("headers", KeyType::ScalarMap),
        key("enabled", KeyType::Flag),
        key("source", KeyType::Ignored),
        key("remote", KeyType::Ignored),
        key("settings", KeyType::Ignored),
    ],
};

/// The older format, with a table as command.
static OLD_SERVER: TableKeys = TableKeys {
    title: "context_servers",
    unknown_keys: UnknownKeys::NotImported,
    keys: &[
        key("command", KeyType::Table(&COMMAND)),
        key("enabled", KeyType::Flag),
        key("source", KeyType::Ignored),
        key("settings", KeyType::Ignored),
    ],
};

static COMMAND: TableKeys = TableKeys {
    title: "command",
    unknown_keys: UnknownKeys::NotImported,
    keys: &[
        key("path", KeyType::Template),
        key("args", KeyType::Templates),
        key("env", KeyType::ScalarMap),
        key("timeout", KeyType::Seconds),
    ],
};

pub(super) fn read(diagnostics: &mut Diagnostics<'_>, root: &Node) -> ConfigFile {
    let map = root.get("context_servers");
    let defaults = servers(diagnostics, "context_servers", map, |diagnostics, path, member| {
        let mut server = server(diagnostics, path, member)?;
        variables::server(diagnostics, &mut server, ReferenceSyntax::Plain);
        Some(server)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
}

fn server(diagnostics: &mut Diagnostics<'_>, path: &str, member: &Member) -> Option<RawServer> {
    let node = &member.value;
    if node.is_table() && node.get("command").is_none() && node.get("url").is_none() {
        let message = "is run by a Zed extension and cannot be imported";
        diagnostics.warn(DiagnosticKind::Unsupported, member.at, path, message);
        return None;
    }
    if node.get("command").is_some_and(Node::is_table) {
        let mut fields = table_reader::read(diagnostics, &OLD_SERVER, path, node);
        let mut command = fields.table("command")?;
        let mut server = RawServer::from_table(&command, "");
        server.rename_location("path", "command");
        process(&mut server, &mut command, "path");
        server.enabled = fields.flag("enabled");
        return Some(server);
    }
    let mut fields = table_reader::read(diagnostics, &SERVER, path, node);
    let mut server = RawServer::from_table(&fields, "");
    process(&mut server, &mut fields, "command");
    server.url = fields.text("url");
    server.headers = fields.map("headers");
    server.enabled = fields.flag("enabled");
    Some(server)
}

fn process(server: &mut RawServer, fields: &mut TableReader<'_>, command: &str) {
    server.command = fields.text(command);
    server.args = fields.texts("args").unwrap_or_default();
    server.env = texts(fields.map("env"));
    server.settings.timeout = fields.time("timeout");
}
