//! Config formats ("dialects") of Toolrack and other tools: detection and reading.
//!
//! Files of other tools are read, never written. They become the same data as our own file.

mod codex;
mod goose;
mod mcp_servers;
mod opencode;
mod variables;
mod vscode;
mod zed;

use crate::config_file::{ConfigFile, ServerEntry};
use crate::diagnostics::{DiagnosticKind, Diagnostics, Parsed};
use crate::raw_server::{RawServer, TransportKind};
use crate::suggest::suggest;
use crate::table_reader::{TableReader, join};
use crate::toolrack_toml;
use crate::tree::{self, Format, Member, Node, Value};

/// Format of a config file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `toolrack.toml`, also Spacebot's format: TOML with `[[defaults.mcp]]`.
    #[default]
    Toolrack,
    /// JSON with `mcpServers`, of no specific tool. Times are milliseconds.
    McpServers,
    /// `.mcp.json` and `.claude.json`: `mcpServers`, also per project. Times are milliseconds.
    ClaudeCode,
    /// `claude_desktop_config.json`: `mcpServers`, without references.
    ClaudeDesktop,
    /// `.cursor/mcp.json`: `mcpServers`. Times are milliseconds.
    Cursor,
    /// `mcp_config.json`: `mcpServers` with `serverUrl`. Times are milliseconds.
    Windsurf,
    /// `mcp.json` of LM Studio: `mcpServers`. Times are milliseconds.
    LmStudio,
    /// `cline_mcp_settings.json`, also of Roo: `mcpServers`. Times are seconds.
    Cline,
    /// `.vscode/mcp.json` and `settings.json`: `servers` and `inputs`.
    VsCode,
    /// `settings.json` of Zed: `context_servers`. Times are seconds.
    Zed,
    /// `config.toml` of Codex: `[mcp_servers.*]`. Key names contain the unit.
    Codex,
    /// `opencode.json`: `mcp`, in both formats. Times are milliseconds.
    OpenCode,
    /// `config.yaml` of goose: `extensions`. Times are seconds.
    Goose,
}

/// Result of the format detection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detection {
    /// The format.
    pub dialect: Dialect,
    /// Reason, for display.
    pub reason: String,
}

/// Detects the format of a file, by content first and file name second.
pub fn detect(file: &str, text: &str) -> Detection {
    let mut diagnostics = Diagnostics::new(file, text);
    let format = detect_syntax(file, diagnostics.text());
    let root = tree::read(format, &mut diagnostics);
    detect_dialect(file, format, &root)
}

/// Reads a config file of any format. The file name is used in messages and as a hint only.
pub fn read(file: &str, text: &str) -> Parsed<ConfigFile> {
    let mut diagnostics = Diagnostics::new(file, text);
    let format = detect_syntax(file, diagnostics.text());
    let root = tree::read(format, &mut diagnostics);
    let Detection { dialect, .. } = detect_dialect(file, format, &root);
    finish(dialect, diagnostics, &root)
}

/// Reads a config file as the given format.
pub fn read_as(dialect: Dialect, file: &str, text: &str) -> Parsed<ConfigFile> {
    let mut diagnostics = Diagnostics::new(file, text);
    let root = tree::read(syntax_of(dialect), &mut diagnostics);
    finish(dialect, diagnostics, &root)
}

fn finish(dialect: Dialect, mut diagnostics: Diagnostics<'_>, root: &Node) -> Parsed<ConfigFile> {
    let diagnostics_ref = &mut diagnostics;
    let file = match dialect {
        Dialect::Toolrack => toolrack_toml::read(diagnostics_ref, root),
        Dialect::VsCode => vscode::read(diagnostics_ref, root),
        Dialect::Zed => zed::read(diagnostics_ref, root),
        Dialect::Codex => codex::read(diagnostics_ref, root),
        Dialect::OpenCode => opencode::read(diagnostics_ref, root),
        Dialect::Goose => goose::read(diagnostics_ref, root),
        _ => mcp_servers::read(diagnostics_ref, root, dialect),
    };
    Parsed { value: ConfigFile { dialect, ..file }, diagnostics: diagnostics.into_vec() }
}

/// Reads a map of servers by name. `each` converts one of them, or reports why it is skipped.
fn servers(
    diagnostics: &mut Diagnostics<'_>,
    path: &str,
    map: Option<&Node>,
    mut each: impl FnMut(&mut Diagnostics<'_>, &str, &Member) -> Option<RawServer>,
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
        if let Some(mut server) = each(diagnostics, &path, member) {
            server.name.clone_from(&member.key);
            server.at = member.at;
            // The name is the key of the map, so a diagnostic about it points there.
            server.locations.insert("name".to_owned(), member.at);
            entries.extend(server.accept(diagnostics));
        }
    }
    entries
}

