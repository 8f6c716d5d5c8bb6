//! goose: `extensions` of its YAML config. `timeout` is seconds.
//!
//! `env_keys` are names of secrets in its keyring, and become references to secrets of the same names.
//! Extensions that are part of goose itself are left out.

use super::mcp_servers::texts;
use super::servers;
use super::variables::{self, Manner};
use crate::config_file::ConfigFile;
use crate::diagnostic::FaultKind;
use crate::diagnostics::{Notes, nearest};
use crate::keys::{Key, Kind, Scope, Strangers};
use crate::raw_server::{Draft, Way};
use crate::server::EnvValue;
use crate::table_reader::{self, Fields, join};
use crate::tree::{Member, Node, Value};

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, default: "", doc: "" }
}

static SERVER: Scope = Scope {
    title: "extensions",
    strangers: Strangers::NotTakenOver,
    keys: &[
        key("type", Kind::Text),
        key("enabled", Kind::Flag),
        key("cmd", Kind::Template),
        key("args", Kind::Templates),
        key("envs", Kind::ScalarMap),
        key("env_keys", Kind::Texts),
        key("cwd", Kind::Template),
        key("uri", Kind::Template),
        key("headers", Kind::ScalarMap),
        key("timeout", Kind::Seconds),
        key("available_tools", Kind::Texts),
        key("name", Kind::Ignored),
        key("display_name", Kind::Ignored),
        key("description", Kind::Ignored),
        key("bundled", Kind::Ignored),
        key("config", Kind::Ignored),
    ],
};

/// Kinds of extensions that are servers, and those that are not.
const KINDS: [(&str, Option<Way>); 7] = [
    ("stdio", Some(Way::Process)),
    ("sse", Some(Way::Endpoint)),
    ("streamable_http", Some(Way::Endpoint)),
    ("builtin", None),
    ("platform", None),
    ("frontend", None),
    ("inline_python", None),
];

pub(super) fn read(notes: &mut Notes<'_>, root: &Node) -> ConfigFile {
    let map = root.get("extensions");
    let defaults = servers(notes, "extensions", map, |notes, path, member| {
        let mut fields = table_reader::read(notes, &SERVER, path, &flat(&member.value));
        let way = kind(notes, &mut fields)?;
        let mut draft = draft(&mut fields, way);
        variables::draft(notes, &mut draft, Manner::Shell);
        secrets(&mut draft, &mut fields);
        Some(draft)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
}

/// Some versions put all but `enabled` into a table `config`. Here both are one.
fn flat(node: &Node) -> Node {
    let Some(config) = node.get("config").filter(|it| it.is_table()) else { return node.clone() };
    let members: Vec<Member> = node.members().iter().chain(config.members()).cloned().collect();
    Node { at: node.at, value: Value::Table(members) }
}

/// How an extension is reached; nothing if it is no server, which is noted.
fn kind(notes: &mut Notes<'_>, fields: &mut Fields) -> Option<Option<Way>> {
    let Some(word) = fields.text("type") else { return Some(None) };
    let (at, field) = (fields.place("type"), fields.field("type"));
    match KINDS.iter().find(|it| it.0 == word) {
        Some((_, Some(way))) => Some(Some(*way)),
        Some((_, None)) => {
            let message = "is part of goose itself and cannot be taken over";
            notes.warn(FaultKind::Unsupported, at, &field, message);
            None
        }
        None => {
            notes.error(FaultKind::Invalid, at, &field, &format!("`{word}` is not a type we know"));
            notes.nearest(&field, nearest(&word, KINDS.iter().map(|it| it.0)));
            None
        }
    }
}

fn draft(fields: &mut Fields, way: Option<Way>) -> Draft {
    let mut draft = Draft::of(fields, "");
    for (theirs, ours) in [("cmd", "command"), ("envs", "env"), ("uri", "url")] {
        draft.renamed(theirs, ours);
    }
    draft.transport = way;
    draft.command = fields.text("cmd");
    draft.args = fields.texts("args").unwrap_or_default();
    draft.env = texts(fields.map("envs"));
    draft.cwd = fields.text("cwd");
    draft.url = fields.text("uri");
    draft.headers = fields.map("headers");
    draft.enabled = fields.flag("enabled");
    draft.settings.timeout = fields.time("timeout");
    // An empty list means all of them there, and none of them here.
    draft.settings.allow = fields.texts("available_tools").filter(|it| !it.is_empty());
    if way == Some(Way::Endpoint) {
        // Written for every kind, and without meaning for this one.
        for field in ["args", "env", "envs", "cwd"] {
            draft.places.remove(field);
        }
    }
    draft
}

fn secrets(draft: &mut Draft, fields: &mut Fields) {
    for (n, name) in fields.texts("env_keys").unwrap_or_default().into_iter().enumerate() {
        draft.places.insert(join("env", &name), fields.place(&format!("env_keys[{n}]")));
        let secret = EnvValue::Secret { secret_ref: name.clone(), required: true };
        draft.env.push((name, secret));
    }
}
