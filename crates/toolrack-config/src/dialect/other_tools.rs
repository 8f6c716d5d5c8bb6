//! Readers of the config files of other tools: one key table per tool, and what is special about it.
//!
//! | tool | servers | bare numbers | special |
//! |---|---|---|---|
//! | most tools | `mcpServers` | milliseconds; seconds in Cline and Roo | aliases; a map without `mcpServers`; projects of Claude Code |
//! | Codex | `[mcp_servers.*]` | the key names the unit: `_sec`, `_ms` | variables and headers from the environment |
//! | goose | `extensions` (YAML) | seconds | `env_keys` name secrets of its keyring and become secret references; built-in extensions are skipped |
//! | `OpenCode` | `mcp`; since version 2 `mcp.servers` | milliseconds | the command is one list; `timeout` limits the start, or is a table with `startup` and `request` |
//! | VS Code | `servers`, or `mcp.servers` in `settings.json` | – | it asks for an input once and stores it, like a secret here: `${input:id}` becomes `${secret:id}`, with the input's default unless it is a password |
//! | Zed | `context_servers` | seconds | two formats of `command`; servers of extensions are skipped, because only Zed can start them |

use std::collections::HashMap;

use super::{Dialect, is_bare_map};
use crate::config_file::{Agent, ConfigFile, ServerEntry, Settings};
use crate::diagnostics::{DiagnosticKind, Diagnostics};
use crate::interpolate::escaped;
use crate::keys::{KeyType, TableKeys, alias, foreign, foreign_table};
use crate::raw_server::{RawServer, TransportKind};
use crate::server::EnvValue;
use crate::suggest::suggest;
use crate::table_reader::{self, Place, TableReader, join};
use crate::tree::{Member, Node, Value};

/// Reads a map of servers by name. `each` converts one of them, or reports why it is skipped.
fn servers<'d>(
    diagnostics: &'d Diagnostics<'d>,
    path: &str,
    map: Option<&Node>,
    mut each: impl FnMut(&str, &Member) -> Option<RawServer<'d>>,
) -> Vec<ServerEntry> {
    let Some(map) = map else {
        // An unreadable file was reported already.
        if diagnostics.n_errors() == 0 {
            let message = "is missing, so this file has no servers";
            diagnostics.warn(DiagnosticKind::Missing, 0, path, message);
        }
        return Vec::new();
    };
    if !map.is_table() {
        let message = format!("must be a table of servers by name, not {}", map.kind());
        diagnostics.error(DiagnosticKind::WrongType, map.at, path, &message);
    }
    let mut entries = Vec::new();
    for member in map.members() {
        let path = join(path, &member.key);
        if let Some(mut server) = each(&path, member) {
            server.name.clone_from(&member.key);
            server.place.at = member.at;
            // The name is the key of the map, so a diagnostic about it points there.
            server.place.locations().insert("name".into(), member.at);
            entries.extend(server.accept());
        }
    }
    entries
}

/// Reads a server by the keys of its tool, and translates its references.
fn server<'d, 'n>(
    diagnostics: &'d Diagnostics<'d>,
    keys: &TableKeys,
    syntax: ReferenceSyntax<'_>,
    path: &str,
    node: &'n Node,
) -> (RawServer<'d>, TableReader<'d, 'n>) {
    let mut fields = table_reader::read(diagnostics, keys, path, node);
    let mut server = RawServer::from_table(&mut fields);
    translate(&mut server, syntax);
    (server, fields)
}

/// Adds variables whose names a list gives.
fn add_variables(
    server: &mut RawServer<'_>,
    fields: &mut TableReader<'_, '_>,
    key: &str,
    value: impl Fn(&str) -> EnvValue,
) {
    let names: Vec<String> = fields.take(key).unwrap_or_default();
    for (n, name) in names.into_iter().enumerate() {
        let at = fields.place.location(&format!("{key}[{n}]"));
        server.place.locations().insert(join("env", &name).into(), at);
        let value = value(&name);
        server.env.push((name, value));
    }
}

