//! Zed: `context_servers` of its settings, in both formats of `command`. `timeout` is in seconds.
//!
//! Servers provided by a Zed extension can only be started by Zed and are skipped.

use super::servers;
use crate::config_file::ConfigFile;
use crate::diagnostics::{DiagnosticKind, Diagnostics};
use crate::dialect::variables::{self, ReferenceSyntax};
use crate::keys::{KeyType, TableKeys, alias, foreign, foreign_table};
use crate::raw_server::RawServer;
use crate::table_reader;
use crate::tree::{Member, Node};

static SERVER: TableKeys = foreign_table(
    "context_servers",
    &[
        foreign("command", KeyType::Template),
        foreign("args", KeyType::Templates),
        foreign("env", KeyType::ScalarMap),
        foreign("timeout", KeyType::Seconds),
        foreign("url", KeyType::Template),
        foreign("headers", KeyType::ScalarMap),
        foreign("enabled", KeyType::Flag),
        foreign("source", KeyType::Ignored),
        foreign("remote", KeyType::Ignored),
        foreign("settings", KeyType::Ignored),
    ],
);

/// The older format, with a table as command.
static OLD_SERVER: TableKeys = foreign_table(
    "context_servers",
    &[
        foreign("command", KeyType::Table(&COMMAND)),
        foreign("enabled", KeyType::Flag),
        foreign("source", KeyType::Ignored),
        foreign("settings", KeyType::Ignored),
    ],
);

static COMMAND: TableKeys = foreign_table(
    "command",
    &[
        alias("path", KeyType::Template, "command"),
        foreign("args", KeyType::Templates),
        foreign("env", KeyType::ScalarMap),
        foreign("timeout", KeyType::Seconds),
    ],
);

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
        let mut server = RawServer::from_table(&mut fields.table("command")?);
        server.enabled = fields.flag("enabled");
        return Some(server);
    }
    Some(RawServer::from_table(&mut table_reader::read(diagnostics, &SERVER, path, node)))
}
