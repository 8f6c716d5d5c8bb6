//! Whose file is it? Decided by what is in it, and by its name where several tools share a shape.

use super::{Detection, Dialect};
use crate::tree::{Format, Node, Value};

/// What a text is written in: by the end of its name, or by how it begins.
pub(super) fn format(file: &str, text: &str) -> Format {
    let extension = file.rsplit_once('.').map(|it| it.1.to_ascii_lowercase());
    match extension.as_deref() {
        Some("toml") => Format::Toml,
        Some("json" | "jsonc" | "json5") => Format::Jsonc,
        Some("yaml" | "yml") => Format::Yaml,
        _ if text.trim_start().starts_with(['{', '/']) => Format::Jsonc,
        _ if text.lines().any(|it| it.trim_end() == "extensions:") => Format::Yaml,
        _ => Format::Toml,
    }
}

/// What the files of a dialect are written in.
pub(super) fn format_of(dialect: Dialect) -> Format {
    match dialect {
        Dialect::Toolrack | Dialect::Codex => Format::Toml,
        Dialect::Goose => Format::Yaml,
        _ => Format::Jsonc,
    }
}

/// Whose file it is, and what gave it away.
pub(super) fn dialect(file: &str, format: Format, root: &Node) -> Detection {
    let found = |dialect, reason: &str| Detection { dialect, reason: reason.to_owned() };
    let table = |key| root.get(key).is_some_and(Node::is_table);
    match format {
        Format::Toml if root.get("defaults").is_some_and(|it| it.get("mcp").is_some()) => {
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

/// Both editors write `mcp.servers`, but only `OpenCode` says `local` and `remote`.
fn is_vscode(mcp: &Node) -> bool {
    let Some(servers) = mcp.get("servers").filter(|it| it.is_table()) else { return false };
    let opencode = |it: &Node| {
        matches!(it.get("type").and_then(Node::text), Some("local" | "remote"))
            || matches!(it.get("command").map(|it| &it.value), Some(Value::List(_)))
    };
    servers.get("type").is_none() && !servers.members().iter().any(|it| opencode(&it.value))
}

fn projects(root: &Node) -> bool {
    let members = root.get("projects").map(Node::members).unwrap_or_default();
    members.iter().any(|it| it.value.get("mcpServers").is_some())
}

/// Whether the file is what others write under `mcpServers`, as it is often pasted.
pub(super) fn is_bare_map(root: &Node) -> bool {
    let server = |it: &Node| {
        ["command", "url", "serverUrl", "httpUrl"].iter().any(|key| it.get(key).is_some())
    };
    !root.members().is_empty() && root.members().iter().all(|it| server(&it.value))
}

/// Parts of paths that belong to one tool. The first that fits counts.
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
    let file = file.replace('\\', "/").to_lowercase();
    let (dialect, reason) = match PLACES.iter().find(|it| file.contains(it.0)) {
        Some((part, dialect)) => (*dialect, format!("it is called `{part}`")),
        None if projects(root) => {
            (Dialect::ClaudeCode, "it has `projects` with `mcpServers`".to_owned())
        }
        None if root.get("mcpServers").is_some() => {
            (Dialect::McpServers, "it has `mcpServers`".to_owned())
        }
        None => (Dialect::McpServers, "it is JSON, and nothing in it tells more".to_owned()),
    };
    Detection { dialect, reason }
}
