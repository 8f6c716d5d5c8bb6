//! Whose format a config file is written in, how we know, and reading it.
//!
//! Files of other tools are read and never written. What they become is the same data as our own file, so
//! nobody further on knows the difference.

mod codex;
mod detect;
mod goose;
mod mcp_servers;
mod opencode;
mod variables;
mod vscode;
mod zed;

use crate::config_file::{ConfigFile, ServerEntry};
use crate::diagnostic::{FaultKind, Reading};
use crate::diagnostics::{Notes, nearest};
use crate::raw_server::{Draft, Way};
use crate::table_reader::join;
use crate::toolrack_toml;
use crate::tree::{self, Member, Node};

/// Whose format a config file is written in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// Ours, which is also that of Spacebot: TOML with `[[defaults.mcp]]`.
    #[default]
    Toolrack,
    /// JSON with `mcpServers`, by nobody in particular. Times are milliseconds.
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
    /// `config.toml` of Codex: `[mcp_servers.*]`. The names of its keys carry their units.
    Codex,
    /// `opencode.json`: `mcp`, in both shapes. Times are milliseconds.
    OpenCode,
    /// `config.yaml` of goose: `extensions`. Times are seconds.
    Goose,
}

/// What a file was taken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detection {
    /// Whose format it is.
    pub dialect: Dialect,
    /// What gave it away, for people.
    pub reason: String,
}

/// Says whose format a file is in, by its content first and its name second.
pub fn detect(file: &str, text: &str) -> Detection {
    let mut notes = Notes::new(file, text);
    let format = detect::format(file, notes.text());
    let root = tree::read(format, &mut notes);
    detect::dialect(file, format, &root)
}

/// Reads a config file of whatever dialect. The name of the file is only used in messages and as a hint.
pub fn read(file: &str, text: &str) -> Reading<ConfigFile> {
    let mut notes = Notes::new(file, text);
    let format = detect::format(file, notes.text());
    let root = tree::read(format, &mut notes);
    let Detection { dialect, .. } = detect::dialect(file, format, &root);
    finish(dialect, notes, &root)
}

/// Reads a config file as one of a dialect, whatever it looks like.
pub fn read_as(dialect: Dialect, file: &str, text: &str) -> Reading<ConfigFile> {
    let mut notes = Notes::new(file, text);
    let root = tree::read(detect::format_of(dialect), &mut notes);
    finish(dialect, notes, &root)
}

fn finish(dialect: Dialect, mut notes: Notes<'_>, root: &Node) -> Reading<ConfigFile> {
    let notes_ref = &mut notes;
    let file = match dialect {
        Dialect::Toolrack => toolrack_toml::read(notes_ref, root),
        Dialect::VsCode => vscode::read(notes_ref, root),
        Dialect::Zed => zed::read(notes_ref, root),
        Dialect::Codex => codex::read(notes_ref, root),
        Dialect::OpenCode => opencode::read(notes_ref, root),
        Dialect::Goose => goose::read(notes_ref, root),
        _ => mcp_servers::read(notes_ref, root, dialect),
    };
    Reading { value: ConfigFile { dialect, ..file }, faults: notes.into_faults() }
}

/// Reads the servers of a map from names to tables. `each` makes a draft of one, or says why there is none.
fn servers(
    notes: &mut Notes<'_>,
    path: &str,
    map: Option<&Node>,
    mut each: impl FnMut(&mut Notes<'_>, &str, &Member) -> Option<Draft>,
) -> Vec<ServerEntry> {
    let Some(map) = map else {
        // In a file that cannot be read nothing is there, which has been said.
        if notes.n_errors() == 0 {
            let message = "is not there, so there are no servers in this file";
            notes.warn(FaultKind::Missing, 0, path, message);
        }
        return Vec::new();
    };
    if !map.is_table() {
        let message = format!("must be a table of servers by name, not {}", map.kind());
        notes.error(FaultKind::WrongType, map.at, path, &message);
    }
    let mut entries = Vec::new();
    for member in map.members() {
        let path = join(path, &member.key);
        if let Some(mut draft) = each(notes, &path, member) {
            draft.name.clone_from(&member.key);
            draft.at = member.at;
            draft.places.insert("name".to_owned(), member.at);
            entries.extend(draft.accept(notes));
        }
    }
    entries
}

/// The words that tools use for the kinds of transport.
const WORDS: [(&str, Way); 11] = [
    ("stdio", Way::Process),
    ("local", Way::Process),
    ("http", Way::Endpoint),
    ("https", Way::Endpoint),
    ("sse", Way::Endpoint),
    ("remote", Way::Endpoint),
    ("streamable-http", Way::Endpoint),
    ("streamable_http", Way::Endpoint),
    ("streamableHttp", Way::Endpoint),
    ("streamable", Way::Endpoint),
    ("http-stream", Way::Endpoint),
];

/// The kind of transport that a word of some tool means.
fn way(notes: &mut Notes<'_>, path: &str, at: usize, word: Option<String>) -> Option<Way> {
    let word = word?;
    let known = WORDS.iter().find(|it| it.0.eq_ignore_ascii_case(&word));
    if known.is_none() {
        let message = format!("`{word}` is not a transport we know");
        notes.error(FaultKind::Invalid, at, path, &message);
        notes.nearest(path, nearest(&word, WORDS.iter().map(|it| it.0)));
    }
    known.map(|it| it.1)
}
