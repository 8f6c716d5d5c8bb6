//! Codex: `[mcp_servers.*]`. Times carry their units in their names: `_sec` and `_ms`.

use super::mcp_servers::texts;
use super::servers;
use super::variables::{self, Manner};
use crate::config_file::ConfigFile;
use crate::diagnostics::Notes;
use crate::keys::{Key, Kind, Scope, Strangers};
use crate::raw_server::Draft;
use crate::server::EnvValue;
use crate::table_reader::{self, Fields, join};
use crate::tree::Node;

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, default: "", doc: "" }
}

static SERVER: Scope = Scope {
    title: "mcp_servers",
    strangers: Strangers::NotTakenOver,
    keys: &[
        key("command", Kind::Template),
        key("args", Kind::Templates),
        key("env", Kind::ScalarMap),
        key("env_vars", Kind::Texts),
        key("cwd", Kind::Template),
        key("url", Kind::Template),
        key("bearer_token_env_var", Kind::Text),
        key("http_headers", Kind::ScalarMap),
        key("env_http_headers", Kind::ScalarMap),
        key("startup_timeout_sec", Kind::Seconds),
        key("startup_timeout_ms", Kind::Millis),
        key("tool_timeout_sec", Kind::Seconds),
        key("enabled", Kind::Flag),
        key("enabled_tools", Kind::Texts),
        key("disabled_tools", Kind::Texts),
        key("required", Kind::Ignored),
        key("default_tools_approval_mode", Kind::Ignored),
        key("supports_parallel_tool_calls", Kind::Ignored),
        key("tools", Kind::Ignored),
    ],
};

pub(super) fn read(notes: &mut Notes<'_>, root: &Node) -> ConfigFile {
    let map = root.get("mcp_servers");
    let defaults = servers(notes, "mcp_servers", map, |notes, path, member| {
        let mut fields = table_reader::read(notes, &SERVER, path, &member.value);
        let mut draft = draft(&mut fields);
        variables::draft(notes, &mut draft, Manner::Plain);
        // References of our own go in after the translation, which would have escaped them.
        refer(&mut draft, &mut fields);
        Some(draft)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
}

fn draft(fields: &mut Fields) -> Draft {
    let mut draft = Draft::of(fields, "");
    draft.command = fields.text("command");
    draft.args = fields.texts("args").unwrap_or_default();
    draft.env = texts(fields.map("env"));
    draft.cwd = fields.text("cwd");
    draft.url = fields.text("url");
    draft.renamed("http_headers", "headers");
    draft.headers = fields.map("http_headers");
    draft.enabled = fields.flag("enabled");
    let startup = fields.time("startup_timeout_sec");
    draft.settings.startup_timeout = startup.or(fields.time("startup_timeout_ms"));
    draft.settings.timeout = fields.time("tool_timeout_sec");
    draft.settings.allow = fields.texts("enabled_tools");
    draft.settings.deny = fields.texts("disabled_tools");
    draft
}

/// Variables and headers whose values come from the environment.
fn refer(draft: &mut Draft, fields: &mut Fields) {
    for (n, name) in fields.texts("env_vars").unwrap_or_default().into_iter().enumerate() {
        draft.places.insert(join("env", &name), fields.place(&format!("env_vars[{n}]")));
        // It is passed on if it is set; one that is not set arrives empty.
        let text = format!("${{env:{name}:-}}");
        draft.env.push((name, EnvValue::Text(text)));
    }
    if let Some(name) = fields.text("bearer_token_env_var") {
        let at = fields.place("bearer_token_env_var");
        draft.places.insert("headers.Authorization".to_owned(), at);
        draft.headers.push(("Authorization".to_owned(), format!("Bearer ${{env:{name}}}")));
    }
    for (header, name) in fields.map("env_http_headers") {
        let at = fields.place(&join("env_http_headers", &header));
        draft.places.insert(join("headers", &header), at);
        draft.headers.push((header, format!("${{env:{name}}}")));
    }
}
