//! Detection of the config format, by content first and by file name second.

use super::{Detection, Dialect};
use crate::tree::{Format, Node, Value};

/// Syntax of a text, by extension or by its first character.
pub(super) fn format(file: &str, text: &str) -> Format {
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
pub(super) fn format_of(dialect: Dialect) -> Format {
    match dialect {
        Dialect::Toolrack | Dialect::Codex => Format::Toml,
        Dialect::Goose => Format::Yaml,
        _ => Format::Jsonc,
    }
}

/// Detects the dialect, with the reason.
pub(super) fn dialect(file: &str, format: Format, root: &Node) -> Detection {
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
pub(super) fn is_bare_map(root: &Node) -> bool {
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
