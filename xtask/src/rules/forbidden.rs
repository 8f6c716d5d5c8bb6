//! Forbidden code: `#[allow]`, `#[ignore]`, and `unsafe` outside of one module.

use super::{Finding, numbered};
use crate::rust_lexer::{Split, words};

/// The only product module with `unsafe`, as a file or a folder.
const UNSAFE_MODULE: &str = "crates/toolrack-stdio/src/sys";

/// Files outside of the product that may have `unsafe`: path and reason.
const UNSAFE_EXCEPTIONS: [(&str, &str); 1] =
    [("crates/toolrack-bench/src/alloc.rs", "a counting allocator has no safe form")];

pub(crate) fn findings(path: &str, split: &Split) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, code) in numbered(&split.code) {
        if has_attribute(code, "allow") {
            let advice = "write `#[expect(lint, reason = \"…\")]`, which expires by itself";
            found.push(Finding::new(path, line, "allow", advice));
        }
        if has_attribute(code, "ignore") {
            let advice = "assert what happens today, or mark the skip as CONTRIBUTING.md says";
            found.push(Finding::new(path, line, "ignore", advice));
        }
        if !is_unsafe_allowed(path) && words(code).any(|(_, word)| word == "unsafe") {
            let advice = format!("move it to `{UNSAFE_MODULE}`, behind a safe function");
            found.push(Finding::new(path, line, "unsafe", advice));
        }
    }
    found
}

/// Whether an attribute on this line is `name`, also inside `cfg_attr`.
fn has_attribute(code: &str, name: &str) -> bool {
    let Some((_, attribute)) = code.split_once("#[").or_else(|| code.split_once("#![")) else {
        return false;
    };
    words(attribute).any(|(gap, word)| word == name && (gap.is_empty() || gap.starts_with(',')))
}

fn is_unsafe_allowed(path: &str) -> bool {
    let inside = path.strip_prefix(UNSAFE_MODULE);
    inside.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        || UNSAFE_EXCEPTIONS.iter().any(|(exception, _reason)| *exception == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_lexer::split;

    #[track_caller]
    fn check_at(path: &str, text: &str, expected: &[(usize, &str)]) {
        let found = findings(path, &split(text));
        let seen: Vec<(usize, &str)> =
            found.iter().map(|finding| (finding.line, finding.rule)).collect();
        assert_eq!(seen, expected, "{text}");
    }

    #[track_caller]
    fn check(text: &str, expected: &[(usize, &str)]) {
        check_at("crates/a/src/b.rs", text, expected);
    }

    #[test]
    fn allow_is_found_in_every_form_of_attribute() {
        check("#[allow(dead_code)]\nfn a() {}", &[(1, "allow")]);
        check("fn a() {}\n    #![allow(dead_code)]", &[(2, "allow")]);
        check("#[cfg_attr(test, allow(dead_code))]", &[(1, "allow")]);
        check("#[expect(dead_code, reason = \"allow(me)\")]", &[]);
        check("// #[allow(dead_code)] is not used here", &[]);
        check("fn allow(x: u8) {}", &[]);
        check("#[instrument(fields(allow = 1))]", &[]);
    }

    #[test]
    fn ignored_tests_are_found() {
        check("#[ignore]", &[(1, "ignore")]);
        check("#[ignore = \"slow\"]", &[(1, "ignore")]);
        check("#[cfg_attr(unix, ignore)]", &[(1, "ignore")]);
        check("let ignore = 1;", &[]);
    }

    #[test]
    fn unsafe_lives_in_one_module() {
        check("unsafe { f() }", &[(1, "unsafe")]);
        check("#[unsafe(no_mangle)]", &[(1, "unsafe")]);
        check("#![expect(unsafe_code, reason = \"unsafe\")] // unsafe", &[]);
        check_at("crates/toolrack-stdio/src/sys.rs", "unsafe fn f() {}", &[]);
        check_at("crates/toolrack-stdio/src/sys/kill.rs", "unsafe fn f() {}", &[]);
        check_at("crates/toolrack-bench/src/alloc.rs", "unsafe impl A for B {}", &[]);
        check_at("crates/toolrack-stdio/src/system.rs", "unsafe fn f() {}", &[(1, "unsafe")]);
    }
}
