//! `OpenCode`: `mcp`, and since its second version `mcp.servers`. The command is one list, program first.
//!
//! `timeout` is milliseconds: a number bounds the start of the server; a table has `startup` and `request`.

use super::mcp_servers::texts;
use super::variables::{self, Manner};
use super::{servers, way};
use crate::config_file::{ConfigFile, Settings};
use crate::diagnostics::Notes;
use crate::keys::{Key, Kind, Scope, Strangers};
use crate::raw_server::Draft;
use crate::table_reader;
use crate::tree::{Member, Node, Value};

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, default: "", doc: "" }
}

static SERVER: Scope = Scope {
    title: "mcp",
    strangers: Strangers::NotTakenOver,
    keys: &[
        key("type", Kind::Text),
        key("command", Kind::Templates),
        key("environment", Kind::ScalarMap),
        key("cwd", Kind::Template),
        key("url", Kind::Template),
        key("headers", Kind::ScalarMap),
        key("enabled", Kind::Flag),
        key("disabled", Kind::Flag),
        // Read apart, because it has two shapes.
        key("timeout", Kind::Ignored),
    ],
};

static TIMEOUT: Scope = Scope {
    title: "timeout",
    strangers: Strangers::NotTakenOver,
    keys: &[key("startup", Kind::Millis), key("request", Kind::Millis)],
};

pub(super) fn read(notes: &mut Notes<'_>, root: &Node) -> ConfigFile {
    let mcp = root.get("mcp");
    let second = mcp.and_then(|it| it.get("servers")).filter(|it| it.get("type").is_none());
    let (map, path) = match second {
        Some(servers) => (Some(servers), "mcp.servers"),
        None => (mcp, "mcp"),
    };
    let defaults = servers(notes, path, map, |notes, path, member| {
        let mut draft = draft(notes, path, &member.value);
        variables::draft(notes, &mut draft, Manner::Braces);
        Some(draft)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
}

fn draft(notes: &mut Notes<'_>, path: &str, node: &Node) -> Draft {
    let mut fields = table_reader::read(notes, &SERVER, path, node);
    let mut draft = Draft::of(&fields, "");
    let word = fields.text("type");
    draft.transport = way(notes, &fields.field("type"), fields.place("type"), word);
    let mut command = fields.texts("command").unwrap_or_default().into_iter();
    draft.command = command.next().or_else(|| fields.has("command").then(String::new));
    draft.args = command.collect();
    for n in 0..draft.args.len() {
        let at = fields.place(&format!("command[{}]", n + 1));
        draft.places.insert(format!("args[{n}]"), at);
    }
    draft.renamed("environment", "env");
    draft.env = texts(fields.map("environment"));
    draft.cwd = fields.text("cwd");
    draft.url = fields.text("url");
    draft.headers = fields.map("headers");
    draft.enabled = match (fields.flag("enabled"), fields.flag("disabled")) {
        (_, Some(disabled)) => Some(!disabled),
        (enabled, None) => enabled,
    };
    if let Some(timeout) = node.get("timeout") {
        draft.settings = times(notes, &fields.field("timeout"), timeout);
    }
    draft
}

fn times(notes: &mut Notes<'_>, path: &str, timeout: &Node) -> Settings {
    // A bare number is read as if it were the one member of the table.
    let startup = Member { key: "startup".to_owned(), at: timeout.at, value: timeout.clone() };
    let bare = Node { at: timeout.at, value: Value::Table(vec![startup]) };
    let table = if timeout.is_table() { timeout } else { &bare };
    let mut fields = table_reader::read(notes, &TIMEOUT, path, table);
    Settings {
        startup_timeout: fields.time("startup"),
        timeout: fields.time("request"),
        ..Settings::default()
    }
}
