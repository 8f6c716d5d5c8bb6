//! The config file as a document that can be edited: one entry changes, everything else stays.
//!
//! **Invariant:** what a person wrote outside of the edited entry is kept to the byte: comments, order,
//! spacing, ends of lines, keys that nobody knows.
//! **Invariant:** nothing here does IO.

mod entry;
mod server_tables;
mod toml_json;

use std::collections::HashSet;
use std::fmt;

use entry::Row;
use serde_json::Value;
pub use server_tables::Place;
use server_tables::Spot;
use sha2::{Digest as _, Sha256};
use toml_edit::{DocumentMut, TableLike};
use toolrack_config::{ConfigFile, Dialect, Fault, FaultKind, Severity, read_as};
use uuid::{Builder, Uuid};

use crate::error::{ErrorCode, ServiceError, ServiceFault};
use crate::service::{Enabled, McpConfig};

/// An editable config file.
#[derive(Clone)]
pub struct Document {
    original: String,
    edited: DocumentMut,
}

/// One configured server and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Whose server it is.
    pub place: Place,
    /// What is configured. Its id is never nil: one that the file does not have yet is derived from
    /// place and name, and is the one that will be written.
    pub config: McpConfig,
}

/// What a text says as a config file, and its warnings.
///
/// # Errors
///
/// With every fault of the text; `file` is how messages call it.
pub(crate) fn read(file: &str, text: &str) -> Result<(ConfigFile, Vec<Fault>), ServiceError> {
    read_as(Dialect::Toolrack, file, text).accept().map_err(|faults| refused(&faults))
}

impl Document {
    /// Takes a sound config file; `file` is how messages call it.
    ///
    /// # Errors
    ///
    /// With every fault of the text, each with file, line and column.
    pub fn parse(file: &str, text: &str) -> Result<Self, ServiceError> {
        read(file, text)?;
        let bare = text.strip_prefix('\u{feff}').unwrap_or(text);
        match bare.parse() {
            Ok(edited) => Ok(Self { original: text.to_owned(), edited }),
            // The two parsers are of one family, so this is a fault that the first does not mind.
            Err(error) => {
                let message = format!("{file}: not valid TOML: {}", error.message());
                Err(ServiceError::new(ErrorCode::ValidationError, message))
            }
        }
    }

    /// The file as it is now.
    pub fn text(&self) -> String {
        preserve_lines(&self.original, &self.edited.to_string())
    }

    /// Every server, the defaults first, in the order of the file.
    pub fn entries(&self) -> Vec<Entry> {
        self.spots().into_iter().map(|(_, entry)| entry).collect()
    }

    /// The server with this id.
    pub fn get(&self, id: Uuid) -> Option<Entry> {
        self.entries().into_iter().find(|it| it.config.id == id)
    }

    /// The server with this name in one place.
    pub fn find(&self, place: &Place, name: &str) -> Option<Entry> {
        self.entries().into_iter().find(|it| it.place == *place && it.config.name == name)
    }

    /// Adds a server at the end of its list, and says its id: a new one if it has none.
    ///
    /// # Errors
    ///
    /// When name or id are taken, or it cannot be written down.
    pub fn add(&mut self, place: &Place, config: &McpConfig) -> Result<Uuid, ServiceError> {
        let entries = self.entries();
        if entries.iter().any(|it| it.place == *place && it.config.name == config.name) {
            return Err(taken(&config.name));
        }
        let id = if config.id.is_nil() { Uuid::new_v4() } else { config.id };
        if entries.iter().any(|it| it.config.id == id) {
            let message = "another server has this id";
            return Err(ServiceFault::new(ErrorCode::Conflict, message).at("id").into());
        }
        let config = McpConfig { id, ..config.clone() };
        let row = entry::write(&config, &Row::new())?;
        let misplaced =
            || ServiceError::new(ErrorCode::Internal, "there is no list for the server");
        server_tables::push(&mut self.edited, place, &row).ok_or_else(misplaced)?;
        Ok(id)
    }

