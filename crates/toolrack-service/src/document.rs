//! Format-preserving editor for the config file: one server entry changes, the rest of the file stays byte for byte the same.
//!
//! **Invariant:** outside of the edited entry every byte stays: comments, order, spacing, line endings, unknown keys.
//! **Invariant:** no two entries have the same id, and an entry without an id keeps the derived one when it is
//! first written.
//! **Invariant:** no IO.

pub(crate) mod entry;
mod server_tables;

use std::collections::HashSet;
use std::fmt;

use entry::JsonMap;
use serde_json::Value;
pub use server_tables::ConfigScope;
use server_tables::TablePos;
use sha2::{Digest as _, Sha256};
use toml_edit::DocumentMut;
use toolrack_config::{
    ConfigFile, Diagnostic, DiagnosticKind, Dialect, ServerEntry, Severity, read_as,
};
use uuid::{Builder, Uuid};

use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::service::{Enabled, McpConfig};

/// An editable config file.
#[derive(Clone)]
pub struct Document {
    original: String,
    edited: DocumentMut,
}

/// One configured server and its scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Which agents have the server.
    pub scope: ConfigScope,
    /// Its config. The id is never nil: if the file has none, it is derived from scope and name, and written with the
    /// next change.
    pub config: McpConfig,
}

/// Parses a config file. Returns its warnings too. `file` is its name in messages.
///
/// # Errors
///
/// Every diagnostic of the text.
pub(crate) fn read(file: &str, text: &str) -> Result<(ConfigFile, Vec<Diagnostic>), ServiceError> {
    read_as(Dialect::Toolrack, file, text)
        .accept()
        .map_err(|diagnostics| config_error(&diagnostics))
}

/// All servers of a file with their ids: the defaults first, then those of each agent.
pub(crate) fn entries_with_ids(file: &ConfigFile) -> Vec<(ConfigScope, &ServerEntry, Uuid)> {
    let defaults = file.defaults.iter().map(|entry| (ConfigScope::Defaults, entry));
    let agents = file.agents.iter().flat_map(|agent| {
        agent.mcp.iter().map(|entry| (ConfigScope::Agent(agent.id.clone()), entry))
    });
    let entries: Vec<(ConfigScope, &ServerEntry)> = defaults.chain(agents).collect();
    let ids = entry_ids(entries.iter().map(|(scope, entry)| {
        (scope, entry.name.as_str(), entry.id.as_deref().and_then(parse_id))
    }));
    entries.into_iter().zip(ids).map(|((scope, entry), id)| (scope, entry, id)).collect()
}

impl Document {
    /// Parses a valid config file; `file` is its name in messages.
    ///
    /// # Errors
    ///
    /// Every diagnostic of the text, each with file, line and column.
    pub fn parse(file: &str, text: &str) -> Result<Self, ServiceError> {
        // Through the config reader first: its diagnostics have a field and a place, those of the
        // editor have neither.
        read(file, text)?;
        // Windows editors write a byte order mark; `text` puts it back.
        let bare = text.strip_prefix('\u{feff}').unwrap_or(text);
        match bare.parse() {
            Ok(edited) => Ok(Self { original: text.to_owned(), edited }),
            // `read` has accepted the text with another TOML parser; the two differ in rare cases.
            Err(error) => {
                let message = format!("{file}: not valid TOML: {}", error.message());
                Err(ServiceError::new(ErrorCode::ValidationError, message))
            }
        }
    }

    /// The edited text.
    pub fn text(&self) -> String {
        preserve_lines(&self.original, &self.edited.to_string())
    }

