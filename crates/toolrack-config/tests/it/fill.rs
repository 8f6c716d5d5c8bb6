//! Filling in references when a connection is made.

use std::cell::RefCell;

use toolrack_config::{Lookup, McpServerConfig, ResolvedTransport, Source, interpolate, read};

use crate::show;

/// Knows a few names, and one file that cannot be read.
fn lookup(source: Source, name: &str) -> Result<Option<String>, String> {
    let value = match (source, name) {
        (Source::Env, "HOME") => "/home/me",
        (Source::Env, "EMPTY") => "",
        (Source::Env, "TRICK") => "${HOME} ${secret:git-token} $${",
        (Source::Env, "LINES") => "a\r\nX-Other: b",
        (Source::Secret, "git-token") => "s3cret",
        (Source::File, "/run/key") => "from-file\n",
        (Source::File, "/home/me/key") => "from-home\n",
        (Source::File, "/run/locked") => return Err("permission denied".to_owned()),
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
fn references_are_filled_in() {
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
fn a_tilde_in_front_of_a_path_is_the_home() {
    let places = |command: &str, cwd: &str| {
        let config = server(&format!("command = '{command}'\ncwd = '{cwd}'"));
        match interpolate(&config, &lookup).expect("everything is known") {
            ResolvedTransport::Stdio { command, cwd: Some(cwd), .. } => {
                [command.into_revealed(), cwd.into_revealed()]
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(places("~/bin/x", "~"), ["/home/me/bin/x", "/home/me"]);
    assert_eq!(places("~other/x", "/a/~/b"), ["~other/x", "/a/~/b"]);
    arg("${file:~/key}", "from-home");
    // Whoever gets an argument may mean something else by it.
    arg("~/x", "~/x");
    let config = server("command = '~/x'");
    let nobody = |_: Source, _: &str| Ok(None);
    let faults = interpolate(&config, &nobody).expect_err("there is no home");
    assert!(faults[0].to_string().contains("the variable `HOME` is not set"), "{}", faults[0]);
}

#[test]
fn what_was_filled_in_is_not_filled_in_again() {
    arg("${TRICK}", "${HOME} ${secret:git-token} $${");
    arg("$${${TRICK}}", "${${HOME} ${secret:git-token} $${}");
}

#[track_caller]
fn faults(lines: &str, expected: &[&str]) {
    let faults = interpolate(&server(lines), &lookup).expect_err("something is missing");
    assert_eq!(faults.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
}

#[test]
fn everything_that_is_missing_is_named_with_its_place() {
    faults(
        "command = '${SHELL_X}'\nargs = ['a', '${B}${C}']\nenv = { D = '${secret:none}', E = { secret_ref = 'gone' } }",
        &[
            "t.toml:3:1: defaults.mcp[0].command: the variable `SHELL_X` is not set; set it, or write `${SHELL_X:-default}`",
            "t.toml:4:14: defaults.mcp[0].args[1]: the variable `B` is not set; set it, or write `${B:-default}`",
            "t.toml:4:14: defaults.mcp[0].args[1]: the variable `C` is not set; set it, or write `${C:-default}`",
            "t.toml:5:9: defaults.mcp[0].env.D: the secret `none` is not stored; store it under that name",
            "t.toml:5:31: defaults.mcp[0].env.E: the secret `gone` is not stored; store it under that name",
        ],
    );
    faults(
        "command = 'x'\ncwd = '${file:/run/locked}'",
        &[
            "t.toml:4:1: defaults.mcp[0].cwd: the file `/run/locked` cannot be read: permission denied",
        ],
    );
}

/// Knows nothing, and what to do about it.
struct Adviser;

impl Lookup for Adviser {
    fn look_up(&self, _source: Source, _name: &str) -> Result<Option<String>, String> {
        Ok(None)
    }

    fn advice(&self, variable: &str) -> Option<String> {
        Some(format!("ask for {variable}"))
    }
}

#[test]
fn whoever_has_the_variables_may_know_what_to_do() {
    let config = server("command = '${A}'\nargs = ['${file:/b}']");
    let faults = interpolate(&config, &Adviser).expect_err("nothing is known");
    let told = faults.iter().map(|it| (it.message.as_str(), it.advice.as_deref()));
    let expected = [
        ("the variable `A` is not set", Some("ask for A")),
        ("the file `/b` does not exist", None),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn values_are_checked_again_when_they_are_known() {
    faults(
        "url = '${HOME}/mcp'",
        &[
            "t.toml:3:1: defaults.mcp[0].url: is no URL; write all of it, as in `https://example.com/mcp`",
        ],
    );
    faults(
        "url = 'https://a.dev'\nheaders = { X = '${LINES}' }",
        &[
            "t.toml:4:13: defaults.mcp[0].headers.X: must not contain line breaks or other control characters",
        ],
    );
    faults("command = '${EMPTY}'", &["t.toml:3:1: defaults.mcp[0].command: must not be empty"]);
}

#[test]
fn a_server_built_in_code_is_named_by_its_name() {
    let config = McpServerConfig::stdio("built", "${NOBODY}", &[]);
    let faults = interpolate(&config, &lookup).expect_err("something is missing");
    assert!(faults[0].to_string().starts_with("built.command: the variable"), "{}", faults[0]);
}

#[test]
fn an_unknown_secret_that_is_not_required_leaves_the_variable_unset() {
    let config = server(
        "command = 'x'\nenv = { A = { secret_ref = 'none', required = false }, B = { secret_ref = 'git-token' } }",
    );
    let ResolvedTransport::Stdio { env, .. } = interpolate(&config, &lookup).unwrap() else {
        panic!("a process")
    };
    assert_eq!(env.keys().collect::<Vec<_>>(), ["B"]);
    assert_eq!(env["B"].reveal(), "s3cret");
}

#[test]
fn nothing_that_was_filled_in_can_be_printed() {
    let config = server(
        "command = 'x'\nargs = ['--key=${secret:git-token}', 'typed-s3cret']\nenv = { A = '${secret:git-token}' }",
    );
    let resolved = interpolate(&config, &lookup).unwrap();
    let shown = format!("{resolved:?} {config:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains("--key=${secret:git-token}"), "{shown}");
}

#[test]
fn each_name_is_looked_up_when_it_is_needed_and_not_before() {
    let asked = RefCell::new(Vec::new());
    let lookup = |_: Source, name: &str| {
        asked.borrow_mut().push(name.to_owned());
        Ok(Some("v".to_owned()))
    };
    let file = read("native/toolrack.toml", &show::sample("native/toolrack.toml")).value;
    let servers = file.resolve("main");
    assert!(asked.borrow().is_empty());
    let _filled = interpolate(&servers[1], &lookup).unwrap();
    assert_eq!(*asked.borrow(), ["SENTRY_TOKEN"]);
}
