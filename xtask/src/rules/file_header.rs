//! File header: the first line is a module doc; no `mod.rs`.

use super::Finding;

pub(crate) fn findings(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if !text.starts_with("//!") {
        found.push(Finding::new(path, 1, "header", "start with a `//!` module doc"));
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
    fn first_line_is_a_module_doc() {
        check("crates/a/src/b.rs", "//! What it is for.\n", &[]);
        let advice = "crates/a/src/b.rs:1: header: start with a `//!` module doc";
        check("crates/a/src/b.rs", "use std::io;\n", &[advice]);
        check("crates/a/src/b.rs", "\n//! Too late.\n", &[advice]);
        check("crates/a/src/b.rs", "", &[advice]);
    }

    #[test]
    fn mod_rs_is_not_used() {
        let advice = "name the file after its folder: `foo.rs` beside `foo/`";
        check(
            "crates/a/src/b/mod.rs",
            "//! B.\n",
            &[&format!("crates/a/src/b/mod.rs:1: mod-rs: {advice}")],
        );
    }
}
