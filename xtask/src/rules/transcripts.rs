//! Format of transcripts.
//!
//! A line is empty, `# comment`, `> {…}` (we send), `< …` (the server sends, raw text too), `= state`
//! or `! action`.

use serde_json::Value;

use super::{Finding, numbered};
use crate::source_tree::extension;

const FOLDER: &str = "crates/toolrack-client/tests/transcripts/";

pub(crate) fn is_transcript(path: &str) -> bool {
    path.starts_with(FOLDER) && extension(path) == "txt"
}

pub(crate) fn findings(path: &str, text: &str) -> Vec<Finding> {
    let faults = numbered(text).filter_map(|(line, text)| fault(text).map(|advice| (line, advice)));
    faults.map(|(line, advice)| Finding::new(path, line, "transcript", advice)).collect()
}

fn fault(line: &str) -> Option<&'static str> {
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let known = line.split_once(' ').filter(|(sign, _)| matches!(*sign, ">" | "<" | "=" | "!"));
    let Some((sign, rest)) = known else {
        return Some("begin with `# `, `> `, `< `, `= ` or `! `");
    };
    if rest.trim().is_empty() {
        return Some("add text after the sign, or remove the line");
    }
    let is_object = serde_json::from_str::<Value>(rest).is_ok_and(|value| value.is_object());
    (sign == ">" && !is_object).then_some("a line after `>` is one JSON object")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<&str>) {
        assert_eq!(fault(line), expected, "{line}");
    }

    #[test]
    fn lines_of_a_transcript_have_one_of_five_signs() {
        check("", None);
        check("# A server that is silent.", None);
        check("> {\"id\":1}", None);
        check("< {\"id\":1}", None);
        check("< not json at all", None);
        check("= connected", None);
        check("! timed out", None);
        check("{\"id\":1}", Some("begin with `# `, `> `, `< `, `= ` or `! `"));
        check(">{\"id\":1}", Some("begin with `# `, `> `, `< `, `= ` or `! `"));
        check("= ", Some("add text after the sign, or remove the line"));
        check("> {\"id\":1", Some("a line after `>` is one JSON object"));
        check("> 7", Some("a line after `>` is one JSON object"));
    }

    #[test]
    fn only_the_transcripts_of_the_client_are_read() {
        assert!(is_transcript("crates/toolrack-client/tests/transcripts/silent.txt"));
        assert!(!is_transcript("crates/toolrack-client/tests/transcripts/README.md"));
        assert!(!is_transcript("docs/notes.txt"));
    }
}
