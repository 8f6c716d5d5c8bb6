//! Config formats ("dialects") of Toolrack and other tools: detection and reading.
//!
//! Files of other tools are read, never written. They become the same data as our own file.

mod other_tools;

use crate::config_file::ConfigFile;
use crate::diagnostics::{Diagnostics, Parsed};
use crate::toolrack_toml;
use crate::tree::{self, Format, Node, Value};

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

/// Detects the format of a file, by content first and file name second.
pub fn detect(file: &str, text: &str) -> Dialect {
    read(file, text).value.dialect
}

/// Reads a config file of any format. The file name is used in messages and as a hint only.
pub fn read(file: &str, text: &str) -> Parsed<ConfigFile> {
    let diagnostics = Diagnostics::new(file, text);
    let format = detect_syntax(file, diagnostics.text());
    let root = tree::read(format, &diagnostics);
    finish(detect_dialect(file, format, &root), diagnostics, &root)
}

/// Reads a config file as the given format.
pub fn read_as(dialect: Dialect, file: &str, text: &str) -> Parsed<ConfigFile> {
    let diagnostics = Diagnostics::new(file, text);
    let root = tree::read(syntax_of(dialect), &diagnostics);
    finish(dialect, diagnostics, &root)
}

fn finish(dialect: Dialect, diagnostics: Diagnostics<'_>, root: &Node) -> Parsed<ConfigFile> {
    let of_servers = |defaults| ConfigFile { defaults, ..ConfigFile::default() };
    let file = match dialect {
        Dialect::Toolrack => toolrack_toml::read(&diagnostics, root),
        Dialect::VsCode => of_servers(other_tools::vscode(&diagnostics, root)),
        Dialect::Zed => of_servers(other_tools::zed(&diagnostics, root)),
        Dialect::Codex => of_servers(other_tools::codex(&diagnostics, root)),
        Dialect::OpenCode => of_servers(other_tools::opencode(&diagnostics, root)),
        Dialect::Goose => of_servers(other_tools::goose(&diagnostics, root)),
        _ => other_tools::mcp_servers(&diagnostics, root, dialect),
    };
    Parsed { value: ConfigFile { dialect, ..file }, diagnostics: diagnostics.into_vec() }
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

fn detect_dialect(file: &str, format: Format, root: &Node) -> Dialect {
    let table = |key| root.get(key).is_some_and(Node::is_table);
    let has_defaults = || root.get("defaults").is_some_and(|table| table.get("mcp").is_some());
    match format {
        Format::Toml if table("mcp_servers") && !has_defaults() => Dialect::Codex,
        Format::Toml => Dialect::Toolrack,
        Format::Yaml if root.get("mcpServers").is_none() => Dialect::Goose,
        _ if table("context_servers") => Dialect::Zed,
        _ if table("mcpServers") => by_name(file, root),
        _ if table("servers") => Dialect::VsCode,
        _ => match root.get("mcp") {
            Some(mcp) if is_vscode(mcp) => Dialect::VsCode,
            Some(_) => Dialect::OpenCode,
            None if has_projects(root) => Dialect::ClaudeCode,
            None if is_bare_map(root) => Dialect::McpServers,
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

fn has_projects(root: &Node) -> bool {
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

fn by_name(file: &str, root: &Node) -> Dialect {
    // Windows paths, and file systems that ignore case.
    let file = file.replace('\\', "/").to_lowercase();
    match PLACES.iter().find(|place| file.contains(place.0)) {
        Some((_, dialect)) => *dialect,
        None if has_projects(root) => Dialect::ClaudeCode,
        None => Dialect::McpServers,
    }
}
