//! Zed: `context_servers` of its settings, in both shapes of `command`. `timeout` is seconds.
//!
//! Servers that an extension of Zed provides cannot be started by anybody else and are left out.

use super::mcp_servers::texts;
use super::servers;
use super::variables::{self, Manner};
use crate::config_file::ConfigFile;
use crate::diagnostic::FaultKind;
use crate::diagnostics::Notes;
use crate::keys::{Key, Kind, Scope, Strangers};
use crate::raw_server::Draft;
use crate::table_reader::{self, Fields};
use crate::tree::{Member, Node};

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, default: "", doc: "" }
}

static SERVER: Scope = Scope {
    title: "context_servers",
    strangers: Strangers::NotTakenOver,
    keys: &[
        key("command", Kind::Template),
        key("args", Kind::Templates),
        key("env", Kind::ScalarMap),
        key("timeout", Kind::Seconds),
        key("url", Kind::Template),
        key("headers", Kind::ScalarMap),
        key("enabled", Kind::Flag),
        key("source", Kind::Ignored),
        key("remote", Kind::Ignored),
        key("settings", Kind::Ignored),
    ],
};

/// The older shape, in which the command is a table.
static OLD_SERVER: Scope = Scope {
    title: "context_servers",
    strangers: Strangers::NotTakenOver,
    keys: &[
        key("command", Kind::Table(&COMMAND)),
        key("enabled", Kind::Flag),
        key("source", Kind::Ignored),
        key("settings", Kind::Ignored),
    ],
};

static COMMAND: Scope = Scope {
    title: "command",
    strangers: Strangers::NotTakenOver,
    keys: &[
        key("path", Kind::Template),
        key("args", Kind::Templates),
        key("env", Kind::ScalarMap),
        key("timeout", Kind::Seconds),
    ],
};

pub(super) fn read(notes: &mut Notes<'_>, root: &Node) -> ConfigFile {
    let map = root.get("context_servers");
    let defaults = servers(notes, "context_servers", map, |notes, path, member| {
        let mut draft = draft(notes, path, member)?;
        variables::draft(notes, &mut draft, Manner::Plain);
        Some(draft)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
}

fn draft(notes: &mut Notes<'_>, path: &str, member: &Member) -> Option<Draft> {
    let node = &member.value;
    if node.is_table() && node.get("command").is_none() && node.get("url").is_none() {
        let message = "is run by an extension of Zed and cannot be taken over";
        notes.warn(FaultKind::Unsupported, member.at, path, message);
        return None;
    }
    if node.get("command").is_some_and(Node::is_table) {
        let mut fields = table_reader::read(notes, &OLD_SERVER, path, node);
        let mut command = fields.table("command").unwrap_or_default();
        let mut draft = Draft::of(&command, "");
        draft.renamed("path", "command");
        process(&mut draft, &mut command, "path");
        draft.enabled = fields.flag("enabled");
        return Some(draft);
    }
    let mut fields = table_reader::read(notes, &SERVER, path, node);
    let mut draft = Draft::of(&fields, "");
    process(&mut draft, &mut fields, "command");
    draft.url = fields.text("url");
    draft.headers = fields.map("headers");
    draft.enabled = fields.flag("enabled");
    Some(draft)
}

fn process(draft: &mut Draft, fields: &mut Fields, command: &str) {
    draft.command = fields.text(command);
    draft.args = fields.texts("args").unwrap_or_default();
    draft.env = texts(fields.map("env"));
    draft.settings.timeout = fields.time("timeout");
}
