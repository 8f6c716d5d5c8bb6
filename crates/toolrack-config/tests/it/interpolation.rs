//! Interpolation.

use std::cell::RefCell;

use toolrack_config::{
    Lookup, McpServerConfig, Resolved, ResolvedTransport, VariableSource, interpolate, read,
};

use crate::format;

/// Knows a few names, and one unreadable file.
fn lookup(source: VariableSource, name: &str) -> Result<Option<String>, String> {
    let value = match (source, name) {
        (VariableSource::Env, "HOME") => "/home/me",
        (VariableSource::Env, "EMPTY") => "",
        (VariableSource::Env, "TRICK") => "${HOME} ${secret:git-token} $${",
        (VariableSource::Env, "LINES") => "a\r\nX-Other: b",
        (VariableSource::Secret, "git-token") => "s3cret",
        (VariableSource::File, "/run/key") => "from-file\n",
        (VariableSource::File, "/home/me/key") => "from-home\n",
        (VariableSource::File, "/run/locked") => return Err("permission denied".to_owned()),
        _ => return Ok(None),
    };
    Ok(Some(value.to_owned()))
}

fn server(lines: &str) -> McpServerConfig {
    let text = format!("[[defaults.mcp]]\nname = 'a'\n{lines}\n");
    let file = read("t.toml", &text).accept().expect("a sound file").0;
    file.resolve("any").remove(0)
}

