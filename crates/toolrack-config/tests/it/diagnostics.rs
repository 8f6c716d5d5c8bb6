//! All diagnostics of a file, with positions and suggestions.

use toolrack_config::read;

use crate::format;

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(format::diagnostics(&read("t.toml", text).diagnostics), expected, "{text}");
}

/// A valid server but for the given lines, which start at line 4.
#[track_caller]
fn server(lines: &str, expected: &[&str]) {
    check(&format!("[[defaults.mcp]]\nname = 'a'\ncommand = 'x'\n{lines}\n"), expected);
}

/// A server with only a name, on line 2.
#[track_caller]
fn bare(lines: &str, expected: &[&str]) {
    check(&format!("[[defaults.mcp]]\nname = 'a'\n{lines}\n"), expected);
}

#[test]
fn unknown_keys_are_reported() {
    server("comand = 'y'", &["W 4:1 UnknownKey defaults.mcp[0].comand (command?)"]);
    server("whatever = 1", &["W 4:1 UnknownKey defaults.mcp[0].whatever"]);
    // `config` is free-form; a setting in it would mislead.
    server("config = { whatever = 1, url = 'x' }", &[]);
    server("config = { timeout = '5s' }", &["W 4:12 Conflict defaults.mcp[0].config.timeout"]);
    bare(
        "package = { type = 'npm', identifier = 'p', verison = '1' }",
        &["W 3:45 UnknownKey defaults.mcp[0].package.verison (version?)"],
    );
    check(
        "[defaults]\ntimeuot = '1s'\nmax_turns = 3\n[llm]\nx = 1\n",
        &["W 2:1 UnknownKey defaults.timeuot (timeout?)"],
    );
    check("[default]\nx = 1\n", &["W 1:2 UnknownKey default (defaults?)"]);
    check("[[mcp]]\nname = 'a'\n", &["W 1:3 UnknownKey mcp"]);
}

#[test]
fn wrong_types_are_reported() {
    server("args = 'x'", &["E 4:8 WrongType defaults.mcp[0].args"]);
    server("args = ['x', 1]", &["E 4:14 WrongType defaults.mcp[0].args[1]"]);
    server("env = { A = 1 }", &["E 4:13 WrongType defaults.mcp[0].env.A"]);
    server("env = { A = { required = true } }", &["E 4:13 Missing defaults.mcp[0].env.A"]);
    server("enabled = 'yes'", &["E 4:11 WrongType defaults.mcp[0].enabled"]);
    server("timeout = 30", &["E 4:11 WrongType defaults.mcp[0].timeout"]);
    server("timeout = '30'", &["E 4:11 Invalid defaults.mcp[0].timeout"]);
    server("timeout = 'never'", &["E 4:11 Invalid defaults.mcp[0].timeout"]);
    server("max_output_bytes = 0", &["E 4:20 Invalid defaults.mcp[0].max_output_bytes"]);
    server("max_list_bytes = 0", &["E 4:18 Invalid defaults.mcp[0].max_list_bytes"]);
    server("max_list_bytes = '1MiB'", &["E 4:18 WrongType defaults.mcp[0].max_list_bytes"]);
    server("max_output_bytes = 1.5", &["E 4:20 WrongType defaults.mcp[0].max_output_bytes"]);
    server("start = 'lasy'", &["E 4:9 Invalid defaults.mcp[0].start (lazy?)"]);
    server("allow = ['']", &["E 4:10 Invalid defaults.mcp[0].allow[0]"]);
    server("id = 'x'", &["E 4:1 Invalid defaults.mcp[0].id"]);
    check("defaults = 1\nagents = {}\n", &["E 1:12 WrongType defaults", "E 2:10 WrongType agents"]);
    check("[defaults.mcp]\nname = 'a'\n", &["E 1:1 WrongType defaults.mcp"]);
    check(
        "[defaults]\nname_separator = '/'\nname_limit = 8\n",
        &["E 2:1 Invalid defaults.name_separator", "E 3:1 Invalid defaults.name_limit"],
    );
}

#[test]
fn secret_in_arguments_is_a_warning() {
    server("args = ['--key=${secret:k}']", &["W 4:9 Exposed defaults.mcp[0].args[0]"]);
    server("args = ['$${secret:k}', '${KEY}']", &[]);
    server("env = { KEY = '${secret:k}' }", &[]);
    bare(
        "package = { type = 'npm', identifier = 'p', args = ['${secret:k}'] }",
        &["W 3:53 Exposed defaults.mcp[0].package.args[0]"],
    );
}