/// What the `type` of a server means in its tool. An unknown word is reported.
fn known_type<T: Copy>(
    place: &Place<'_>,
    word: &str,
    noun: &str,
    types: &[(&str, T)],
) -> Option<T> {
    // Tools disagree about the spelling: `streamableHttp`, `streamable-http`, `streamable_http`.
    let known = types.iter().find(|known| known.0.eq_ignore_ascii_case(word));
    if known.is_none() {
        let message = format!("unknown {noun} `{word}`");
        place.error(DiagnosticKind::Invalid, "type", &message);
        let near = suggest(word, types.iter().map(|known| known.0));
        place.diagnostics.suggest(&place.field("type"), near);
    }
    known.map(|known| known.1)
}

fn transport_kind(fields: &mut TableReader<'_, '_>) -> Option<TransportKind> {
    let word: String = fields.take("type")?;
    known_type(&fields.place, &word, "transport", &TRANSPORTS)
}

/// Transport words of all tools.
const TRANSPORTS: [(&str, TransportKind); 11] = [
    ("stdio", TransportKind::Stdio),
    ("local", TransportKind::Stdio),
    ("http", TransportKind::Http),
    ("https", TransportKind::Http),
    ("sse", TransportKind::Http),
    ("remote", TransportKind::Http),
    ("streamable-http", TransportKind::Http),
    ("streamable_http", TransportKind::Http),
    ("streamableHttp", TransportKind::Http),
    ("streamable", TransportKind::Http),
    ("http-stream", TransportKind::Http),
];

static MCP_SERVERS: TableKeys = foreign_table(&[
    foreign("type", KeyType::Text),
    alias("transport", KeyType::Text, "type"),
    alias("transportType", KeyType::Text, "type"),
    foreign("command", KeyType::Template),
    foreign("args", KeyType::Templates),
    foreign("env", KeyType::ScalarEnvMap),
    foreign("cwd", KeyType::Template),
    foreign("url", KeyType::Template),
    alias("serverUrl", KeyType::Template, "url"),
    alias("httpUrl", KeyType::Template, "url"),
    alias("baseUrl", KeyType::Template, "url"),
    foreign("headers", KeyType::ScalarMap),
    foreign("disabled", KeyType::Flag),
    foreign("enabled", KeyType::Flag),
    foreign("timeout", KeyType::Millis),
    alias("allowedTools", KeyType::Texts, "allow"),
    alias("enabledTools", KeyType::Texts, "allow"),
    alias("includeTools", KeyType::Texts, "allow"),
    alias("disabledTools", KeyType::Texts, "deny"),
    alias("blockedTools", KeyType::Texts, "deny"),
    alias("excludeTools", KeyType::Texts, "deny"),
])
// Approval and display settings do not belong to a server config.
.ignoring(&["alwaysAllow", "autoApprove", "trust", "alwaysLoad", "name", "description", "icon"]);

/// Reads `mcpServers`, the format that most tools share.
pub(super) fn mcp_servers(
    diagnostics: &Diagnostics<'_>,
    root: &Node,
    dialect: Dialect,
) -> ConfigFile {
    let map = root.get("mcpServers");
    let projects = root.get("projects").map(Node::members).unwrap_or_default();
    let list = |path: &str, map: Option<&Node>| {
        servers(diagnostics, path, map, |path, member| {
            Some(mcp_server(diagnostics, path, &member.value, dialect))
        })
    };
    let defaults = match map {
        None if is_bare_map(root) => {
            return ConfigFile { defaults: list("", Some(root)), ..ConfigFile::default() };
        }
        // A file of Claude Code may have servers in projects only; the missing map is
        // no mistake then.
        None if !projects.is_empty() => Vec::new(),
        _ => list("mcpServers", map),
    };
    // Claude Code keeps servers of a project beside the user's, and they take precedence, as an
    // agent's do.
    let project = |project: &Member| {
        let map = project.value.get("mcpServers").filter(|map| !map.members().is_empty())?;
        let path = join(&join("projects", &project.key), "mcpServers");
        Some(Agent { id: project.key.clone(), mcp: list(&path, Some(map)) })
    };
    let agents = projects.iter().filter_map(project).collect();
    ConfigFile { defaults, agents, ..ConfigFile::default() }
}