    /// Replaces everything that is said of a server, wherever it stands. What is the same as before
    /// stays as it is written.
    ///
    /// # Errors
    ///
    /// When nobody has the id, another has the name, or it cannot be written down.
    pub fn replace(&mut self, config: &McpConfig) -> Result<(), ServiceError> {
        let spots = self.spots();
        let (spot, old) = found(&spots, config.id)?;
        let namesake = |it: &Entry| it.place == old.place && it.config.name == config.name;
        if spots.iter().any(|(_, it)| it.config.id != config.id && namesake(it)) {
            return Err(taken(&config.name));
        }
        self.rewrite(*spot, config)
    }

    /// Forgets a server, with the comment right above it.
    ///
    /// # Errors
    ///
    /// When nobody has the id.
    pub fn remove(&mut self, id: Uuid) -> Result<Entry, ServiceError> {
        let spots = self.spots();
        let (spot, entry) = found(&spots, id)?;
        server_tables::remove(&mut self.edited, *spot);
        Ok(entry.clone())
    }

    /// Allows or forbids a server.
    ///
    /// # Errors
    ///
    /// When nobody has the id.
    pub fn set_enabled(&mut self, id: Uuid, enabled: Enabled) -> Result<(), ServiceError> {
        let spots = self.spots();
        let (spot, entry) = found(&spots, id)?;
        let config = McpConfig { enabled: enabled == Enabled::Yes, ..entry.config.clone() };
        self.rewrite(*spot, &config)
    }

    /// Writes the id of every server that has none in the file, and says how many those were.
    pub fn assign_ids(&mut self) -> usize {
        let spots = self.spots();
        let mut n_assigned = 0;
        for (spot, entry) in spots {
            if let Some(table) = server_tables::row_mut(&mut self.edited, spot) {
                n_assigned += usize::from(assign_id(table, entry.config.id));
            }
        }
        n_assigned
    }

    fn rewrite(&mut self, spot: Spot, config: &McpConfig) -> Result<(), ServiceError> {
        let Some(table) = server_tables::row_mut(&mut self.edited, spot) else {
            return Err(unknown(config.id));
        };
        let row = entry::write(config, &toml_json::row(table))?;
        toml_json::merge(table, &row);
        Ok(())
    }

    fn spots(&self) -> Vec<(Spot, Entry)> {
        let rows = server_tables::rows(&self.edited);
        let ids = entry_ids(rows.iter().map(|(_, place, row)| (place, row)));
        let entries = rows.into_iter().zip(ids).map(|((spot, place, row), id)| {
            (spot, Entry { place, config: McpConfig { id, ..entry::read(&row) } })
        });
        entries.collect()
    }
}

fn found(spots: &[(Spot, Entry)], id: Uuid) -> Result<&(Spot, Entry), ServiceError> {
    spots.iter().find(|(_, it)| it.config.id == id).ok_or_else(|| unknown(id))
}

fn unknown(id: Uuid) -> ServiceError {
    let message = format!("no server has the id `{id}`");
    ServiceFault::new(ErrorCode::NotFound, message).at("id").into()
}

fn taken(name: &str) -> ServiceError {
    let message = format!("another server is called `{name}`");
    ServiceFault::new(ErrorCode::Conflict, message)
        .at("name")
        .hint("choose another name, or change the server that has it")
        .into()
}

