//! Fuzz target of edits to a config file. docs/internal/fuzzing.md says how to run it.

#![expect(clippy::panic, reason = "a fuzz target fails by panicking")]

use std::collections::HashMap;

use toolrack_config::{McpTransport, ServerEntry};

use crate::service::{Enabled, McpConfig};
use crate::{ConfigScope, Document, Entry};

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] = &[("toml_edit", toml_edit)];

/// An edit of a document.
#[derive(Debug, Clone, Copy)]
enum Edit {
    Add,
    AddToAgent,
    Rename,
    Remove,
    SetEnabled,
    AssignIds,
}

const EDITS: [Edit; 6] =
    [Edit::Add, Edit::AddToAgent, Edit::Rename, Edit::Remove, Edit::SetEnabled, Edit::AssignIds];

/// The most lines of a server: a header, an empty line before it, and its members.
const MAX_ADDED_LINES: usize = 8;

/// An edit changes one entry: the other lines stay byte for byte, and the other servers stay the same. The first byte
/// chooses the edit and the entry.
fn toml_edit(data: &[u8]) {
    let [choice, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(mut document) = Document::parse("t.toml", text) else { return };
    assert_eq!(document.text(), text);
    let before = document.entries();
    let choice = usize::from(*choice);
    let Some(edit) = EDITS.get(choice % EDITS.len()) else { return };
    let chosen = before.get(choice / EDITS.len() % before.len().max(1));
    let Some(expected) = apply(*edit, chosen, &before, &mut document) else { return };
    let edited = document.text();
    let Ok(mut document) = Document::parse("t.toml", &edited) else {
        panic!("the edited file is invalid: {edited:?}")
    };
    assert_eq!(document.entries(), expected, "{edit:?} {edited:?}");
    check_lines(*edit, text, &edited, before.len());
    // An addition is undone by its removal.
    let added = expected
        .iter()
        .find(|entry| !before.iter().any(|other| other.config.id == entry.config.id));
    if let (Edit::Add | Edit::AddToAgent, Some(added)) = (edit, added) {
        assert!(document.remove(added.config.id).is_ok());
        let removed = document.text();
        let Ok(document) = Document::parse("t.toml", &removed) else {
            panic!("the edited file is invalid: {removed:?}")
        };
        assert_eq!(document.entries(), before, "{removed:?}");
        check_lines(*edit, text, &removed, before.len());
    }
}

/// Applies an edit, and returns the entries that it leads to. `None` if it is refused.
fn apply(
    edit: Edit,
    chosen: Option<&Entry>,
    before: &[Entry],
    document: &mut Document,
) -> Option<Vec<Entry>> {
    let mut expected = before.to_vec();
    let position = chosen.and_then(|chosen| before.iter().position(|entry| entry == chosen));
    match edit {
        Edit::Add => {
            let config = new_server();
            let id = document.add(&ConfigScope::Defaults, &config).ok()?;
            let is_default = |entry: &&Entry| entry.scope == ConfigScope::Defaults;
            let end = before.iter().filter(is_default).count();
            let config = McpConfig { id, ..config };
            expected.insert(end, Entry { scope: ConfigScope::Defaults, config });
        }
        Edit::AddToAgent => {
            let scope = chosen.map(|entry| entry.scope.clone())?;
            let config = new_server();
            let id = document.add(&scope, &config).ok()?;
            let last = before.iter().rposition(|entry| entry.scope == scope)?;
            expected.insert(last + 1, Entry { scope, config: McpConfig { id, ..config } });
        }
        Edit::Rename => {
            let entry = expected.get_mut(position?)?;
            "fuzz-renamed".clone_into(&mut entry.config.name);
            document.replace(&entry.config).ok()?;
        }
        Edit::Remove => {
            let entry = expected.remove(position?);
            assert_eq!(document.remove(entry.config.id).ok(), Some(entry));
        }
        Edit::SetEnabled => {
            let entry = expected.get_mut(position?)?;
            entry.config.enabled = !entry.config.enabled;
            let enabled = if entry.config.enabled { Enabled::Yes } else { Enabled::No };
            document.set_enabled(entry.config.id, enabled).ok()?;
        }
        Edit::AssignIds => assert!(document.assign_ids() <= before.len()),
    }
    Some(expected)
}

fn new_server() -> McpConfig {
    let command = McpTransport::Stdio {
        command: "x".to_owned(),
        args: vec!["a b".to_owned()],
        env: HashMap::new().into_iter().collect(),
        cwd: None,
    };
    McpConfig::from_entry(&ServerEntry::new("fuzz-added", command))
}

/// Lines that have nothing to do with the edit are all there, in order, and no others come. A last line may get a line
/// break.
fn check_lines(edit: Edit, before: &str, after: &str, n_entries: usize) {
    // The brackets and commas of a list belong to its entries, also behind the last entry.
    let is_bare = |line: &str| line.trim().trim_matches(['[', ']', '{', '}', ',']).is_empty();
    let is_list_end = |line: &str| line.contains('{') && line.contains(']');
    let is_foreign = |line: &&str| {
        !line.contains("mcp") && !line.contains("defaults") && !is_bare(line) && !is_list_end(line)
    };
    let lines = |text: &str| -> Vec<String> {
        let lines = text.trim_start_matches('\u{feff}').split_inclusive('\n');
        lines.filter(is_foreign).map(str::to_owned).collect()
    };
    let (old, new) = (lines(before), lines(after));
    let n_kept = n_common(&old, &new);
    let (n_lost, n_added) = (old.len() - n_kept, new.len() - n_kept);
    // A changed line is lost and added. An entry without an id gets one, and its last line changes with that, because
    // the space behind it moves to the new last line.
    let (max_lost, max_added) = match edit {
        Edit::Add | Edit::AddToAgent => (0, MAX_ADDED_LINES),
        Edit::Rename | Edit::SetEnabled => (2, 4),
        Edit::Remove => (usize::MAX, 0),
        Edit::AssignIds => (n_entries, 2 * n_entries),
    };
    assert!(n_lost <= max_lost, "{edit:?} loses {n_lost} lines: {before:?} {after:?}");
    assert!(n_added <= max_added, "{edit:?} adds {n_added} lines: {before:?} {after:?}");
}

/// The lines that are in both, found in order.
fn n_common(old: &[String], new: &[String]) -> usize {
    let bare = |line: &str| line.trim_end_matches(['\r', '\n']).to_owned();
    let is_last = |line: &str| !line.ends_with('\n');
    let is_same = |old: &str, new: &str| {
        old == new || (is_last(old) || is_last(new)) && bare(old) == bare(new)
    };
    let (mut n_common, mut rest) = (0, new);
    for line in old {
        if let Some(position) = rest.iter().position(|other| is_same(line, other)) {
            n_common += 1;
            rest = rest.get(position + 1..).unwrap_or_default();
        }
    }
    n_common
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
