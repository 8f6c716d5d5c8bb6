//! The published schema and docs match the parser.

use std::path::PathBuf;

use serde_json::Value;
use toolrack_config::{Severity, json_schema, key_reference, read};

use crate::format;

fn published(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// Compares a published file with the generated one. `UPDATE=1` rewrites it.
#[track_caller]
fn check(name: &str, expected: &str) {
    let path = published(name);
    if std::env::var_os("UPDATE").is_some() {
        #[expect(clippy::disallowed_methods, reason = "a published file, rewritten on request")]
        std::fs::write(&path, expected).expect("a published file can be written");
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "docs/{name} is out of date: run this test with `UPDATE=1`");
}

#[test]
fn published_schema_is_current() {
    let schema = serde_json::to_string_pretty(&sorted(json_schema())).expect("a schema is JSON");
    check("toolrack.schema.json", &(schema + "\n"));
}

/// Sorted keys, because features of other crates change the order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> =
                map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            members.sort_by(|left, right| left.0.cmp(&right.0));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        value => value,
    }
}

#[test]
fn every_key_is_documented() {
    let (begin, end) = ("<!-- keys: generated -->\n", "<!-- keys: end -->\n");
    let text = std::fs::read_to_string(published("config.md")).expect("docs/config.md is text");
    let (before, rest) = text.split_once(begin).expect("the beginning of the generated part");
    let (_, after) = rest.split_once(end).expect("the end of the generated part");
    check("config.md", &format!("{before}{begin}\n{}\n{end}{after}", key_reference()));
}

#[test]
fn docs_example_is_valid() {
    let text = std::fs::read_to_string(published("config.md")).expect("docs/config.md is text");
    let examples: Vec<&str> =
        text.split("```toml\n").skip(1).map(|part| part.split("```").next().unwrap()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        assert_eq!(
            format::diagnostics(&read("toolrack.toml", example).diagnostics),
            [""; 0],
            "{example}"
        );
        assert!(valid(example), "{example}");
    }
}

fn valid(text: &str) -> bool {
    let document: Value = toml::from_str(text).expect("TOML");
    let validator = jsonschema::validator_for(&json_schema()).expect("a schema");
    validator.is_valid(&document)
}

/// A server with a name and these lines.
fn server(lines: &str) -> String {
    format!("[[defaults.mcp]]\nname = 'a'\n{lines}\n")
}

/// Documents on which schema and parser agree: valid ones, and ones with a single error.
fn corpus() -> Vec<(String, bool)> {
    let process = |lines: &str| server(&format!("command = 'x'\n{lines}"));
    let endpoint = |lines: &str| server(&format!("url = 'https://a.dev'\n{lines}"));
    let good = [
        String::new(),
        "[llm]\nx = 1\n[defaults]\nmax_turns = 1\n".to_owned(),
        "[defaults]\ntimeout = '1h30m'\nidle = 'never'\nname_separator = '__'\nname_limit = 128\npin = true".to_owned(),
        "[[agents]]\nid = 'a'\nworkspace = '/srv'".to_owned(),
        process(""),
        process("transport = 'stdio'\nargs = ['', 'a']\ncwd = '/'\nunknown = 1"),
        process("env = { A = '', B = { secret_ref = 'b', required = false } }"),
        process("env = { A = { value = 'a', secret = true }, B = { required = false } }"),
        process("source = { type = 'official', name = 'io.a/b', version = '1' }"),
        process("allow = ['a*']\ndeny = []\nrepeatable = ['x']\nidle = '5m'\nstart = 'lazy'\nmax_output_bytes = 1"),
        process("id = '0190a6b2-0000-7000-8000-00000000000a'\nsandbox = { read = ['/'], write = [], net = false }"),
        endpoint("transport = 'sse'\nheaders = { Authorization = 'Bearer ${T}' }"),
        server("url = '${BASE}/mcp'"),
        server("package = { type = 'docker', identifier = 'mcp/git', version = '1', args = ['x'] }"),
        server("package = { type = 'http', identifier = 'https://a.dev' }\ntransport = 'http'"),
        server("package = { type = 'http', identifier = 'io.a/b', url = 'https://a.dev' }"),
        server("package = { type = 'npm', identifier = 'p', runtime_hint = 'npx' }\ntransport = 'stdio'"),
        server("package = { type = 'docker', identifier = 'p', runtime_hint = 'podman' }"),
        process("config = { theme = 'dark', deep = { list = [1, { a = 1979-05-27 }] } }"),
    ];
    let bad = [
        "defaults = 1".to_owned(),
        "agents = {}".to_owned(),
        "[[agents]]\nname = 'a'".to_owned(),
        "[defaults]\nname_separator = '/'".to_owned(),
        "[defaults]\nname_separator = '_____'".to_owned(),
        "[defaults]\nname_limit = 8".to_owned(),
        "[defaults]\ntimeout = 5".to_owned(),
        "[defaults]\ntimeout = 'never'".to_owned(),
        "[defaults]\nidle = 'sometimes'".to_owned(),
        "[defaults]\nmcp = { name = 'a' }".to_owned(),
        "[[defaults.mcp]]\ncommand = 'x'".to_owned(),
        "[[defaults.mcp]]\nname = ' a'\ncommand = 'x'".to_owned(),
        "[[defaults.mcp]]\nname = 'a/b'\ncommand = 'x'".to_owned(),
        "[[defaults.mcp]]\nname = 'toolrack'\ncommand = 'x'".to_owned(),
        server(""),
        server("command = ' '"),
        server("command = 1"),
        server("url = 'a.dev'"),
        server("url = 'ftp://a.dev'"),
        server("transport = 'stdio'"),
        server("transport = 'http'"),
        server("transport = 'stdio'\nurl = 'https://a.dev'"),
        server("package = { type = 'npm' }"),
        server("package = { identifier = 'p' }"),
        server("package = { type = 'gem', identifier = 'p' }"),
        server("package = { type = 'npm', identifier = 'p', runtime_hint = 'yarn' }"),
        server("package = { type = 'npm', identifier = 'p', runtime_hint = 'uvx' }"),
        server("package = { type = 'binary', identifier = 'p', runtime_hint = 'npx' }"),
        process("config = 'x'"),
        server("package = { type = 'npm', identifier = 'p' }\ntransport = 'http'"),
        server("package = { type = 'http', identifier = 'https://a.dev' }\ntransport = 'stdio'"),
        process("url = 'https://a.dev'"),
        process("package = { type = 'npm', identifier = 'p' }"),
        process("transport = 'http'"),
        process("transport = 'pigeon'"),
        process("args = 'x'"),
        process("args = [1]"),
        process("env = { A = 1 }"),
        process("env = { A = { required = true } }"),
        process("env = { A = { secret_ref = 'a', value = 'b' } }"),
        process("source = { type = 'friend' }"),
        process("env = { 'A=B' = 'x' }"),
        process("enabled = 'yes'"),
        process("timeout = '5'"),
        process("max_output_bytes = 0"),
        process("start = 'later'"),
        process("deny = ['']"),
        process("id = '1'"),
        process("sandbox = { net = 'no' }"),
        endpoint("headers = { 'A B' = 'x' }"),
        endpoint("headers = { A = 1 }"),
    ];
    let good = good.into_iter().map(|good| (good, true));
    good.chain(bad.into_iter().map(|bad| (bad, false))).collect()
}

