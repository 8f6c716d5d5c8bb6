//! How a file begins, how long it is, and what it is called.

use super::Finding;
use crate::rust_text::{Split, is_test_file, product_code};

const LINES: usize = 400;
const HARD_STOP: usize = 600;

/// Files that may be longer than [`LINES`], never than [`HARD_STOP`]: path and reason.
const LONG_FILES: [(&str, &str); 0] = [];

pub(crate) fn findings(path: &str, text: &str, split: &Split) -> Vec<Finding> {
    let mut found = Vec::new();
    if !text.starts_with("//!") {
        found.push(Finding::new(
            path,
            1,
            "header",
            "begin with `//!` and say what the file is for",
        ));
    }
    if path.ends_with("/mod.rs") {
        let advice = "name the file after its folder: `foo.rs` beside `foo/`";
        found.push(Finding::new(path, 1, "mod-rs", advice));
    }
    if !is_test_file(path) {
        found.extend(length(path, product_code(&split.code).len(), &LONG_FILES));
    }
    found
}

fn length(path: &str, n_lines: usize, long_files: &[(&str, &str)]) -> Option<Finding> {
    let is_listed = long_files.iter().any(|(listed, _reason)| *listed == path);
    let limit = if is_listed { HARD_STOP } else { LINES };
    let advice = format!("{n_lines} lines of product code, at most {limit}; split it by subject");
    (n_lines > limit).then(|| Finding::new(path, limit + 1, "length", advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_findings;
    use crate::rust_text::split;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        assert_findings(&findings(path, text, &split(text)), expected);
    }

    #[test]
    fn first_line_says_what_the_file_is_for() {
        check("crates/a/src/b.rs", "//! What it is for.\n", &[]);
        let advice = "crates/a/src/b.rs:1: header: begin with `//!` and say what the file is for";
        check("crates/a/src/b.rs", "use std::io;\n", &[advice]);
        check("crates/a/src/b.rs", "\n//! Too late.\n", &[advice]);
        check("crates/a/src/b.rs", "", &[advice]);
    }

    #[test]
    fn files_are_named_after_their_folders() {
        let advice = "name the file after its folder: `foo.rs` beside `foo/`";
        check(
            "crates/a/src/b/mod.rs",
            "//! B.\n",
            &[&format!("crates/a/src/b/mod.rs:1: mod-rs: {advice}")],
        );
    }

    #[test]
    fn product_code_has_a_limit_and_tests_have_none() {
        let lines = |n: usize| "//! B.\n".to_owned() + &"x;\n".repeat(n - 1);
        check("crates/a/src/b.rs", &lines(LINES), &[]);
        let advice = "401 lines of product code, at most 400; split it by subject";
        check(
            "crates/a/src/b.rs",
            &lines(401),
            &[&format!("crates/a/src/b.rs:401: length: {advice}")],
        );
        let tests = lines(LINES) + "#[cfg(test)]\nmod tests {\n" + &"x;\n".repeat(300) + "}\n";
        check("crates/a/src/b.rs", &tests, &[]);
        check("crates/a/tests/it/b.rs", &lines(1000), &[]);
        check("crates/a/src/b/tests.rs", &lines(1000), &[]);
    }

    #[test]
    fn listed_file_may_be_longer_up_to_the_hard_stop() {
        let listed = [("a.rs", "a flat table")];
        assert_eq!(length("a.rs", HARD_STOP, &listed), None);
        let advice = "601 lines of product code, at most 600; split it by subject";
        assert_eq!(length("a.rs", 601, &listed), Some(Finding::new("a.rs", 601, "length", advice)));
        assert!(length("b.rs", 401, &listed).is_some());
    }
}
