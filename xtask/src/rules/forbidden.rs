//! Forbidden attributes: `#[ignore]`, and the permission for `unsafe` outside of one module.

use super::{Finding, numbered};

/// Files that may have `unsafe`: one product module, the counting allocator of the benchmarks, and the child processes
/// of the test server.
const UNSAFE_FILES: [&str; 3] = [
    "crates/toolrack-stdio/src/sys.rs",
    "crates/toolrack-bench/src/alloc.rs",
    "crates/toolrack-testkit/src/scripted/child_process.rs",
];

pub(crate) fn findings(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, code) in numbered(text) {
        let code = code.trim_start();
        let is_attribute = code.starts_with("#[") || code.starts_with("#![");
        if is_attribute && (code.starts_with("#[ignore") || code.contains(", ignore)")) {
            let advice = "assert what happens today, or mark the skip as CONTRIBUTING.md says";
            found.push(Finding::new(path, line, "ignore", advice));
        }
        // The workspace denies `unsafe_code`, so `unsafe` needs an attribute that names this lint.
        let permits =
            code.starts_with("unsafe_code,") || is_attribute && code.contains("(unsafe_code");
        if permits && !UNSAFE_FILES.contains(&path) {
            let advice =
                format!("move it to `{}`, behind a safe function", UNSAFE_FILES.join("` or `"));
            found.push(Finding::new(path, line, "unsafe", advice));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[(usize, &str)]) {
        let found = findings(path, text);
        let seen: Vec<(usize, &str)> =
            found.iter().map(|finding| (finding.line, finding.rule)).collect();
        assert_eq!(seen, expected, "{text}");
    }

    #[test]
    fn ignored_tests_are_found() {
        check("a.rs", "#[ignore]", &[(1, "ignore")]);
        check("a.rs", "    #[ignore = \"slow\"]", &[(1, "ignore")]);
        check("a.rs", "#[cfg_attr(unix, ignore)]", &[(1, "ignore")]);
        check("a.rs", "let ignore = 1;\n// #[ignore] is not used", &[]);
    }

    #[test]
    fn unsafe_lives_in_one_module() {
        let attribute = "#![expect(unsafe_code, reason = \"x\")]";
        check("crates/a/src/b.rs", attribute, &[(1, "unsafe")]);
        check("crates/a/src/b.rs", "#[expect(\n    unsafe_code,\n", &[(2, "unsafe")]);
        check("crates/toolrack-stdio/src/sys.rs", attribute, &[]);
        check("crates/toolrack-bench/src/alloc.rs", attribute, &[]);
        check("crates/toolrack-stdio/src/system.rs", attribute, &[(1, "unsafe")]);
    }
}