#[track_caller]
fn arg(template: &str, expected: &str) {
    let config = McpServerConfig::stdio("a", "x", &[template]);
    match interpolate(&config, &lookup).expect("everything is known") {
        ResolvedTransport::Stdio { args, .. } => {
            assert_eq!(args[0].reveal(), expected, "{template}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn references_are_resolved() {
    arg("${HOME}/x", "/home/me/x");
    arg("${env:HOME}", "/home/me");
    arg("${NOBODY:-fallback}", "fallback");
    arg("${EMPTY:-fallback}", "fallback");
    arg("[${EMPTY}]", "[]");
    arg("${NOBODY:-}", "");
    arg("${secret:git-token}", "s3cret");
    arg("${secret:none:-d}", "d");
    arg("${file:/run/key}", "from-file");
    arg("$${HOME}", "${HOME}");
    arg("${x%.*} $5", "${x%.*} $5");
}

#[test]
fn leading_tilde_is_the_home_directory() {
    let locations = |command: &str, cwd: &str| {
        let config = server(&format!("command = '{command}'\ncwd = '{cwd}'"));
        match interpolate(&config, &lookup).expect("everything is known") {
            ResolvedTransport::Stdio { command, cwd: Some(cwd), .. } => {
                [command.into_revealed(), cwd.into_revealed()]
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(locations("~/bin/x", "~"), ["/home/me/bin/x", "/home/me"]);
    assert_eq!(locations("~other/x", "/a/~/b"), ["~other/x", "/a/~/b"]);
    arg("${file:~/key}", "from-home");
    // Another program may give these texts a meaning.
    arg("~/x", "~/x");
    let config = server("command = '~/x'");
    let nobody = |_: VariableSource, _: &str| Ok(None);
    let diagnostics = interpolate(&config, &nobody).expect_err("there is no home");
    assert!(
        diagnostics[0].to_string().contains("the variable `HOME` is not set"),
        "{}",
        diagnostics[0]
    );
}

#[test]
fn resolved_values_are_not_interpolated_again() {
    arg("${TRICK}", "${HOME} ${secret:git-token} $${");
    arg("$${${TRICK}}", "${${HOME} ${secret:git-token} $${}");
}

#[track_caller]
fn diagnostics(lines: &str, expected: &[&str]) {
    let diagnostics = interpolate(&server(lines), &lookup).expect_err("something is missing");
    assert_eq!(diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
}

#[test]
fn all_missing_values_are_reported_with_positions() {
    diagnostics(
        "command = '${SHELL_X}'\nargs = ['a', '${B}${C}']\nenv = { D = '${secret:none}', E = { secret_ref = 'gone' } }",
        &[
            "t.toml:3:1: defaults.mcp[0].command: the variable `SHELL_X` is not set; set it, or write `${SHELL_X:-default}`",
            "t.toml:4:14: defaults.mcp[0].args[1]: the variable `B` is not set; set it, or write `${B:-default}`",
            "t.toml:4:14: defaults.mcp[0].args[1]: the variable `C` is not set; set it, or write `${C:-default}`",
            "t.toml:5:9: defaults.mcp[0].env.D: the secret `none` does not exist; create it with that name",
            "t.toml:5:31: defaults.mcp[0].env.E: the secret `gone` does not exist; create it with that name",
        ],
    );
    diagnostics(
        "command = 'x'\ncwd = '${file:/run/locked}'",
        &[
            "t.toml:4:1: defaults.mcp[0].cwd: the file `/run/locked` cannot be read: permission denied",
        ],
    );
}

/// Knows no values, but has advice.
struct Adviser;

impl Lookup for Adviser {
    fn look_up(&self, _source: VariableSource, _name: &str) -> Result<Option<String>, String> {
        Ok(None)
    }

    fn advice(&self, variable: &str) -> Option<String> {
        Some(format!("ask for {variable}"))
    }
}

#[test]
fn lookup_can_give_advice() {
    let config = server("command = '${A}'\nargs = ['${file:/b}']");
    let diagnostics = interpolate(&config, &Adviser).expect_err("nothing is known");
    let told = diagnostics
        .iter()
        .map(|diagnostic| (diagnostic.message.as_str(), diagnostic.advice.as_deref()));
    let expected = [
        ("the variable `A` is not set", Some("ask for A")),
        ("the file `/b` does not exist", None),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn resolved_values_are_validated() {
    diagnostics(
        "url = '${HOME}/mcp'",
        &[
            "t.toml:3:1: defaults.mcp[0].url: is not a valid URL; write the full URL, such as `https://example.com/mcp`",
        ],
    );
    diagnostics(
        "url = 'https://a.dev'\nheaders = { X = '${LINES}' }",
        &[
            "t.toml:4:13: defaults.mcp[0].headers.X: must not contain line breaks or other control characters",
        ],
    );
    diagnostics(
        "command = '${EMPTY}'",
        &["t.toml:3:1: defaults.mcp[0].command: must not be empty"],
    );
}

#[test]
fn server_built_in_code_is_named_in_diagnostics() {
    let config = McpServerConfig::stdio("built", "${NOBODY}", &[]);
    let diagnostics = interpolate(&config, &lookup).expect_err("something is missing");
    assert!(
        diagnostics[0].to_string().starts_with("built.command: the variable"),
        "{}",
        diagnostics[0]
    );
}

#[test]
fn optional_variable_without_a_value_is_empty() {
    let config = server(
        "command = 'x'\nenv = { A = { secret_ref = 'none', required = false }, B = { secret_ref = 'git-token' }, C = { required = false } }",
    );
    let ResolvedTransport::Stdio { env, .. } = interpolate(&config, &lookup).unwrap() else {
        panic!("a process")
    };
    let values = ["A", "B", "C"].map(|name| env.get(name).map(Resolved::reveal));
    assert_eq!(values, [Some(""), Some("s3cret"), Some("")]);
}

#[test]
fn resolved_values_are_not_printed() {
    let config = server(
        "command = 'x'\nargs = ['--key=${secret:git-token}', 'typed-s3cret']\nenv = { A = '${secret:git-token}' }",
    );
    let resolved = interpolate(&config, &lookup).unwrap();
    let shown = format!("{resolved:?} {config:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains("--key=${secret:git-token}"), "{shown}");
}

#[test]
fn lookups_are_lazy() {
    let asked = RefCell::new(Vec::new());
    let lookup = |_: VariableSource, name: &str| {
        asked.borrow_mut().push(name.to_owned());
        Ok(Some("v".to_owned()))
    };
    let file = read("native/toolrack.toml", &format::sample("native/toolrack.toml")).value;
    let servers = file.resolve("main");
    assert!(asked.borrow().is_empty());
    let _filled = interpolate(&servers[1], &lookup).unwrap();
    assert_eq!(*asked.borrow(), ["SENTRY_TOKEN"]);
}
