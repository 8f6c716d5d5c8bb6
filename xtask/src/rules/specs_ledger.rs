//! Specs ledger: every test named in `docs/internal/specs.md` exists.

use std::collections::BTreeSet;

use super::{Finding, numbered};

pub(crate) const PAGE: &str = "docs/internal/specs.md";

/// The columns of every table on the page.
const COLUMNS: [&str; 4] = ["requirement", "where", "test", "note"];

/// Test column of a requirement that is not built.
const NOT_YET: &str = "not yet";

/// Test column of a requirement without a test.
const NOT_TESTED: &str = "–";

/// Names of all functions defined in a file: a definition starts its line, after keywords such as `pub` and `async`.
pub(crate) fn functions(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| {
        let (keywords, rest) = line.split_once("fn ")?;
        let is_definition = keywords.split_whitespace().all(|word| !word.starts_with("//"));
        let name = rest.split(|character: char| !character.is_alphanumeric() && character != '_');
        name.into_iter().next().filter(|_| is_definition).map(str::to_owned)
    })
}

pub(crate) fn findings(page: &str, functions: &BTreeSet<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut is_in_table = false;
    for (line, text) in numbered(page) {
        let cells = cells(text);
        if !is_in_table || cells.is_empty() {
            is_in_table = cells == COLUMNS;
            continue;
        }
        let is_rule = cells.iter().all(|cell| cell.trim_matches(['-', ':']).is_empty());
        if is_rule && cells.len() == COLUMNS.len() {
            continue;
        }
        let [_, _, test, _] = cells.as_slice() else {
            let advice = format!("{} cells, but the table has {}", cells.len(), COLUMNS.len());
            found.push(Finding::new(PAGE, line, "coverage", advice));
            continue;
        };
        let advices = faults(test, functions);
        found
            .extend(advices.into_iter().map(|advice| Finding::new(PAGE, line, "coverage", advice)));
    }
    found
}

fn faults(cell: &str, functions: &BTreeSet<String>) -> Vec<String> {
    if cell == NOT_YET || cell == NOT_TESTED {
        return Vec::new();
    }
    // Every second part of a text split at backticks stands between two of them.
    let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    if names.is_empty() {
        return vec![format!("name a test in backticks, or write `{NOT_YET}`")];
    }
    let last = |name: &&str| name.rsplit("::").next().unwrap_or_default().to_owned();
    let missing = names.iter().map(last).filter(|name| !functions.contains(name));
    missing.map(|name| format!("no function `{name}` exists; correct the name")).collect()
}

/// The cells of a table row; empty for another line. `\|` is a character, not a border.
fn cells(line: &str) -> Vec<String> {
    let row = line.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|'));
    let Some(row) = row else {
        return Vec::new();
    };
    let row = row.replace("\\|", "\0");
    row.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_findings;

    #[track_caller]
    fn check(rows: &str, expected: &[&str]) {
        let functions = functions(
            "fn late_response_is_discarded() {}\n  pub async fn two() {}\n// fn three() {}",
        )
        .collect();
        let page =
            format!("# A page\n| requirement | where | test | note |\n|---|---|:-:|---|\n{rows}");
        assert_findings(&findings(&page, &functions), expected);
    }

    #[test]
    fn named_tests_exist() {
        check("| a | b | `late_response_is_discarded` | |", &[]);
        check(
            "| a | b | `toolrack_transport::pending::two`, `late_response_is_discarded` | |",
            &[],
        );
        check("| a | b | not yet | |", &[]);
        check("| a \\| c | b | – | |", &[]);
        check(
            "| a | b | `three` and `four` | |",
            &[
                "docs/internal/specs.md:4: coverage: no function `three` exists; correct the name",
                "docs/internal/specs.md:4: coverage: no function `four` exists; correct the name",
            ],
        );
    }

    #[test]
    fn every_row_names_a_test_or_says_that_there_is_none() {
        let advice = "name a test in backticks, or write `not yet`";
        check("| a | b | | |", &[&format!("docs/internal/specs.md:4: coverage: {advice}")]);
        check(
            "| a | b | somewhere | |",
            &[&format!("docs/internal/specs.md:4: coverage: {advice}")],
        );
        let advice = "docs/internal/specs.md:5: coverage: 3 cells, but the table has 4";
        check("| a | b | not yet | |\n| a | b | not yet |", &[advice]);
    }

    #[test]
    fn other_tables_and_prose_are_left_alone() {
        check("\n| word | meaning |\n|---|---|\n| x | y |\n\nProse with `no_such_test`.\n", &[]);
    }
}
