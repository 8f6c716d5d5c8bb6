//! The first line of a file, and its name.

use super::Finding;

pub(crate) fn findings(path: &str, text: &str) -> Vec<Finding> {
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
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_findings;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        assert_findings(&findings(path, text), expected);
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
}