fn mcp_server<'d>(
    diagnostics: &'d Diagnostics<'d>,
    path: &str,
    node: &Node,
    dialect: Dialect,
) -> RawServer<'d> {
    let nothing = HashMap::new();
    let syntax = match dialect {
        Dialect::ClaudeDesktop => ReferenceSyntax::Plain,
        Dialect::ClaudeCode => ReferenceSyntax::Shell,
        _ => ReferenceSyntax::Editor(&nothing),
    };
    let (mut server, mut fields) = server(diagnostics, &MCP_SERVERS, syntax, path, node);
    server.transport = transport_kind(&mut fields);
    // Some tools write an empty command beside a URL.
    if server.url.is_some() && server.command.take_if(|command| command.is_empty()).is_some() {
        server.place.locations().remove("command");
    }
    let settings = &mut server.settings;
    let is_number = node.get("timeout").is_some_and(|timeout| timeout.text().is_none());
    if dialect == Dialect::Cline && is_number {
        // The key is read as milliseconds; Cline and Roo write seconds.
        settings.timeout = settings.timeout.map(|timeout| timeout * 1000);
    }
    if dialect == Dialect::ClaudeCode {
        // In that tool it ends the call regardless of progress.
        settings.max_timeout = settings.timeout;
    }
    server
}

static CODEX: TableKeys = foreign_table(&[
    foreign("command", KeyType::Template),
    foreign("args", KeyType::Templates),
    foreign("env", KeyType::ScalarEnvMap),
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
])
.ignoring(&["required", "default_tools_approval_mode", "supports_parallel_tool_calls", "tools"]);

/// Reads the config of Codex. Variables and headers may have values from the environment.
pub(super) fn codex(diagnostics: &Diagnostics<'_>, root: &Node) -> Vec<ServerEntry> {
    let map = root.get("mcp_servers");
    servers(diagnostics, "mcp_servers", map, |path, member| {
        let (mut server, mut fields) =
            server(diagnostics, &CODEX, ReferenceSyntax::Plain, path, &member.value);
        // Our own references are added after the translation, which would escape them.
        // Variables are passed on if set; an unset one becomes empty.
        let value = |name: &str| EnvValue::Text(format!("${{env:{name}:-}}"));
        add_variables(&mut server, &mut fields, "env_vars", value);
        if let Some(name) = fields.take::<String>("bearer_token_env_var") {
            let at = fields.place.location("bearer_token_env_var");
            server.place.locations().insert("headers.Authorization".into(), at);
            server.headers.push(("Authorization".to_owned(), format!("Bearer ${{env:{name}}}")));
        }
        let headers: Vec<(String, String)> = fields.take("env_http_headers").unwrap_or_default();
        for (header, name) in headers {
            let at = fields.place.location(&join("env_http_headers", &header));
            server.place.locations().insert(join("headers", &header).into(), at);
            server.headers.push((header, format!("${{env:{name}}}")));
        }
        Some(server)
    })
}

static GOOSE: TableKeys = foreign_table(&[
    foreign("type", KeyType::Text),
    foreign("enabled", KeyType::Flag),
    alias("cmd", KeyType::Template, "command"),
    foreign("args", KeyType::Templates),
    alias("envs", KeyType::ScalarEnvMap, "env"),
    foreign("env_keys", KeyType::Texts),
    foreign("cwd", KeyType::Template),
    alias("uri", KeyType::Template, "url"),
    foreign("headers", KeyType::ScalarMap),
    foreign("timeout", KeyType::Seconds),
    alias("available_tools", KeyType::Texts, "allow"),
])
.ignoring(&["name", "display_name", "description", "bundled", "config"]);

/// Extension types of goose, with their transport; `None` is not an MCP server.
const GOOSE_TYPES: [(&str, Option<TransportKind>); 7] = [
    ("stdio", Some(TransportKind::Stdio)),
    ("sse", Some(TransportKind::Http)),
    ("streamable_http", Some(TransportKind::Http)),
    ("builtin", None),
    ("platform", None),
    ("frontend", None),
    ("inline_python", None),
];