fn refused(faults: &[Fault]) -> ServiceError {
    let line = |fault: &Fault| fault.at.map(|at| at.line);
    let garbled: HashSet<_> =
        faults.iter().filter(|it| it.kind == FaultKind::Syntax).map(line).collect();
    // On a line that is no TOML a value may pass for a key, and keys are told.
    let is_sound = |it: &&Fault| it.kind == FaultKind::Syntax || !garbled.contains(&line(it));
    let (errors, odd): (Vec<&Fault>, Vec<&Fault>) =
        faults.iter().filter(is_sound).partition(|it| it.severity == Severity::Error);
    // What may have been meant by a key that nobody knows is why something is missing.
    let odd = odd.into_iter().filter(|it| it.nearest.is_some());
    let told = errors.into_iter().chain(odd).map(|fault| {
        let told = ServiceFault::new(ErrorCode::ValidationError, fault.to_string());
        let told = if fault.field.is_empty() { told } else { told.at(fault.field.clone()) };
        match &fault.nearest {
            Some(nearest) => told.hint(format!("did you mean `{nearest}`?")),
            None => told,
        }
    });
    match ServiceError::unless_empty(told.collect()) {
        Err(error) => error,
        Ok(()) => ServiceError::new(ErrorCode::Internal, "a file was refused without a reason"),
    }
}

/// Without the text, in which people may have put secrets.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document").field("n_bytes", &self.original.len()).finish_non_exhaustive()
    }
}

/// The id of each entry, in order. If several claim the same, as after copying an entry by hand, the first
/// has it.
fn entry_ids<'a>(rows: impl Iterator<Item = (&'a Place, &'a Row)> + Clone) -> Vec<Uuid> {
    let mut used = HashSet::new();
    let claimed: Vec<Option<Uuid>> =
        rows.clone().map(|(_, row)| stated_id(row).filter(|id| used.insert(*id))).collect();
    let each = rows.zip(claimed).map(|((place, row), claimed)| {
        let name = row.get("name").and_then(Value::as_str).unwrap_or_default();
        claimed.unwrap_or_else(|| {
            let mut fresh = (0_u32..).map(|n| derived_id(place, name, n));
            fresh.find(|id| used.insert(*id)).unwrap_or_else(Uuid::new_v4)
        })
    });
    each.collect()
}

/// Writes an id where the file has another or none, and says whether it did.
fn assign_id(table: &mut dyn TableLike, id: Uuid) -> bool {
    let mut row = toml_json::row(table);
    if stated_id(&row) == Some(id) {
        return false;
    }
    row.insert("id".to_owned(), Value::from(id.to_string()));
    toml_json::merge(table, &row);
    true
}

fn stated_id(row: &Row) -> Option<Uuid> {
    let id = Uuid::parse_str(row.get("id")?.as_str()?).ok()?;
    (!id.is_nil()).then_some(id)
}

fn derived_id(place: &Place, name: &str, n: u32) -> Uuid {
    let mut digest = Sha256::new_with_prefix("toolrack entry\0");
    if let Place::Agent(agent) = place {
        digest.update(agent);
    }
    digest.update([0]);
    digest.update(name);
    digest.update(n.to_be_bytes());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
    Builder::from_random_bytes(bytes).into_uuid()
}

/// The edited text, with every line that it shares with the original as it stands there.
fn preserve_lines(original: &str, edited: &str) -> String {
    let (mark, original) = match original.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", original),
    };
    let old: Vec<&str> = original.split_inclusive('\n').collect();
    let new: Vec<&str> = edited.split_inclusive('\n').collect();
    let alike = |(left, right): &(&&str, &&str)| without_line_end(left) == without_line_end(right);
    let n_first = old.iter().zip(&new).take_while(alike).count();
    let rest = old.len().min(new.len()) - n_first;
    let n_last = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(alike).count();

    let mut ended = old.iter().filter(|it| it.ends_with('\n')).peekable();
    let is_crlf = ended.peek().is_some() && ended.all(|it| it.ends_with("\r\n"));
    let end = if is_crlf { "\r\n" } else { "\n" };
    let first = old.iter().take(n_first);
    let middle = new.iter().skip(n_first).take(new.len() - n_first - n_last);
    let last = old.iter().skip(old.len() - n_last);
    let mut text = String::with_capacity(original.len().max(edited.len()) + mark.len());
    text.push_str(mark);
    let mut add = |line: &str, ending: &str| {
        // Only the last line of a file may lack its end, and this may no longer be the last.
        if !text.is_empty() && text != mark && !text.ends_with('\n') {
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
