//! Edits change the edited entry and nothing else.

use std::collections::HashSet;

use serde_json::json;

use super::*;
use crate::service::{McpPackageType, McpTransport};

const FILE: &str = r#"# Servers of the whole house.
# Do not touch without asking.

# Notes on defaults
[defaults]
timeout = "60s"   # long enough
color = "blue"

# The files.
# Second line.
[[defaults.mcp]]
name = "files"   # shared
command = "npx"
args = [
    "-y",        # no questions
    "server-filesystem",
]
deny = ["write_*"]
secret_sauce = { a = 1, b = [1.5, 2024-01-01] }
env = { A = "x", TOKEN = { secret_ref = "files-token" } }

# [[defaults.mcp]]
# name = "sleeping"

[[defaults.mcp]]
  name = "sentry"
  id = "0190a6b2-0000-7000-8000-00000000000a"
  url = "https://mcp.sentry.io"
  [defaults.mcp.headers]
  Authorization = "Bearer ${SENTRY_TOKEN}"

[[agents]]
id = "main"
[[agents.mcp]]
name = "git"
package = { type = "pypi", identifier = "mcp-server-git", version = "1", args = ["--repository", "."], runtime_args = ["-q"] }

[other]
tool = true
# the end
"#;

fn parse(text: &str) -> Document {
    Document::parse("t.toml", text).unwrap()
}

fn named(document: &Document, name: &str) -> McpConfig {
    document.entries().into_iter().find(|entry| entry.config.name == name).unwrap().config
}

/// Edits a text and compares it with the original after plain replacements.
#[track_caller]
fn check(text: &str, edit: impl FnOnce(&mut Document), replacements: &[(&str, &str)]) {
    let mut document = parse(text);
    edit(&mut document);
    let expected = replacements.iter().fold(text.to_owned(), |text, (old, new)| {
        assert_eq!(text.matches(old).count(), 1, "{old:?}");
        text.replace(old, new)
    });
    assert_eq!(document.text(), expected);
    parse(&document.text());
}

fn change(document: &mut Document, name: &str, change: impl FnOnce(&mut McpConfig)) {
    document.assign_ids();
    let mut config = named(document, name);
    change(&mut config);
    document.replace(&config).unwrap();
}

/// The file with ids, so that each test sees only its own edit.
fn file() -> String {
    let mut document = parse(FILE);
    assert_eq!(document.assign_ids(), 2);
    assert_eq!(document.assign_ids(), 0);
    document.text()
}

#[test]
fn comments_of_inline_entries_stay_with_them() {
    let text = "[defaults]\nmcp = [ # all\n  { name = \"a\", command = \"x\" }, # one\n  # above\n]\nb = 1\n";
    let mut document = Document::parse("t.toml", text).unwrap();
    let transport = toolrack_config::McpTransport::Stdio {
        command: "y".to_owned(),
        args: Vec::new(),
        env: std::collections::HashMap::default(),
        cwd: None,
    };
    let config = McpConfig::from_entry(&ServerEntry::new("added", transport));
    let id = document.add(&ConfigScope::Defaults, &config).unwrap();
    let added = document.text();
    assert!(
        added.contains("{ name = \"a\", command = \"x\" }, # one\n  # above\n  { name"),
        "{added}"
    );
    let mut document = Document::parse("t.toml", &added).unwrap();
    document.remove(id).unwrap();
    assert!(document.text().contains("command = \"x\" }, # one\n"), "{}", document.text());
}

#[test]
fn text_is_unchanged_without_an_edit() {
    check(FILE, |_| (), &[]);
    for text in ["", "\n", "# only this", "a = 1", "\u{feff}a = 1\r\n# x\r\n[b]\r\n"] {
        check(text, |_| (), &[]);
    }
}

#[test]
fn entry_is_read_as_mcp_config() {
    let document = parse(FILE);
    let files = named(&document, "files");
    assert_eq!(files.package.package_type, McpPackageType::Binary);
    assert_eq!((&*files.package.identifier, &files.transport), ("npx", &McpTransport::Stdio));
    let sauce = json!({ "a": 1, "b": [1.5, "2024-01-01"] });
    assert_eq!(
        files.config,
        json!({ "args": ["-y", "server-filesystem"], "deny": ["write_*"], "secret_sauce": sauce })
    );
    assert_eq!(files.env_vars["A"].value.as_deref(), Some("x"));
    let token = &files.env_vars["TOKEN"];
    assert_eq!(token.secret_ref.as_deref(), Some("files-token"));
    assert!(token.is_secret && token.required);

    let sentry = named(&document, "sentry");
    assert_eq!(sentry.id.to_string(), "0190a6b2-0000-7000-8000-00000000000a");
    assert_eq!(sentry.transport, McpTransport::Http { url: "https://mcp.sentry.io".to_owned() });
    let headers = json!({ "headers": { "Authorization": "Bearer ${SENTRY_TOKEN}" } });
    assert_eq!(sentry.config, headers);

    let git = document.find(&ConfigScope::Agent("main".to_owned()), "git").unwrap().config;
    assert_eq!(git.package.package_type, McpPackageType::Pypi);
    assert_eq!(git.package.version.as_deref(), Some("1"));
    let package = json!({ "runtime_args": ["-q"] });
    assert_eq!(git.config, json!({ "args": ["--repository", "."], "package": package }));
}