/// Reads the config of goose.
pub(super) fn goose(diagnostics: &Diagnostics<'_>, root: &Node) -> Vec<ServerEntry> {
    let map = root.get("extensions");
    servers(diagnostics, "extensions", map, |path, member| {
        let node = flat(&member.value);
        let (mut server, mut fields) =
            server(diagnostics, &GOOSE, ReferenceSyntax::Shell, path, &node);
        if let Some(word) = fields.take::<String>("type") {
            let known = known_type(&fields.place, &word, "type", &GOOSE_TYPES);
            server.transport = known?;
            if server.transport.is_none() {
                let message = "is built into goose and cannot be imported";
                fields.place.warn(DiagnosticKind::Unsupported, "type", message);
                return None;
            }
        }
        // In goose an empty list means all tools; here it means none.
        server.settings.allow.take_if(|allow| allow.is_empty());
        if server.transport == Some(TransportKind::Http) {
            // goose writes these for every type; they have no meaning for HTTP.
            for field in ["args", "env", "cwd"] {
                server.place.locations().remove(field);
            }
        }
        let secret = |name: &str| EnvValue::Secret { secret_ref: name.to_owned(), required: true };
        add_variables(&mut server, &mut fields, "env_keys", secret);
        Some(server)
    })
}

/// Some versions put everything but `enabled` into a table `config`. Merges both.
fn flat(node: &Node) -> Node {
    let Some(config) = node.get("config").filter(|config| config.is_table()) else {
        return node.clone();
    };
    let members: Vec<Member> = node.members().iter().chain(config.members()).cloned().collect();
    Node { at: node.at, value: Value::Table(members.into()) }
}

static OPENCODE: TableKeys = foreign_table(&[
    foreign("type", KeyType::Text),
    foreign("command", KeyType::Templates),
    alias("environment", KeyType::ScalarEnvMap, "env"),
    foreign("cwd", KeyType::Template),
    foreign("url", KeyType::Template),
    foreign("headers", KeyType::ScalarMap),
    foreign("enabled", KeyType::Flag),
    foreign("disabled", KeyType::Flag),
])
// Read separately, because it has two formats.
.ignoring(&["timeout"]);

static OPENCODE_TIMEOUT: TableKeys =
    foreign_table(&[foreign("startup", KeyType::Millis), foreign("request", KeyType::Millis)]);

/// Reads the config of `OpenCode`.
pub(super) fn opencode(diagnostics: &Diagnostics<'_>, root: &Node) -> Vec<ServerEntry> {
    let mcp = root.get("mcp");
    // With a `type` it is a server of the first format that is named `servers`.
    let second = mcp.and_then(|mcp| mcp.get("servers")).filter(|mcp| mcp.get("type").is_none());
    let (map, path) = match second {
        Some(servers) => (Some(servers), "mcp.servers"),
        None => (mcp, "mcp"),
    };
    servers(diagnostics, path, map, |path, member| {
        Some(opencode_server(diagnostics, path, &member.value))
    })
}

fn opencode_server<'d>(diagnostics: &'d Diagnostics<'d>, path: &str, node: &Node) -> RawServer<'d> {
    let mut fields = table_reader::read(diagnostics, &OPENCODE, path, node);
    let mut server = RawServer::from_table(&mut fields);
    server.transport = transport_kind(&mut fields);
    let mut command = fields.take::<Vec<String>>("command").unwrap_or_default().into_iter();
    // An empty list becomes an empty command, so that the diagnostic says so.
    server.command = command.next().or_else(|| fields.place.has("command").then(String::new));
    server.args = command.collect();
    for n in 0..server.args.len() {
        let at = fields.place.location(&format!("command[{}]", n + 1));
        server.place.locations().insert(format!("args[{n}]").into(), at);
    }
    if let Some(timeout) = node.get("timeout") {
        // A bare number is read as the member `startup`.
        let startup = Member { key: "startup".to_owned(), at: timeout.at, value: timeout.clone() };
        let bare = Node { at: timeout.at, value: Value::Table(vec![startup].into()) };
        let table = if timeout.is_table() { timeout } else { &bare };
        let path = fields.place.field("timeout");
        let mut fields = table_reader::read(diagnostics, &OPENCODE_TIMEOUT, &path, table);
        server.settings = Settings {
            startup_timeout: fields.take("startup"),
            timeout: fields.take("request"),
            ..Settings::default()
        };
    }
    translate(&mut server, ReferenceSyntax::Braces);
    server
}

