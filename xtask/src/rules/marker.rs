//! Notes to ourselves in comments: `TODO` carries the number of its issue, the others do not exist.
//!
//! A marker in backticks is talk about the marker, as on this page.

use super::{Finding, numbered};
use crate::rust_text::{Split, words};

const BANNED: [&str; 3] = ["FIXME", "XXX", "HACK"];

pub(crate) fn findings(path: &str, split: &Split) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, comment) in numbered(&split.comments) {
        let mut rest = comment;
        for (gap, word) in words(comment) {
            rest = rest.get(gap.len() + word.len()..).unwrap_or_default();
            if gap.ends_with('`') {
                continue;
            }
            if BANNED.contains(&word) {
                let advice = format!("`{word}` is not used; repair it, or write `TODO(#123)`");
                found.push(Finding::new(path, line, "marker", advice));
            }
            if word == "TODO" && !has_number(rest) {
                let advice = "give the number of its issue: `TODO(#123)`";
                found.push(Finding::new(path, line, "marker", advice));
            }
        }
    }
    found
}

fn has_number(rest: &str) -> bool {
    let number = rest.strip_prefix("(#").and_then(|it| it.split_once(')')).map(|(it, _)| it);
    number.is_some_and(|it| it.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_findings;
    use crate::rust_text::split;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_findings(&findings("a.rs", &split(text)), expected);
    }

    #[test]
    fn todo_carries_the_number_of_its_issue() {
        let advice = "a.rs:1: marker: give the number of its issue: `TODO(#123)`";
        check("// TODO(#12): later", &[]);
        check("// TODO: later", &[advice]);
        check("// TODO(#): later", &[advice]);
        check("/// TODO(somebody) later", &[advice]);
        check("let s = \"TODO\";", &[]);
        check("// `TODO` needs a number, and TODOS is another word", &[]);
    }

    #[test]
    fn other_markers_do_not_exist() {
        let advice = "is not used; repair it, or write `TODO(#123)`";
        check("a;\n/* FIXME */", &[&format!("a.rs:2: marker: `FIXME` {advice}")]);
        check(
            "// XXX HACK",
            &[
                &format!("a.rs:1: marker: `XXX` {advice}"),
                &format!("a.rs:1: marker: `HACK` {advice}"),
            ],
        );
        check("// XXXX is a placeholder", &[]);
    }
}
