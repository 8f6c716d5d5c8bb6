//! Fuzz target of edits to a config file. docs/internal/fuzzing.md says how to run it.

#![expect(clippy::panic, reason = "a fuzz target fails by panicking")]

use std::collections::HashMap;

use toolrack_config::{McpTransport, ServerEntry};

use crate::service::McpConfig;
use crate::{ConfigScope, Document};

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] = &[("toml_edit", toml_edit)];

/// An edit changes one entry: the other lines stay byte for byte, and the other servers stay the same.
fn toml_edit(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(mut document) = Document::parse("t.toml", text) else { return };
    assert_eq!(document.text(), text);
    let before = document.entries();
    let command = McpTransport::Stdio {
        command: "x".to_owned(),
        args: vec!["a b".to_owned()],
        env: HashMap::new().into_iter().collect(),
        cwd: None,
    };
    let config = McpConfig::from_entry(&ServerEntry::new("fuzz-added", command));
    let Ok(id) = document.add(&ConfigScope::Defaults, &config) else { return };
    let added = document.text();
    check_lines(text, &added);
    let Ok(mut document) = Document::parse("t.toml", &added) else {
        panic!("the edited file is invalid: {added:?}")
    };
    assert!(document.get(id).is_some_and(|entry| entry.config.name == "fuzz-added"), "{added:?}");
    let kept: Vec<_> =
        document.entries().into_iter().filter(|entry| entry.config.id != id).collect();
    assert_eq!(kept, before, "{added:?}");
    assert!(document.remove(id).is_ok());
    let removed = document.text();
    check_lines(text, &removed);
    let Ok(document) = Document::parse("t.toml", &removed) else {
        panic!("the edited file is invalid: {removed:?}")
    };
    assert_eq!(document.entries(), before, "{removed:?}");
}

/// Lines that have nothing to do with servers are all there, in order. A last line may get a line break.
fn check_lines(before: &str, after: &str) {
    let is_foreign = |line: &&str| {
        !line.contains("mcp") && !line.contains("defaults") && !line.trim().is_empty()
    };
    let bare = |text: &str| text.trim_start_matches('\u{feff}').to_owned();
    let (before, whole) = (bare(before), bare(after));
    let mut after = whole.split_inclusive('\n');
    for line in before.split_inclusive('\n').filter(is_foreign) {
        let is_same = |other: &str| other == line || other.trim_end_matches(['\r', '\n']) == line;
        assert!(after.any(is_same), "{line:?} is lost: {whole}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
