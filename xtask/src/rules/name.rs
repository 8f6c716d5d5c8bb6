//! Words that names do not use, because a thing that needs them does two jobs.
//!
//! Looks at the names of types, traits, modules and functions in product code. Tests are sentences,
//! and a sentence may use any word.

use super::{Finding, numbered};
use crate::rust_text::{Split, is_test_file, product_code, words};

const WORDS: [&str; 9] =
    ["manager", "handler", "helper", "util", "utils", "common", "data", "info", "wrapper"];

/// Function names do not begin with these.
const FIRST_WORDS: [&str; 3] = ["process", "do", "handle"];

/// Names that others gave: name and who gave it.
const GIVEN_NAMES: [(&str, &str); 7] = [
    ("McpManager", "specs 002 and 003"),
    ("ClientHandler", "a callback trait that users implement"),
    ("handler", "the module of that trait"),
    ("data", "the member of a JSON-RPC error and of MCP content"),
    ("server_info", "`serverInfo` of MCP"),
    ("client_info", "`clientInfo` of MCP"),
    ("level_or_info", "`info` is a log level of MCP"),
];

pub(crate) fn findings(path: &str, split: &Split) -> Vec<Finding> {
    if is_test_file(path) {
        return Vec::new();
    }
    let product = product_code(&split.code).join("\n");
    let mut found = Vec::new();
    for (line, code) in numbered(&product) {
        for (kind, name) in defined_names(code) {
            let is_given = GIVEN_NAMES.iter().any(|(given, _by)| *given == name);
            if let Some(word) = banned_word(kind, name).filter(|_| !is_given) {
                let advice = format!("`{name}` uses `{word}`; say what the thing is or does");
                found.push(Finding::new(path, line, "name", advice));
            }
        }
    }
    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Type,
    Module,
    Function,
}

fn defined_names(code: &str) -> impl Iterator<Item = (Kind, &str)> {
    let pairs = words(code).zip(words(code).skip(1));
    pairs.filter_map(|((_, keyword), (gap, name))| {
        let kind = match keyword {
            "struct" | "enum" | "trait" | "type" | "union" => Kind::Type,
            "mod" => Kind::Module,
            "fn" => Kind::Function,
            _ => return None,
        };
        gap.trim().is_empty().then_some((kind, name))
    })
}

fn banned_word(kind: Kind, name: &str) -> Option<&'static str> {
    let parts = match kind {
        Kind::Type => camel_parts(name),
        Kind::Module | Kind::Function => name.split('_').map(str::to_owned).collect(),
    };
    let first = parts.first().filter(|_| kind == Kind::Function && parts.len() > 1);
    let prefix = FIRST_WORDS.into_iter().find(|word| first.is_some_and(|it| it == word));
    prefix.or_else(|| WORDS.into_iter().find(|word| parts.iter().any(|part| part == word)))
}

fn camel_parts(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for character in name.chars() {
        match parts.last_mut() {
            Some(part) if !character.is_uppercase() => part.push(character),
            _ => parts.push(character.to_lowercase().collect()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_text::split;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found = findings("crates/a/src/b.rs", &split(text));
        let seen: Vec<&str> = found.iter().filter_map(|it| it.advice.split('`').nth(1)).collect();
        assert_eq!(seen, expected, "{text}");
    }

    #[test]
    fn types_say_what_they_are() {
        check("pub struct ServerManager;", &["ServerManager"]);
        check("pub(crate) enum InfoKind {}", &["InfoKind"]);
        check("trait RequestHandler {}", &["RequestHandler"]);
        check("struct Metadata; struct Database; struct Manages;", &[]);
        check("struct McpManager;", &[]);
        check("struct A { data: Bytes } // struct DataWrapper", &[]);
    }

    #[test]
    fn functions_say_what_they_do() {
        check("async fn handle_message() {}", &["handle_message"]);
        check("fn do_it() {} fn process_line() {}", &["do_it", "process_line"]);
        check("fn parse_common() {}", &["parse_common"]);
        check("fn process() {} fn undo_it() {} fn rehandle_x() {}", &[]);
        check("fn data(&self) {} fn server_info(&self) {}", &[]);
        check("let f: fn(data) -> handle_it;", &[]);
        check("mod utils;", &["utils"]);
    }

    #[test]
    fn tests_are_sentences_and_may_use_any_word() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn data_is_common() {}\n}\n";
        check(text, &[]);
        assert_eq!(findings("crates/a/tests/it/main.rs", &split("fn data_is_common() {}")), []);
    }
}
