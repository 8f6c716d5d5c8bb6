//! Other MCP clients: their names and the usual locations of their configs.

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use toolrack_config::Dialect;

use crate::args::servers::SourceTool;

/// Base directories to search.
#[derive(Debug, Clone)]
pub(crate) struct SearchDirs {
    pub(crate) home: PathBuf,
    /// `$XDG_CONFIG_HOME` or `~/.config`.
    pub(crate) config: PathBuf,
}

impl SourceTool {
    /// Parses a tool's name, ignoring hyphens and case.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_', ' '], "");
        let is_meant = |tool: &&Self| plain(&tool.name()) == plain(word);
        let found = Self::value_variants().iter().find(is_meant).copied();
        // The product is named Claude Code, the option `claude`.
        found.or_else(|| (plain(word) == "claudecode").then_some(Self::Claude))
    }

    /// Name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Format of its files.
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Self::Claude => Dialect::ClaudeCode,
            Self::ClaudeDesktop => Dialect::ClaudeDesktop,
            Self::Cursor => Dialect::Cursor,
            Self::Vscode => Dialect::VsCode,
            Self::Codex => Dialect::Codex,
            Self::Zed => Dialect::Zed,
            Self::Windsurf => Dialect::Windsurf,
            Self::Opencode => Dialect::OpenCode,
            Self::Goose => Dialect::Goose,
            Self::Lmstudio => Dialect::LmStudio,
        }
    }

    /// Usual config files, on Linux and macOS.
    pub(crate) fn files(self, dirs: &SearchDirs) -> Vec<PathBuf> {
        let home = |path: &str| dirs.home.join(path);
        let config = |path: &str| dirs.config.join(path);
        let mac = |path: &str| dirs.home.join("Library/Application Support").join(path);
        match self {
            Self::Claude => vec![home(".claude.json")],
            Self::ClaudeDesktop => {
                let name = "Claude/claude_desktop_config.json";
                vec![config(name), mac(name)]
            }
            Self::Cursor => vec![home(".cursor/mcp.json")],
            Self::Vscode => ["Code/User/mcp.json", "Code/User/settings.json"]
                .into_iter()
                .flat_map(|path| [config(path), mac(path)])
                .collect(),
            Self::Codex => vec![home(".codex/config.toml")],
            Self::Zed => vec![config("zed/settings.json")],
            Self::Windsurf => vec![home(".codeium/windsurf/mcp_config.json")],
            Self::Opencode => {
                vec![config("opencode/opencode.json"), config("opencode/opencode.jsonc")]
            }
            Self::Goose => vec![config("goose/config.yaml")],
            Self::Lmstudio => vec![home(".lmstudio/mcp.json")],
        }
    }

    /// The usual config files that exist.
    pub(crate) fn existing_files(self, dirs: &SearchDirs) -> Vec<PathBuf> {
        self.files(dirs).into_iter().filter(|path: &PathBuf| Path::is_file(path)).collect()
    }
}

/// Display name of the tool that uses a format.
pub(crate) fn dialect_name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Toolrack => "toolrack",
        Dialect::ClaudeCode => "Claude Code",
        Dialect::ClaudeDesktop => "Claude Desktop",
        Dialect::Cursor => "Cursor",
        Dialect::Windsurf => "Windsurf",
        Dialect::LmStudio => "LM Studio",
        Dialect::Cline => "Cline",
        Dialect::VsCode => "VS Code",
        Dialect::Zed => "Zed",
        Dialect::Codex => "Codex",
        Dialect::OpenCode => "OpenCode",
        Dialect::Goose => "goose",
        _ => "generic `mcpServers`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_parse() {
        for tool in SourceTool::value_variants() {
            assert_eq!(SourceTool::parse(&tool.name()), Some(*tool));
        }
        assert_eq!(SourceTool::parse("VS-Code"), Some(SourceTool::Vscode));
        assert_eq!(SourceTool::parse("lm-studio"), Some(SourceTool::Lmstudio));
        assert_eq!(SourceTool::parse("claude-code"), Some(SourceTool::Claude));
        assert_eq!(SourceTool::parse("emacs"), None);
    }

    #[test]
    fn config_files_are_below_home() {
        let dirs = SearchDirs { home: "/u".into(), config: "/c".into() };
        assert_eq!(SourceTool::Cursor.files(&dirs), [Path::new("/u/.cursor/mcp.json")]);
        assert_eq!(SourceTool::Goose.files(&dirs), [Path::new("/c/goose/config.yaml")]);
        for tool in SourceTool::value_variants() {
            assert!(!tool.files(&dirs).is_empty());
        }
    }
}