#[test]
fn server_has_exactly_one_transport() {
    bare("", &["E 1:1 Missing defaults.mcp[0].transport"]);
    bare("transport = 'stdio'", &["E 1:1 Missing defaults.mcp[0].command"]);
    bare("transport = 'http'", &["E 1:1 Missing defaults.mcp[0].url"]);
    bare(
        "transport = 'htpp'\nurl = 'https://a.dev'",
        &["E 3:13 Invalid defaults.mcp[0].transport (http?)"],
    );
    server("url = 'https://a.dev'", &["E 4:1 Conflict defaults.mcp[0].url"]);
    server("transport = 'http'", &["E 4:1 Conflict defaults.mcp[0].transport"]);
    server(
        "package = { type = 'npm', identifier = 'p' }",
        &["E 4:1 Conflict defaults.mcp[0].package"],
    );
    bare(
        "package = { type = 'pypy' }",
        &[
            "E 3:11 Missing defaults.mcp[0].package.identifier",
            "E 3:20 Invalid defaults.mcp[0].package.type (pypi?)",
        ],
    );
    bare("command = ''", &["E 3:1 Invalid defaults.mcp[0].command"]);
    bare("command = 'npx -y x'", &["W 3:1 Invalid defaults.mcp[0].command"]);
    server("headers = { A = 'b' }", &["W 4:1 Conflict defaults.mcp[0].headers"]);
}

#[test]
fn urls_and_headers_are_checked() {
    bare("url = 'a.dev/mcp'", &["E 3:1 Invalid defaults.mcp[0].url"]);
    bare("url = 'ws://a.dev'", &["E 3:1 Invalid defaults.mcp[0].url"]);
    bare("url = '${BASE}/mcp'", &[]);
    let url = "url = 'https://a.dev'\n";
    bare(
        &format!("{url}headers = {{ 'X Y' = 'z' }}"),
        &[r#"E 4:13 Invalid defaults.mcp[0].headers."X Y""#],
    );
    bare(
        &format!("{url}headers = {{ A = \"b\\nc\" }}"),
        &["E 4:13 Invalid defaults.mcp[0].headers.A"],
    );
    bare(
        &format!("{url}headers = {{ A = '1', a = '2' }}"),
        &["E 4:22 Duplicate defaults.mcp[0].headers.a"],
    );
    bare(
        &format!("{url}headers = {{ A = '${{secrets:x}}' }}"),
        &["E 4:13 Invalid defaults.mcp[0].headers.A"],
    );
    server("env = { 'A=B' = 'c' }", &["E 4:9 Invalid defaults.mcp[0].env.A=B"]);
    server("args = ['${x%.*}']", &["W 4:9 Invalid defaults.mcp[0].args[0]"]);
}

#[test]
fn server_names_are_unique_and_valid() {
    check("[[defaults.mcp]]\ncommand = 'x'\n", &["E 1:1 Missing defaults.mcp[0].name"]);
    check("[[defaults.mcp]]\nname = ' '\ncommand = 'x'\n", &["E 2:8 Invalid defaults.mcp[0].name"]);
    check(
        "[[defaults.mcp]]\nname = 'toolrack'\ncommand = 'x'\n",
        &["E 2:1 Reserved defaults.mcp[0].name"],
    );
    check(
        "[[defaults.mcp]]\nname = 'a/b'\ncommand = 'x'\n",
        &["E 2:1 Invalid defaults.mcp[0].name"],
    );
    let one = "name = 'a'\ncommand = 'x'\n";
    check(
        &format!("[[defaults.mcp]]\n{one}[[defaults.mcp]]\n{one}"),
        &["E 5:1 Duplicate defaults.mcp[1].name"],
    );
    check(
        "[[agents]]\nid = 'm'\n[[agents]]\nid = 'm'\n[[agents]]\n",
        &["E 4:1 Duplicate agents[1].id", "E 5:1 Missing agents[2].id"],
    );
}

#[test]
fn all_diagnostics_come_at_once() {
    let text = "[defaults]\ntimeout = 5\nidle = \n\n[[defaults.mcp]]\nname = 'a'\nargs = [1]\n";
    let diagnostics = format::diagnostics(&read("t.toml", text).diagnostics);
    assert!(
        diagnostics
            .iter()
            .any(|diagnostic| diagnostic.starts_with("E 3:") && diagnostic.contains("Syntax")),
        "{diagnostics:?}"
    );
    assert!(
        diagnostics.contains(&"E 2:11 WrongType defaults.timeout".to_owned()),
        "{diagnostics:?}"
    );
    assert!(
        diagnostics.contains(&"E 7:9 WrongType defaults.mcp[0].args[0]".to_owned()),
        "{diagnostics:?}"
    );
    assert!(
        diagnostics.contains(&"E 5:1 Missing defaults.mcp[0].transport".to_owned()),
        "{diagnostics:?}"
    );
}

#[test]
fn valid_entries_survive_invalid_ones() {
    let reading = read(
        "t.toml",
        "[[defaults.mcp]]\nname = 'a'\n[[defaults.mcp]]\nname = 'b'\ncommand = 'x'\n",
    );
    assert_eq!(format::servers(&reading.value), ["b: x []"]);
    assert!(reading.has_errors() && reading.accept().is_err());
}

#[test]
fn diagnostic_is_one_line_with_the_fix() {
    let text = "[[defaults.mcp]]\nname = 'a'\ncommand = 'x'\ntimeout = 30\nstrat = 'lazy'\n";
    let lines: Vec<_> =
        read("dir/t.toml", text).diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "dir/t.toml:4:11: defaults.mcp[0].timeout: must be a duration with a unit; write `\"30s\"` \
             or `\"30ms\"`, not an integer",
            "dir/t.toml:5:1: defaults.mcp[0].strat: is an unknown key and has no effect; did you \
             mean `start`?",
        ]
    );
}
