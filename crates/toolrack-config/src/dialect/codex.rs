//! Codex: `[mcp_servers.*]`. Key names contain the time unit: `_sec`, `_ms`.

use super::servers;
use crate::config_file::ConfigFile;
use crate::diagnostics::Diagnostics;
use crate::dialect::variables::{self, ReferenceSyntax};
use crate::keys::{KeyType, TableKeys, alias, foreign, foreign_table};
use crate::raw_server::RawServer;
use crate::server::EnvValue;
use crate::table_reader::{self, TableReader, join};
use crate::tree::Node;

static SERVER: TableKeys = foreign_table(
    "mcp_servers",
    &[
        foreign("command", KeyType::Template),
        foreign("args", KeyType::Templates),
        foreign("env", KeyType::ScalarMap),
        foreign("env_vars", KeyType::Texts),
        foreign("cwd", KeyType::Template),
        foreign("url", KeyType::Template),
        foreign("bearer_token_env_var", KeyType::Text),
        alias("http_headers", KeyType::ScalarMap, "headers"),
        foreign("env_http_headers", KeyType::ScalarMap),
        alias("startup_timeout_sec", KeyType::Seconds, "startup_timeout"),
        alias("startup_timeout_ms", KeyType::Millis, "startup_timeout"),
        alias("tool_timeout_sec", KeyType::Seconds, "timeout"),
        foreign("enabled", KeyType::Flag),
        alias("enabled_tools", KeyType::Texts, "allow"),
        alias("disabled_tools", KeyType::Texts, "deny"),
        foreign("required", KeyType::Ignored),
        foreign("default_tools_approval_mode", KeyType::Ignored),
        foreign("supports_parallel_tool_calls", KeyType::Ignored),
        foreign("tools", KeyType::Ignored),
    ],
);

pub(super) fn read(diagnostics: &mut Diagnostics<'_>, root: &Node) -> ConfigFile {
    let map = root.get("mcp_servers");
    let defaults = servers(diagnostics, "mcp_servers", map, |diagnostics, path, member| {
        let mut fields = table_reader::read(diagnostics, &SERVER, path, &member.value);
        let mut server = RawServer::from_table(&mut fields);
        variables::server(diagnostics, &mut server, ReferenceSyntax::Plain);
        // Our own references are added after the translation, which would escape them.
        refer(&mut server, &mut fields);
        Some(server)
    });
    ConfigFile { defaults, ..ConfigFile::default() }
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