/// Transport words of all tools.
const WORDS: [(&str, TransportKind); 11] = [
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

/// Transport of a tool's word.
fn transport_kind(
    diagnostics: &mut Diagnostics<'_>,
    fields: &mut TableReader<'_>,
) -> Option<TransportKind> {
    let word = fields.text("type")?;
    // Tools disagree about the spelling: `streamableHttp`, `streamable-http`, `streamable_http`.
    let known = WORDS.iter().find(|item| item.0.eq_ignore_ascii_case(&word));
    if known.is_none() {
        let message = format!("unknown transport `{word}`");
        fields.error(diagnostics, DiagnosticKind::Invalid, "type", &message);
        let near = suggest(&word, WORDS.iter().map(|word| word.0));
        diagnostics.suggest(&fields.field("type"), near);
    }
    known.map(|known| known.1)
}

/// Syntax of a text, by extension or by its first character.
fn detect_syntax(file: &str, text: &str) -> Format {
    let extension = file.rsplit_once('.').map(|parts| parts.1.to_ascii_lowercase());
    match extension.as_deref() {
        Some("toml") => Format::Toml,
        Some("json" | "jsonc" | "json5") => Format::Jsonc,
        Some("yaml" | "yml") => Format::Yaml,
        // A slash starts a comment, as in settings files of editors.
        _ if text.trim_start().starts_with(['{', '/']) => Format::Jsonc,
        _ if text.lines().any(|line| line.trim_end() == "extensions:") => Format::Yaml,
        _ => Format::Toml,
    }
}

/// Syntax of a dialect.
fn syntax_of(dialect: Dialect) -> Format {
    match dialect {
        Dialect::Toolrack | Dialect::Codex => Format::Toml,
        Dialect::Goose => Format::Yaml,
        _ => Format::Jsonc,
    }
}

/// Detects the dialect, with the reason.
fn detect_dialect(file: &str, format: Format, root: &Node) -> Detection {
    let found = |dialect, reason: &str| Detection { dialect, reason: reason.to_owned() };
    let table = |key| root.get(key).is_some_and(Node::is_table);
    match format {
        Format::Toml
            if root.get("defaults").is_some_and(|defaults| defaults.get("mcp").is_some()) =>
        {
            found(Dialect::Toolrack, "it has `[[defaults.mcp]]`")
        }
        Format::Toml if table("mcp_servers") => found(Dialect::Codex, "it has `[mcp_servers]`"),
        Format::Toml => found(Dialect::Toolrack, "it is TOML without `[mcp_servers]`"),
        Format::Yaml if root.get("mcpServers").is_none() => {
            found(Dialect::Goose, "it is YAML without `mcpServers`")
        }
        _ if table("context_servers") => found(Dialect::Zed, "it has `context_servers`"),
        _ if table("mcpServers") => by_name(file, root),
        _ if table("servers") => found(Dialect::VsCode, "it has `servers`"),
        _ => match root.get("mcp") {
            Some(mcp) if is_vscode(mcp) => found(Dialect::VsCode, "it has `mcp.servers`"),
            Some(_) => found(Dialect::OpenCode, "it has `mcp`"),
            None if projects(root) => {
                found(Dialect::ClaudeCode, "it has `projects` with `mcpServers`")
            }
            None if is_bare_map(root) => found(Dialect::McpServers, "it is a map of servers"),
            None => by_name(file, root),
        },
    }
}

/// VS Code and `OpenCode` both write `mcp.servers`, but only `OpenCode` uses `local` and `remote`.
fn is_vscode(mcp: &Node) -> bool {
    let Some(servers) = mcp.get("servers").filter(|servers| servers.is_table()) else {
        return false;
    };
    let opencode = |value: &Node| {
        matches!(value.get("type").and_then(Node::text), Some("local" | "remote"))
            || matches!(value.get("command").map(|command| &command.value), Some(Value::List(_)))
    };
    servers.get("type").is_none() && !servers.members().iter().any(|member| opencode(&member.value))
}

fn projects(root: &Node) -> bool {
    let members = root.get("projects").map(Node::members).unwrap_or_default();
    members.iter().any(|member| member.value.get("mcpServers").is_some())
}

/// Whether the file is a bare map of servers, as often pasted.
fn is_bare_map(root: &Node) -> bool {
    let server = |value: &Node| {
        ["command", "url", "serverUrl", "httpUrl"].iter().any(|key| value.get(key).is_some())
    };
    !root.members().is_empty() && root.members().iter().all(|member| server(&member.value))
}

/// Path fragments of one tool. The first match counts.
const PLACES: [(&str, Dialect); 11] = [
    ("claude_desktop_config", Dialect::ClaudeDesktop),
    (".claude.json", Dialect::ClaudeCode),
    (".mcp.json", Dialect::ClaudeCode),
    ("cline_mcp_settings", Dialect::Cline),
    ("mcp_settings.json", Dialect::Cline),
    (".roo/", Dialect::Cline),
    (".cursor/", Dialect::Cursor),
    (".lmstudio/", Dialect::LmStudio),
    ("lm-studio/", Dialect::LmStudio),
    ("windsurf/", Dialect::Windsurf),
    ("mcp_config.json", Dialect::Windsurf),
];

fn by_name(file: &str, root: &Node) -> Detection {
    // Windows paths, and file systems that ignore case.
    let file = file.replace('\\', "/").to_lowercase();
    let (dialect, reason) = match PLACES.iter().find(|place| file.contains(place.0)) {
        Some((part, dialect)) => (*dialect, format!("the file name contains `{part}`")),
        None if projects(root) => {
            (Dialect::ClaudeCode, "it has `projects` with `mcpServers`".to_owned())
        }
        None if root.get("mcpServers").is_some() => {
            (Dialect::McpServers, "it has `mcpServers`".to_owned())
        }
        None => (Dialect::McpServers, "it is JSON without other hints".to_owned()),
    };
    Detection { dialect, reason }
}