static VSCODE: TableKeys = foreign_table(&[
    foreign("type", KeyType::Text),
    foreign("command", KeyType::Template),
    foreign("args", KeyType::Templates),
    foreign("env", KeyType::ScalarEnvMap),
    foreign("cwd", KeyType::Template),
    foreign("url", KeyType::Template),
    foreign("headers", KeyType::ScalarMap),
    foreign("disabled", KeyType::Flag),
])
.ignoring(&["gallery", "version", "dev"]);

/// Reads the config of VS Code.
pub(super) fn vscode(diagnostics: &Diagnostics<'_>, root: &Node) -> Vec<ServerEntry> {
    let (home, path) = match root.get("servers") {
        Some(_) => (Some(root), "servers"),
        None => (root.get("mcp"), "mcp.servers"),
    };
    let inputs = vscode_inputs(diagnostics, home.and_then(|home| home.get("inputs")));
    let map = home.and_then(|home| home.get("servers"));
    servers(diagnostics, path, map, |path, member| {
        let syntax = ReferenceSyntax::Editor(&inputs);
        let (mut server, mut fields) = server(diagnostics, &VSCODE, syntax, path, &member.value);
        server.transport = transport_kind(&mut fields);
        Some(server)
    })
}

/// Inputs and their defaults. A password never has a default.
fn vscode_inputs(
    diagnostics: &Diagnostics<'_>,
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

static ZED: TableKeys = foreign_table(&[
    foreign("command", KeyType::Template),
    foreign("args", KeyType::Templates),
    foreign("env", KeyType::ScalarEnvMap),
    foreign("timeout", KeyType::Seconds),
    foreign("url", KeyType::Template),
    foreign("headers", KeyType::ScalarMap),
    foreign("enabled", KeyType::Flag),
])
.ignoring(&["source", "remote", "settings"]);

/// The older format, with a table as command.
static OLD_ZED: TableKeys = foreign_table(&[
    foreign("command", KeyType::Table(&OLD_ZED_COMMAND)),
    foreign("enabled", KeyType::Flag),
])
.ignoring(&["source", "settings"]);

static OLD_ZED_COMMAND: TableKeys = foreign_table(&[
    alias("path", KeyType::Template, "command"),
    foreign("args", KeyType::Templates),
    foreign("env", KeyType::ScalarEnvMap),
    foreign("timeout", KeyType::Seconds),
]);

/// Reads the config of Zed.
pub(super) fn zed(diagnostics: &Diagnostics<'_>, root: &Node) -> Vec<ServerEntry> {
    let map = root.get("context_servers");
    servers(diagnostics, "context_servers", map, |path, member| {
        let node = &member.value;
        if node.is_table() && node.get("command").is_none() && node.get("url").is_none() {
            let message = "is run by a Zed extension and cannot be imported";
            diagnostics.warn(DiagnosticKind::Unsupported, member.at, path, message);
            return None;
        }
        let is_old = node.get("command").is_some_and(Node::is_table);
        let keys = if is_old { &OLD_ZED } else { &ZED };
        let mut fields = table_reader::read(diagnostics, keys, path, node);
        let mut server = match fields.table("command") {
            Some(mut command) => {
                let enabled = fields.take("enabled");
                RawServer { enabled, ..RawServer::from_table(&mut command) }
            }
            None => RawServer::from_table(&mut fields),
        };
        translate(&mut server, ReferenceSyntax::Plain);
        Some(server)
    })
}

/// Reference syntax of a tool.
#[derive(Debug, Clone, Copy)]
enum ReferenceSyntax<'i> {
    /// None.
    Plain,
    /// `${VAR}` and `${VAR:-default}`.
    Shell,
    /// The same, plus `${env:VAR}`, `${input:id}` and editor variables. Inputs come with their
    /// defaults.
    Editor(&'i HashMap<String, Option<String>>),
    /// `{env:VAR}` and `{file:path}`.
    Braces,
}

/// Variables that only an editor can expand.
const EDITOR: [&str; 6] =
    ["workspaceFolder", "workspaceFolderBasename", "pathSeparator", "cwd", "fileDirname", "file"];

/// Translates every text of a server.
fn translate(server: &mut RawServer<'_>, syntax: ReferenceSyntax<'_>) {
    let place = server.place.clone();
    for (field, text, _) in server.texts() {
        for variable in editor_variables(text, syntax) {
            let message =
                format!("`${{{variable}}}` is an editor variable; write the path instead");
            place.warn(DiagnosticKind::Unsupported, &field, &message);
        }
        *text = translated(text, syntax);
    }
}

fn translated(text: &str, syntax: ReferenceSyntax<'_>) -> String {
    match syntax {
        ReferenceSyntax::Plain => escaped(text),
        ReferenceSyntax::Shell | ReferenceSyntax::Editor(_) => dollars(text, syntax),
        ReferenceSyntax::Braces => braces(text),
    }
}

fn dollars(text: &str, syntax: ReferenceSyntax<'_>) -> String {
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once("${") {
        translated.push_str(before);
        let Some((inner, tail)) = tail.split_once('}') else {
            // Without a closing brace it is no reference.
            translated.push_str(&escaped("${"));
            rest = tail;
            continue;
        };
        translated.push_str(&reference(inner, syntax));
        rest = tail;
    }
    translated.push_str(rest);
    translated
}

fn reference(inner: &str, syntax: ReferenceSyntax<'_>) -> String {
    let name = inner.split_once(":-").map_or(inner, |parts| parts.0);
    let word = !name.is_empty()
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    let inputs = match syntax {
        ReferenceSyntax::Editor(inputs) => Some(inputs),
        _ => None,
    };
    match (inputs, inner.split_once(':')) {
        (Some(_), Some(("env", _))) => format!("${{{inner}}}"),
        (Some(inputs), Some(("input", id))) => match inputs.get(id) {
            // A brace would end the reference.
            Some(Some(default)) => format!("${{secret:{id}:-{}}}", default.replace('}', "")),
            _ => format!("${{secret:{id}}}"),
        },
        (Some(_), None) if inner == "userHome" => "${HOME}".to_owned(),
        _ if word => format!("${{{inner}}}"),
        _ => escaped(&format!("${{{inner}}}")),
    }
}

fn braces(text: &str) -> String {
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = ["{env:", "{file:"].iter().filter_map(|value| rest.find(value)).min() {
        let (before, tail) = rest.split_at(at);
        let Some((inner, tail)) = tail.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        else {
            break;
        };
        translated.push_str(&escaped(before));
        translated.extend(["${", inner, "}"]);
        rest = tail;
    }
    translated.push_str(&escaped(rest));
    translated
}

fn editor_variables<'t>(text: &'t str, syntax: ReferenceSyntax<'_>) -> Vec<&'t str> {
    if !matches!(syntax, ReferenceSyntax::Editor(_)) {
        return Vec::new();
    }
    let inner = |value: &'t str| value.split_once('}').map(|parts| parts.0);
    text.split("${").skip(1).filter_map(inner).filter(|part| EDITOR.contains(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(syntax: ReferenceSyntax<'_>, theirs: &str, ours: &str) {
        assert_eq!(translated(theirs, syntax), ours, "{theirs}");
    }

    #[test]
    fn references_keep_their_meaning() {
        check(ReferenceSyntax::Plain, "a ${B}", "a $${B}");
        check(ReferenceSyntax::Shell, "Bearer ${B:-c}", "Bearer ${B:-c}");
        check(ReferenceSyntax::Shell, "${env:B} ${v%.*} ${open", "$${env:B} $${v%.*} $${open");
        check(
            ReferenceSyntax::Braces,
            "x {env:A}/{file:~/k} ${B} {env:",
            "x ${env:A}/${file:~/k} $${B} {env:",
        );
        let inputs = HashMap::from([
            ("key".to_owned(), None),
            ("host".to_owned(), Some("localhost".to_owned())),
        ]);
        let editor = ReferenceSyntax::Editor(&inputs);
        check(editor, "${env:A} ${A}", "${env:A} ${A}");
        check(editor, "${input:key}@${input:host}", "${secret:key}@${secret:host:-localhost}");
        check(editor, "${userHome}/x", "${HOME}/x");
        check(editor, "${config:a.b}", "$${config:a.b}");
        assert_eq!(editor_variables("${workspaceFolder}/a ${A}", editor), ["workspaceFolder"]);
    }
}