    /// All servers: the defaults first, then those of each agent, in file order.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries_with_pos().into_iter().map(|(_, entry)| entry).collect()
    }

    /// The server with this id.
    pub fn get(&self, id: Uuid) -> Option<Entry> {
        self.entries().into_iter().find(|entry| entry.config.id == id)
    }

    /// The server with this name in a scope.
    pub fn find(&self, scope: &ConfigScope, name: &str) -> Option<Entry> {
        self.entries().into_iter().find(|entry| entry.scope == *scope && entry.config.name == name)
    }

    /// Adds a server at the end of its list. Returns its id, which is new if the config has none.
    ///
    /// # Errors
    ///
    /// The name or the id is taken, or TOML cannot represent the config.
    pub fn add(&mut self, scope: &ConfigScope, config: &McpConfig) -> Result<Uuid, ServiceError> {
        let entries = self.entries();
        if entries.iter().any(|entry| entry.scope == *scope && entry.config.name == config.name) {
            return Err(name_taken(&config.name));
        }
        let id = if config.id.is_nil() { Uuid::new_v4() } else { config.id };
        if entries.iter().any(|entry| entry.config.id == id) {
            let message = "another server has this id";
            return Err(ErrorDetail::new(ErrorCode::Conflict, message).with_field("id").into());
        }
        let config = McpConfig { id, ..config.clone() };
        let row = entry::write(&config, &JsonMap::new())?;
        let misplaced = || ServiceError::new(ErrorCode::Internal, "the config has no server list");
        server_tables::push(&mut self.edited, scope, &row).ok_or_else(misplaced)?;
        Ok(id)
    }

    /// Replaces the config of a server in its scope. Values that do not change keep their formatting.
    ///
    /// # Errors
    ///
    /// The id is unknown, the name is taken, or TOML cannot represent the config.
    pub fn replace(&mut self, config: &McpConfig) -> Result<(), ServiceError> {
        let entries = self.entries_with_pos();
        let (pos, old) = find_by_id(&entries, config.id)?;
        let same_name =
            |entry: &Entry| entry.scope == old.scope && entry.config.name == config.name;
        if entries.iter().any(|(_, entry)| entry.config.id != config.id && same_name(entry)) {
            return Err(name_taken(&config.name));
        }
        let table = server_tables::row_mut(&mut self.edited, *pos);
        let table = table.ok_or_else(|| unknown_id(config.id))?;
        let row = entry::write(config, &server_tables::table_to_json(table))?;
        server_tables::merge(table, &row);
        Ok(())
    }

    /// Removes a server and the comment directly above it.
    ///
    /// # Errors
    ///
    /// The id is unknown.
    pub fn remove(&mut self, id: Uuid) -> Result<Entry, ServiceError> {
        let entries = self.entries_with_pos();
        let (pos, entry) = find_by_id(&entries, id)?;
        server_tables::remove(&mut self.edited, *pos);
        Ok(entry.clone())
    }

    /// Enables or disables a server.
    ///
    /// # Errors
    ///
    /// The id is unknown.
    pub fn set_enabled(&mut self, id: Uuid, enabled: Enabled) -> Result<(), ServiceError> {
        let entry = self.get(id).ok_or_else(|| unknown_id(id))?;
        self.replace(&McpConfig { enabled: enabled == Enabled::Yes, ..entry.config })
    }

    /// Writes the id of every server that has none in the file. Returns how many were written.
    pub fn assign_ids(&mut self) -> usize {
        let mut n_assigned = 0;
        for (pos, Entry { config: McpConfig { id, .. }, .. }) in self.entries_with_pos() {
            let Some(table) = server_tables::row_mut(&mut self.edited, pos) else { continue };
            let mut row = server_tables::table_to_json(table);
            if stated_id(&row) != Some(id) {
                row.insert("id".to_owned(), Value::from(id.to_string()));
                server_tables::merge(table, &row);
                n_assigned += 1;
            }
        }
        n_assigned
    }

    fn entries_with_pos(&self) -> Vec<(TablePos, Entry)> {
        let rows = server_tables::rows(&self.edited);
        let ids = entry_ids(rows.iter().map(|(_, scope, row)| {
            let name = row.get("name").and_then(Value::as_str).unwrap_or_default();
            (scope, name, stated_id(row))
        }));
        let entries = rows.into_iter().zip(ids).map(|((pos, scope, row), id)| {
            (pos, Entry { scope, config: McpConfig { id, ..entry::read(&row) } })
        });
        entries.collect()
    }
}

fn find_by_id(entries: &[(TablePos, Entry)], id: Uuid) -> Result<&(TablePos, Entry), ServiceError> {
    entries.iter().find(|(_, entry)| entry.config.id == id).ok_or_else(|| unknown_id(id))
}

pub(crate) fn unknown_id(id: Uuid) -> ServiceError {
    let message = format!("no server with the id `{id}`");
    ErrorDetail::new(ErrorCode::NotFound, message).with_field("id").into()
}

pub(crate) fn name_taken(name: &str) -> ServiceError {
    let message = format!("the name `{name}` is already taken");
    ErrorDetail::new(ErrorCode::Conflict, message)
        .with_field("name")
        .with_hint("choose another name, or change the server that has it")
        .into()
}

/// Turns the diagnostics of a rejected file into one error.
pub(crate) fn config_error(diagnostics: &[Diagnostic]) -> ServiceError {
    let line = |diagnostic: &Diagnostic| diagnostic.at.map(|at| at.line);
    let syntax_error_lines: HashSet<_> = diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.kind == DiagnosticKind::Syntax)
        .map(line)
        .collect();
    // On a line that is not valid TOML the parser may take a value, perhaps a secret, for a key, and messages quote
    // keys. Such a line is reported by its syntax error only.
    let is_safe = |diagnostic: &&Diagnostic| {
        diagnostic.kind == DiagnosticKind::Syntax || !syntax_error_lines.contains(&line(diagnostic))
    };
    let (errors, warnings): (Vec<&Diagnostic>, Vec<&Diagnostic>) = diagnostics
        .iter()
        .filter(is_safe)
        .partition(|diagnostic| diagnostic.severity == Severity::Error);
    // A misspelled key often explains why a required one is missing.
    let misspelled = warnings.into_iter().filter(|warning| warning.suggestion.is_some());
    let details = errors.into_iter().chain(misspelled).map(|diagnostic| ErrorDetail {
        field: Some(diagnostic.field.clone()).filter(|field| !field.is_empty()),
        hint: diagnostic.suggestion.as_ref().map(|nearest| format!("did you mean `{nearest}`?")),
        ..ErrorDetail::new(ErrorCode::ValidationError, diagnostic.to_string())
    });
    let no_reason =
        || ServiceError::new(ErrorCode::Internal, "the config was rejected without a reason");
    ServiceError::if_any(details.collect()).err().unwrap_or_else(no_reason)
}