#[test]
fn schema_and_parser_agree() {
    for (text, sound) in corpus() {
        let reading = read("t.toml", &text);
        let errors: Vec<_> = reading
            .diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
            .collect();
        assert_eq!(errors.is_empty(), sound, "the parser on\n{text}\n{errors:?}");
        assert_eq!(valid(&text), sound, "the schema on\n{text}");
    }
}

#[test]
fn samples_match_the_schema() {
    for sample in ["native/toolrack.toml", "native/spacebot.toml"] {
        assert!(valid(&format::sample(sample)), "{sample}");
    }
}

/// Everything that only the parser checks.
#[test]
fn some_errors_are_found_by_the_parser_only() {
    let twice = "[[defaults.mcp]]\nname = 'a'\ncommand = 'x'\n".repeat(2);
    let more = [
        twice,
        "[[agents]]\nid = 'a'\n[[agents]]\nid = 'a'".to_owned(),
        "[defaults]\ntimeout = '0s'".to_owned(),
        "[defaults]\ntimeout = '400d'".to_owned(),
        server("command = '${keyring:x}'"),
        server("url = 'https://a.dev:port'"),
        server("url = 'https://a.dev'\nheaders = { A = '1', a = '2' }"),
        server("url = 'https://a.dev'\nheaders = { A = \"1\\n2\" }"),
    ];
    for text in more {
        assert!(read("t.toml", &text).has_errors(), "the parser on\n{text}");
        assert!(valid(&text), "the schema on\n{text}");
    }
}

/// A line for each key that changes its value.
fn line(key: &str) -> &'static str {
    match key {
        "name" => "name = 'other'",
        "id" => "id = '0190a6b2-0000-7000-8000-00000000000a'",
        "enabled" => "enabled = false",
        "args" => "args = ['x']",
        "env" => "env = { A = 'x' }",
        "cwd" => "cwd = '/'",
        "timeout" => "timeout = '7s'",
        "max_timeout" => "max_timeout = '7m'",
        "startup_timeout" => "startup_timeout = '7s'",
        "install_timeout" => "install_timeout = '7s'",
        "start" => "start = 'lazy'",
        "idle" => "idle = '7s'",
        "max_output_bytes" => "max_output_bytes = 7",
        "max_message_bytes" => "max_message_bytes = 7",
        "max_list_bytes" => "max_list_bytes = 7",
        "inherit_env" => "inherit_env = true",
        "pin" => "pin = true",
        "allow" => "allow = ['x']",
        "deny" => "deny = ['x']",
        "repeatable" => "repeatable = ['x']",
        "sandbox" => "sandbox = {}",
        "name_separator" => "name_separator = '__'",
        "name_limit" => "name_limit = 77",
        "mcp" => "mcp = [{ name = 'b', command = 'y' }]",
        other => panic!("say what `{other}` does"),
    }
}

#[test]
fn every_documented_key_has_an_effect() {
    let schema = json_schema();
    let keys = |table: &str| {
        let keys = schema["$defs"][table]["properties"].as_object().expect("a table").keys();
        keys.cloned().collect::<Vec<_>>()
    };
    let read = |text: &str| read("t.toml", text).accept().expect("a sound file").0;
    let plain = read(&server("command = 'x'"));
    // Transports are covered in `diagnostics.rs`; `source` and `config` are for the service alone.
    let ways = ["command", "url", "headers", "package", "transport", "source", "config"];
    for key in keys("mcp").iter().filter(|key| !ways.contains(&key.as_str())) {
        let named = if key == "name" { "" } else { "name = 'a'\n" };
        let text = format!("[[defaults.mcp]]\n{named}command = 'x'\n{}\n", line(key));
        assert_ne!(read(&text), plain, "{key}");
    }
    for key in keys("defaults") {
        let lines = read(&format!("[defaults]\n{}\n", line(&key)));
        assert_ne!(lines, read("[defaults]\n"), "{key}");
    }
}
