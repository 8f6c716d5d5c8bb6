//! Codex: `[mcp_servers.*]`. Key names contain the time unit: `_sec`, `_ms`.

use super::mcp_servers::texts;
use super::servers;
use crate::config_file::ConfigFile;
use crate::diagnostics::Diagnostics;
use crate::dialect::variables::{self, ReferenceSyntax};
use crate::keys::{Key, KeyType, TableKeys, UnknownKeys};
use crate::raw_server::RawServer;
use crate::server::EnvValue;
use crate::table_reader::{self, TableReader, join};
use crate::tree::Node;

const fn key(name: &'static str, kind: KeyType) -> Key {
    Key { name, kind, default: "", doc: "" }
}

static SERVER: TableKeys = TableKeys {
    title: "mcp_servers",
    unknown_keys: UnknownKeys::NotImported,
    keys: &[
        key("command", KeyType::Template),
        key("args", KeyType::Templates),
        key("env", KeyType::ScalarMap),
        key("env_vars", KeyType::Texts),
        key("cwd", KeyType::Template),
        key("url", KeyType::Template),
        key("bearer_token_env_var", KeyType::Text),
        key("http_headers", KeyType::ScalarMap),
        key("env_http_headers", KeyType::ScalarMap),
        key("startup_timeout_sec", KeyType::Seconds),
        key("startup_timeout_ms", KeyType::Millis),
        key("tool_timeout_sec", KeyType::Seconds),
        key("enabled", KeyType::Flag),
        key("enabled_tools", KeyType::Texts),
        key("disabled_tools", KeyType::Texts),
        key("required", KeyType::Ignored),
        key("default_tools_approval_mode", KeyType::Ignored),
        key("supports_parallel_tool_calls", KeyType::Ignored),
        key("tools", KeyType::Ignored),
    ],
};

pub(super) fn read(diagnostics: &mut Diagnostics<'_>, root: &Node) -> ConfigFile {
    let map = root.get("mcp_servers");
    let defaults = servers(diagnostics, "mcp_servers", map, |diagnostics, path, member| {
        let mut fields = table_reader::read(diagnostics, &SERVER, path, &member.value);
        let mut server = server(&mut fields);
        variables::server(diagnostics, &mut server, ReferenceSyntax::Plain);
        // Our own references are added after the translation, which would escape them.
        refer(&mut server, &mut fields);
        Some(server)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
}

fn server(fields: &mut TableReader<'_>) -> RawServer {
    let mut server = RawServer::from_table(fields, "");
    server.command = fields.text("command");
    server.args = fields.texts("args").unwrap_or_default();
    server.env = texts(fields.map("env"));
    server.cwd = fields.text("cwd");
    server.url = fields.text("url");
    server.rename_location("http_headers", "headers");
    server.headers = fields.map("http_headers");
    server.enabled = fields.flag("enabled");
    let startup = fields.time("startup_timeout_sec");
    server.settings.startup_timeout = startup.or(fields.time("startup_timeout_ms"));
    server.settings.timeout = fields.time("tool_timeout_sec");
    server.settings.allow = fields.texts("enabled_tools");
    server.settings.deny = fields.texts("disabled_tools");
    server
}

/// Variables and headers with values from the environment.
fn refer(server: &mut RawServer, fields: &mut TableReader<'_>) {
    for (n, name) in fields.texts("env_vars").unwrap_or_default().into_iter().enumerate() {
        server.locations.insert(join("env", &name), fields.location(&format!("env_vars[{n}]")));
        // Passed on if set; an unset variable becomes empty.
        let text = format!("${{env:{name}:-}}");
        server.env.push((name, EnvValue::Text(text)));
    }
    if let Some(name) = fields.text("bearer_token_env_var") {
        let at = fields.location("bearer_token_env_var");
        server.locations.insert("headers.Authorization".to_owned(), at);
        server.headers.push(("Authorization".to_owned(), format!("Bearer ${{env:{name}}}")));
    }
    for (header, name) in fields.map("env_http_headers") {
        let at = fields.location(&join("env_http_headers", &header));
        server.locations.insert(join("headers", &header), at);
        server.headers.push((header, format!("${{env:{name}}}")));
    }
}