/// Omits the text, which may contain secrets.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document").field("n_bytes", &self.original.len()).finish_non_exhaustive()
    }
}

/// The id of each entry, in order. If several entries have the same id, as after copying one by hand, the first keeps
/// it.
fn entry_ids<'a>(
    entries: impl Iterator<Item = (&'a ConfigScope, &'a str, Option<Uuid>)> + Clone,
) -> Vec<Uuid> {
    let mut used = HashSet::new();
    // First the ids in the file: a derived id must not take one that a later entry has.
    let claimed: Vec<Option<Uuid>> =
        entries.clone().map(|(_, _, stated)| stated.filter(|id| used.insert(*id))).collect();
    let each = entries.zip(claimed).map(|((scope, name, _), claimed)| {
        claimed.unwrap_or_else(|| {
            let mut fresh = (0_u32..).map(|n| derived_id(scope, name, n));
            fresh.find(|id| used.insert(*id)).unwrap_or_else(Uuid::new_v4)
        })
    });
    each.collect()
}

fn stated_id(row: &JsonMap) -> Option<Uuid> {
    parse_id(row.get("id")?.as_str()?)
}

fn parse_id(text: &str) -> Option<Uuid> {
    Uuid::parse_str(text).ok().filter(|id| !id.is_nil())
}

/// The id of an entry that has none in the file: a hash, so that every process derives the same one until it is
/// written.
fn derived_id(scope: &ConfigScope, name: &str, n: u32) -> Uuid {
    let mut digest = Sha256::new_with_prefix("toolrack entry\0");
    if let ConfigScope::Agent(agent) = scope {
        digest.update(agent);
    }
    digest.update([0]);
    digest.update(name);
    digest.update(n.to_be_bytes());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
    Builder::from_random_bytes(bytes).into_uuid()
}

/// Takes every line that `edited` shares with `original` from the original.
///
/// The TOML editor ends every line with `\n` and adds one at the end of the file. Lines that differ only in their
/// line ending are taken from the original; new lines use its line ending if that is consistent.
fn preserve_lines(original: &str, edited: &str) -> String {
    let (bom, original) = match original.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", original),
    };
    let old: Vec<&str> = original.split_inclusive('\n').collect();
    let new: Vec<&str> = edited.split_inclusive('\n').collect();
    let is_same =
        |(left, right): &(&&str, &&str)| without_line_end(left) == without_line_end(right);
    // Common lines at both ends are enough: one change touches one place of the file.
    let n_first = old.iter().zip(&new).take_while(is_same).count();
    let rest = old.len().min(new.len()) - n_first;
    let n_last = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(is_same).count();

    let mut terminated = old.iter().filter(|line| line.ends_with('\n')).peekable();
    // A file with mixed line endings gets the plain one for new lines.
    let is_crlf = terminated.peek().is_some() && terminated.all(|line| line.ends_with("\r\n"));
    let end = if is_crlf { "\r\n" } else { "\n" };
    let first = old.iter().take(n_first);
    let middle = new.iter().skip(n_first).take(new.len() - n_first - n_last);
    let last = old.iter().skip(old.len() - n_last);
    let mut text = String::with_capacity(original.len().max(edited.len()) + bom.len());
    text.push_str(bom);
    let mut add = |line: &str, ending: &str| {
        // Only the last line may lack a line ending, and this line may no longer be the last.
        if !text.is_empty() && text != bom && !text.ends_with('\n') {
            text.push_str(end);
        }
        text.push_str(line);
        text.push_str(ending);
    };
    first.for_each(|line| add(line, ""));
    middle.for_each(|line| match line.strip_suffix('\n') {
        Some(line) if !line.ends_with('\r') => add(line, end),
        _ => add(line, ""),
    });
    last.for_each(|line| add(line, ""));
    text
}

fn without_line_end(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod preserve_lines_tests {
    use super::*;

    #[track_caller]
    fn check(original: &str, edited: &str, expected: &str) {
        assert_eq!(preserve_lines(original, edited), expected);
    }

    #[test]
    fn untouched_lines_keep_their_bytes() {
        check("a\nb\n", "a\nb\n", "a\nb\n");
        check("a\r\nb\r\nc", "a\nb\nc\n", "a\r\nb\r\nc");
        check("a\r\nb\r\nc", "a\nx\nc\n", "a\r\nx\r\nc");
        check("a\r\nb", "a\nb\nc\n", "a\r\nb\r\nc\r\n");
        check("a\nb\r\nc\n", "a\nc\n", "a\nc\n");
        check("a\r\nb\nc\n", "a\nx\ny\r\nc\n", "a\r\nx\ny\r\nc\n");
        check("\u{feff}a", "a\nb\n", "\u{feff}a\nb\n");
        check("", "a\n", "a\n");
        check("\u{feff}", "a\n", "\u{feff}a\n");
        check("a\na\n", "a\na\na\n", "a\na\na\n");
        check("a\n", "", "");
    }
}
