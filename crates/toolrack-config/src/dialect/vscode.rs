//! VS Code: `servers` with `inputs`, in `mcp.json`, or under `mcp` in `settings.json`. It has no
//! timeouts.
//!
//! VS Code asks for an input once and stores it, like a secret here: `${input:id}` becomes
//! `${secret:id}`, with the input's default unless it is a password.

use std::collections::HashMap;

use super::{servers, transport_kind};
use crate::config_file::ConfigFile;
use crate::diagnostics::{DiagnosticKind, Diagnostics};
use crate::dialect::variables::{self, ReferenceSyntax};
use crate::keys::{KeyType, TableKeys, foreign, foreign_table};
use crate::raw_server::RawServer;
use crate::table_reader;
use crate::tree::{Node, Value};

static SERVER: TableKeys = foreign_table(
    "servers",
    &[
        foreign("type", KeyType::Text),
        foreign("command", KeyType::Template),
        foreign("args", KeyType::Templates),
        foreign("env", KeyType::ScalarMap),
        foreign("cwd", KeyType::Template),
        foreign("url", KeyType::Template),
        foreign("headers", KeyType::ScalarMap),
        foreign("disabled", KeyType::Flag),
        foreign("gallery", KeyType::Ignored),
        foreign("version", KeyType::Ignored),
        foreign("dev", KeyType::Ignored),
    ],
);

pub(super) fn read(diagnostics: &mut Diagnostics<'_>, root: &Node) -> ConfigFile {
    let (home, path) = match root.get("servers") {
        Some(_) => (Some(root), "servers"),
        None => (root.get("mcp"), "mcp.servers"),
    };
    let inputs = inputs(diagnostics, home.and_then(|home| home.get("inputs")));
    let map = home.and_then(|home| home.get("servers"));
    let defaults = servers(diagnostics, path, map, |diagnostics, path, member| {
        let mut fields = table_reader::read(diagnostics, &SERVER, path, &member.value);
        let mut server = RawServer::from_table(&mut fields);
        server.transport = transport_kind(diagnostics, &mut fields);
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
            let field = format!("inputs[{index}]");
            diagnostics.warn(DiagnosticKind::Unsupported, input.at, &field, &message);
        }
        inputs.insert(id.to_owned(), default.map(str::to_owned));
    }
    inputs
}
