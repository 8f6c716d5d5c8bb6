//! VS Code: `servers` with `inputs`, in `mcp.json`, or under `mcp` in `settings.json`. It knows no
//! time-outs.
//!
//! An input is asked for once and kept, which is what a secret is here: `${input:id}` becomes
//! `${secret:id}`, with the input's default unless it is a password.

use std::collections::HashMap;

use super::mcp_servers::texts;
use super::variables::{self, Manner};
use super::{servers, way};
use crate::config_file::ConfigFile;
use crate::diagnostic::FaultKind;
use crate::diagnostics::Notes;
use crate::keys::{Key, Kind, Scope, Strangers};
use crate::raw_server::Draft;
use crate::table_reader;
use crate::tree::{Node, Value};

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, default: "", doc: "" }
}

static SERVER: Scope = Scope {
    title: "servers",
    strangers: Strangers::NotTakenOver,
    keys: &[
        key("type", Kind::Text),
        key("command", Kind::Template),
        key("args", Kind::Templates),
        key("env", Kind::ScalarMap),
        key("cwd", Kind::Template),
        key("url", Kind::Template),
        key("headers", Kind::ScalarMap),
        key("disabled", Kind::Flag),
        key("gallery", Kind::Ignored),
        key("version", Kind::Ignored),
        key("dev", Kind::Ignored),
    ],
};

pub(super) fn read(notes: &mut Notes<'_>, root: &Node) -> ConfigFile {
    let (home, path) = match root.get("servers") {
        Some(_) => (Some(root), "servers"),
        None => (root.get("mcp"), "mcp.servers"),
    };
    let inputs = inputs(notes, home.and_then(|it| it.get("inputs")));
    let map = home.and_then(|it| it.get("servers"));
    let defaults = servers(notes, path, map, |notes, path, member| {
        let mut fields = table_reader::read(notes, &SERVER, path, &member.value);
        let mut draft = Draft::of(&fields, "");
        let word = fields.text("type");
        draft.transport = way(notes, &fields.field("type"), fields.place("type"), word);
        draft.command = fields.text("command");
        draft.args = fields.texts("args").unwrap_or_default();
        draft.env = texts(fields.map("env"));
        draft.cwd = fields.text("cwd");
        draft.url = fields.text("url");
        draft.headers = fields.map("headers");
        draft.enabled = fields.flag("disabled").map(|it| !it);
        variables::draft(notes, &mut draft, Manner::Editor(&inputs));
        Some(draft)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
}

/// The inputs and their defaults. A password has none, whatever the file says.
fn inputs(notes: &mut Notes<'_>, list: Option<&Node>) -> HashMap<String, Option<String>> {
    let Some(Node { value: Value::List(list), .. }) = list else { return HashMap::new() };
    let mut inputs = HashMap::new();
    for (index, input) in list.iter().enumerate() {
        let Some(id) = input.get("id").and_then(Node::text) else { continue };
        let password = input.get("password").is_some_and(|it| it.value == Value::Flag(true));
        let default = input.get("default").and_then(Node::text).filter(|_| !password);
        if default.is_none() {
            let message =
                format!("`{id}` is asked for by the editor; store it here as the secret `{id}`");
            notes.warn(FaultKind::Unsupported, input.at, &format!("inputs[{index}]"), &message);
        }
        inputs.insert(id.to_owned(), default.map(str::to_owned));
    }
    inputs
}