#[test]
fn edit_changes_only_its_value() {
    let text = file();
    check(&text, |document| change(document, "files", |_| ()), &[]);
    check(
        &text,
        |document| change(document, "files", |config| config.name = "docs".to_owned()),
        &[(r#"name = "files"   # shared"#, r#"name = "docs"   # shared"#)],
    );
    check(
        &text,
        |document| {
            change(document, "files", |config| config.package.identifier = "bunx".to_owned());
        },
        &[(r#"command = "npx""#, r#"command = "bunx""#)],
    );
    check(
        &text,
        |document| {
            change(document, "files", |config| {
                config.config["args"] = json!(["-y", "other", "/tmp"]);
            });
        },
        &[("    \"server-filesystem\",\n", "    \"other\",\n    \"/tmp\",\n")],
    );
    check(
        &text,
        |document| {
            change(document, "files", |config| config.config["secret_sauce"]["a"] = json!(2));
        },
        &[("{ a = 1, b", "{ a = 2, b")],
    );
    check(
        &text,
        |document| {
            change(document, "files", |config| {
                config.env_vars.get_mut("A").unwrap().value = Some("y".into());
            });
        },
        &[(r#"A = "x""#, r#"A = "y""#)],
    );
    check(
        &text,
        |document| change(document, "files", |config| drop(config.env_vars.remove("TOKEN"))),
        &[(r#", TOKEN = { secret_ref = "files-token" }"#, "")],
    );
    check(
        &text,
        |document| {
            change(document, "sentry", |config| config.config["headers"] = json!({ "X-Key": "k" }));
        },
        &[(r#"  Authorization = "Bearer ${SENTRY_TOKEN}""#, r#"X-Key = "k""#)],
    );
    check(
        &text,
        |document| change(document, "git", |config| config.package.version = None),
        &[(r#"version = "1", "#, "")],
    );
}

#[test]
fn enabling_and_disabling_edits_one_line() {
    let text = file();
    let id = named(&parse(&text), "sentry").id;
    let mut document = parse(&text);
    document.set_enabled(id, Enabled::No).unwrap();
    let line = "url = \"https://mcp.sentry.io\"\n";
    let forbidden = text.replace(line, &format!("{line}enabled = false\n"));
    assert_eq!(document.text(), forbidden);
    document.set_enabled(id, Enabled::Yes).unwrap();
    assert_eq!(document.text(), text);
    assert_eq!(
        document.set_enabled(Uuid::nil(), Enabled::No).unwrap_err().code(),
        ErrorCode::NotFound
    );
}

#[test]
fn removing_an_entry_removes_its_comment() {
    let text = file();
    let remove = |name: &'static str| {
        move |document: &mut Document| {
            let id = named(document, name).id;
            document.remove(id).unwrap();
        }
    };
    let begin = text.find("# The files.").unwrap();
    let end = text.find("# [[defaults.mcp]]").unwrap();
    check(&text, remove("files"), &[(&text[begin..end], "")]);
    let begin = text.find("[[defaults.mcp]]\n  name = \"sentry\"").unwrap();
    let end = text.find("\n[[agents]]").unwrap();
    check(&text, remove("sentry"), &[(&text[begin..=end], "")]);
    let header = "# Keep me.\n\n# Go away.\n";
    let rest = "[[defaults.mcp]]\nname = 'b'\ncommand = 'y'\n";
    let entry = "[[defaults.mcp]]\nname = 'a'\ncommand = 'x'\n";
    let both = format!("{header}{entry}\n{rest}");
    check(&both, remove("a"), &[(&format!("# Go away.\n{entry}\n"), "")]);
    check(&format!("{header}{entry}"), remove("a"), &[(&format!("# Go away.\n{entry}"), "")]);
}

fn plain(name: &str) -> McpConfig {
    let package = json!({ "package_type": "binary", "identifier": "run-me" });
    let transport = json!({ "type": "stdio" });
    let config = json!({ "name": name, "package": package, "transport": transport });
    serde_json::from_value(config).unwrap()
}

/// Adds a server to a text and returns the new text.
fn added(text: &str, scope: &ConfigScope) -> String {
    let mut document = parse(text);
    let id = document.add(scope, &plain("new")).unwrap();
    let now = document.text();
    assert_eq!(parse(&now).get(id).unwrap().scope, *scope);
    now.replace(&id.to_string(), "ID")
}

#[test]
fn new_server_is_appended_to_its_list() {
    let entry = "[[defaults.mcp]]\nname = \"new\"\nid = \"ID\"\ntransport = \"stdio\"\ncommand = \"run-me\"\n";
    let defaults = |text: &str| added(text, &ConfigScope::Defaults);
    assert_eq!(defaults(""), entry);
    assert_eq!(defaults("# hello"), format!("# hello\n\n{entry}"));
    assert_eq!(defaults("# hello\n\n"), format!("# hello\n\n{entry}"));
    assert_eq!(defaults("[defaults]\npin = true\n"), format!("[defaults]\npin = true\n\n{entry}"));
    assert_eq!(defaults("a = 1\n[b]\n"), format!("a = 1\n[b]\n\n{entry}"));
    let old = "[[defaults.mcp]]\nname = 'a'\ncommand = 'x'\n[defaults.mcp.env]\nA = 'b'\n";
    let agents = "\n# agents\n[[agents]]\nid = 'main'\n";
    assert_eq!(defaults(&format!("{old}{agents}")), format!("{old}\n{entry}{agents}"));
    let crlf = format!("{old}{agents}").replace('\n', "\r\n");
    assert_eq!(defaults(&crlf), format!("{old}\n{entry}{agents}").replace('\n', "\r\n"));
    let own = entry.replace("defaults", "agents");
    let main = ConfigScope::Agent("main".to_owned());
    assert_eq!(added(&format!("{old}{agents}"), &main), format!("{old}{agents}\n{own}"));
    assert_eq!(added(old, &main), format!("{old}\n[[agents]]\nid = \"main\"\n\n{own}"));
    let inline = "defaults = { mcp = [{ name = 'a', command = 'x' }] }\n";
    let row = r#"{ name = "new", id = "ID", transport = "stdio", command = "run-me" }"#;
    assert_eq!(defaults(inline), inline.replace("x' }]", &format!("x' }}, {row}]")));
    let empty = "defaults = { pin = true }\n";
    assert_eq!(defaults(empty), empty.replace("true }", &format!("true, mcp = [{row}] }}")));
}

#[test]
fn names_and_ids_are_unique() {
    let mut document = parse(&file());
    let code = |result: Result<Uuid, ServiceError>| result.unwrap_err().code();
    assert_eq!(code(document.add(&ConfigScope::Defaults, &plain("files"))), ErrorCode::Conflict);
    let id = named(&document, "files").id;
    let twin = McpConfig { id, ..plain("twin") };
    assert_eq!(code(document.add(&ConfigScope::Defaults, &twin)), ErrorCode::Conflict);
    let sentry = McpConfig { name: "files".to_owned(), ..named(&document, "sentry") };
    assert_eq!(document.replace(&sentry).unwrap_err().code(), ErrorCode::Conflict);
    document.add(&ConfigScope::Agent("main".to_owned()), &plain("files")).unwrap();
    assert_eq!(document.replace(&plain("unknown")).unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(document.remove(Uuid::new_v4()).unwrap_err().code(), ErrorCode::NotFound);
}

#[test]
fn derived_id_is_the_one_that_is_written() {
    let document = parse(FILE);
    let derived: Vec<Uuid> = document.entries().iter().map(|entry| entry.config.id).collect();
    let written: Vec<Uuid> = parse(&file()).entries().iter().map(|entry| entry.config.id).collect();
    assert_eq!(derived, written);

    // An entry was renamed and a new one has its old name; another was copied together with its id.
    let text = file();
    let renamed = text.replace(r#"name = "files""#, r#"name = "old""#);
    let copied = format!(
        "{renamed}\n[[defaults.mcp]]\nname = 'files'\ncommand = 'x'\n[[defaults.mcp]]\nname = 'copy'\ncommand = 'x'\nid = '{}'\n",
        derived[0]
    );
    let mut document = parse(&copied);
    assert_eq!(named(&document, "old").id, derived[0]);
    assert_eq!(document.assign_ids(), 2);
    let ids: HashSet<Uuid> =
        parse(&document.text()).entries().iter().map(|entry| entry.config.id).collect();
    assert_eq!(ids.len(), 5);
}

#[test]
fn unrepresentable_config_reports_every_field() {
    let mut config = plain("a");
    config.transport = McpTransport::Http { url: "https://a.dev".to_owned() };
    config.config = json!({
        "command": "x", "args": [null], "max_output_bytes": u64::MAX, "timeout": null,
        "package": { "type": "npm", "program": [null], "runtime_args": null },
    });
    let error = parse("").add(&ConfigScope::Defaults, &config).unwrap_err();
    let fields: Vec<_> =
        error.details().iter().filter_map(|detail| detail.field.as_deref()).collect();
    let mut sorted = fields.clone();
    sorted.sort_unstable();
    let expected =
        ["config.args[0]", "config.max_output_bytes", "config.package.program[0]", "transport"];
    assert_eq!(sorted, expected);
}

/// Saves a config with this `config`, and returns the lines of its entry that hold it.
fn saved(config: Value) -> String {
    let mut document = parse("");
    let config = McpConfig { config, ..plain("a") };
    let id = document.add(&ConfigScope::Defaults, &config).unwrap();
    assert_eq!(parse(&document.text()).get(id).unwrap().config, McpConfig { id, ..config });
    let is_own = |line: &&str| {
        !["[[", "name", "id", "transport", "command"].iter().any(|own| line.starts_with(own))
    };
    document.text().lines().filter(is_own).collect::<Vec<_>>().join("\n")
}

/// Spec 004: `config` is any JSON value. Settings act, everything else is kept in the table `config`.
#[test]
fn free_form_config_is_kept() {
    let config =
        json!({ "timeout": "5s", "theme": "dark", "url": "x", "deep": { "list": [1, 2.5] } });
    let expected =
        "config = { url = \"x\", deep = { list = [1, 2.5] }, theme = \"dark\" }\ntimeout = \"5s\"";
    assert_eq!(saved(config), expected);
    // What TOML cannot hold is kept as JSON text.
    let config = json!({ "gone": null, "big": u64::MAX, "in": [{ "a": null }] });
    let expected = "config = { big = { \"$json\" = \"18446744073709551615\" }, \
        gone = { \"$json\" = \"null\" }, in = [{ a = { \"$json\" = \"null\" } }] }";
    assert_eq!(saved(config), expected);
    assert_eq!(saved(json!("text")), r#"config = { "$json" = '"text"' }"#);
    assert_eq!(saved(json!({})), "config = {}");
    assert_eq!(saved(Value::Null), "");
    // An object that looks like JSON text is an object.
    assert_eq!(
        saved(json!({ "a": { "$json": "null" } })),
        r#"config = { a = { "$json" = '{"$json":"null"}' } }"#
    );
}

#[test]
fn unknown_keys_stay_where_they_are() {
    let text = "[[defaults.mcp]]\nname = 'a'\nid = '0190a6b2-0000-7000-8000-00000000000a'\ntheirs = 0x10 # hex\n\
        package = { type = 'npm', identifier = 'b', note = 'n' }\nconfig = { pin = true, x = 1 }\n";
    let mut document = parse(text);
    let before = named(&document, "a");
    let expected = json!({ "theirs": 16, "package": { "note": "n" }, "x": 1 });
    assert_eq!(before.config, expected, "a setting in `config` does not act");
    document.replace(&before).unwrap();
    assert_eq!(document.text(), text, "nothing has changed");
    let config =
        json!({ "theirs": 17, "package": { "more": 1, "note": "n" }, "x": 2, "timeout": "5s" });
    document.replace(&McpConfig { config: config.clone(), ..before.clone() }).unwrap();
    assert_eq!(named(&parse(&document.text()), "a").config, config);
    let lines = [
        "theirs = 17 # hex",
        "package = { type = 'npm', identifier = 'b', note = 'n' }",
        "config = { pin = true, x = 2, package = { more = 1 } }",
        "timeout = \"5s\"",
    ];
    for line in lines {
        assert!(document.text().contains(line), "{line}\n{}", document.text());
    }
    document.replace(&McpConfig { config: Value::Null, ..before.clone() }).unwrap();
    assert!(
        !document.text().contains("theirs") && document.text().contains("config = { pin = true }"),
        "{}",
        document.text()
    );
    // A value that is no object is not lost for a setting.
    document.replace(&McpConfig { config: json!([1]), ..before.clone() }).unwrap();
    document.replace(&McpConfig { config: json!({ "timeout": "5s" }), ..before }).unwrap();
    assert!(document.text().contains("\"$json\" = \"[1]\""), "{}", document.text());
}

#[test]
fn invalid_file_reports_all_diagnostics() {
    let error =
        Document::parse("t.toml", "[[defaults.mcp]]\nname = 1\n[[defaults.mcp]]\nurl = 'x'\n");
    let messages: Vec<String> =
        error.unwrap_err().details().iter().map(|detail| detail.message.clone()).collect();
    assert!(messages.len() >= 3, "{messages:?}");
    assert!(messages.iter().all(|message| message.starts_with("t.toml:")), "{messages:?}");
}
