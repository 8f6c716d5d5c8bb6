//! VS Code: `servers` with `inputs`, in `mcp.json`, or under `mcp` in `settings.json`. It has no
//! timeouts.
//!
//! VS Code asks for an input once and stores it, like a secret here: `${input:id}` becomes
//! `${secret:id}`, with the input's default unless it is a password.

use std::collections::HashMap;

use super::mcp_servers::texts;
use super::{servers, transport_kind};
use crate::config_file::ConfigFile;
use crate::diagnostics::DiagnosticKind;
use crate::diagnostics::Diagnostics;
use crate::dialect::variables::{self, ReferenceSyntax};
use crate::keys::{Key, KeyType, TableKeys, UnknownKeys};
use crate::raw_server::RawServer;
use crate::table_reader;
use crate::tree::{Node, Value};

const fn key(name: &'static str, kind: KeyType) -> Key {
    Key { name, kind, default: "", doc: "" }
}

static SERVER: TableKeys = TableKeys {
    title: "servers",
    unknown_keys: UnknownKeys::NotImported,
    keys: &[
        key("type", KeyType::Text),
        key("command", KeyType::Template),
        key("args", KeyType::Templates),
        key("env", KeyType::ScalarMap),
        key("cwd", KeyType::Template),
        key("url", KeyType::Template),
        key("headers", KeyType::ScalarMap),
        key("disabled", KeyType::Flag),
        key("gallery", KeyType::Ignored),
        key("version", KeyType::Ignored),
        key("dev", KeyType::Ignored),
    ],
};

pub(super) fn read(diagnostics: &mut Diagnostics<'_>, root: &Node) -> ConfigFile {
    let (home, path) = match root.get("servers") {
        Some(_) => (Some(root), "servers"),
        None => (root.get("mcp"), "mcp.servers"),
    };
    let inputs = inputs(diagnostics, home.and_then(|home| home.get("inputs")));
    let map = home.and_then(|home| home.get("servers"));
    let defaults = servers(diagnostics, path, map, |diagnostics, path, member| {
        let mut fields = table_reader::read(diagnostics, &SERVER, path, &member.value);
        let mut server = RawServer::from_table(&fields, "");
        let word = fields.text("type");
        server.transport =
            transport_kind(diagnostics, &fields.field("type"), fields.location("type"), word);
        server.command = fields.text("command");
        server.args = fields.texts("args").unwrap_or_default();
        server.env = texts(fields.map("env"));
        server.cwd = fields.text("cwd");
        server.url = fields.text("url");
        server.headers = fields.map("headers");
        server.enabled = fields.flag("disabled").map(|disabled| !disabled);
        variables::server(diagnostics, &mut server, ReferenceSyntax::Editor(&inputs));
        Some(server)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
}

/// Inputs and their defaults. A password never has a default.
fn inputs(
    diagnostics: &mut Diagnostics<'_>,
    list: Option<&Node>,
) -> HashMap<String, Option<String>> {
    let Some(Node { value: Value::List(list), .. }) = list else { return HashMap::new() };
    let mut inputs = HashMap::new();
    for (index, input) in list.iter().enumerate() {
        let Some(id) = input.get("id").and_then(Node::text) else { continue };
        let password =
            input.get("password").is_some_and(|password| password.value == Value::Flag(true));
        let default = input.get("default").and_then(Node::text).filter(|_| !password);
        if default.is_none() {
            let message = format!("`{id}` is an editor input; store it as the secret `{id}`");
            diagnostics.warn(
                DiagnosticKind::Unsupported,
                input.at,
                &format!("inputs[{index}]"),
                &message,
            );
        }
        inputs.insert(id.to_owned(), default.map(str::to_owned));
    }
    inputs
}
