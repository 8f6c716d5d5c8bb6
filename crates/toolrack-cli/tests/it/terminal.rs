//! The program on a terminal: spinners, Ctrl-C, prompts and tables.

use std::time::Duration;

use toolrack_testkit::{Journal, eventually};

use crate::fixture::{Fixture, LONG};
use crate::pty::Pty;

/// What Ctrl-C and Ctrl-D send.
const INTERRUPT: &str = "\u{3}";
const END_OF_INPUT: &str = "\u{4}";

fn open(fixture: &Fixture, args: &[&str]) -> Option<Pty> {
    Pty::open(fixture, 80, args, &[])
}

#[test]
fn spinner_shows_progress_and_disappears() {
    let fixture = Fixture::new();
    let call = ["call", "progress", "steps=20", "ms=50", "--", "scripted-server"];
    let Some(pty) = open(&fixture, &call) else { return };
    pty.shows("of 20 (");
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 0, "{text}");
    // The result comes last, after the spinner has been cleared.
    let (_, last) = text.rsplit_once("\u{1b}[2K").unwrap();
    assert_eq!(last, "took 20 steps\r\n");
}

#[test]
fn ctrl_c_sends_a_cancellation() {
    let fixture = Fixture::new();
    let journal = fixture.path().join("journal");
    let path = journal.to_str().unwrap();
    let mark = fixture.marker.value();
    let call = [
        "call",
        "sleep",
        "ms=60000",
        "nonce=n1",
        "--",
        "scripted-server",
        "--journal",
        path,
        "--marker",
        mark,
    ];
    let Some(mut pty) = open(&fixture, &call) else { return };
    pty.shows("sleep: waiting for the response");
    pty.types(INTERRUPT);
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 130, "{text}");
    assert!(text.contains("error: interrupted"), "{text}");
    eventually(LONG, "the cancellation in the journal", || {
        Journal::read(&journal).unwrap().cancellations("n1") == 1
    });
    fixture.marker.assert_no_processes_left(LONG);
}

#[test]
fn second_ctrl_c_exits_immediately() {
    let fixture = Fixture::new();
    let mark = fixture.marker.value();
    let call = [
        "call",
        "sleep",
        "ms=60000",
        "--",
        "scripted-server",
        "--plan",
        "ignore=term,eof",
        "--marker",
        mark,
    ];
    let Some(mut pty) = open(&fixture, &call) else { return };
    pty.shows("sleep: waiting for the response");
    pty.types(INTERRUPT);
    pty.shows("press Ctrl-C again to exit immediately");
    pty.types(INTERRUPT);
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 130, "{text}");
    assert!(text.contains("error: interrupted twice"), "{text}");
    fixture.marker.assert_no_processes_left(LONG);
}

#[track_caller]
fn check_question(revision: &str, dialogue: &[(&str, &str)], expected: &str) {
    let fixture = Fixture::new();
    let call = ["call", "ask", "kind=elicitation", "--", "scripted-server", "--revision", revision];
    let Some(mut pty) = open(&fixture, &call) else { return };
    for (shown, typed) in dialogue {
        pty.shows(shown);
        pty.types(typed);
    }
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn form_elicitation_is_answered() {
    for revision in ["2025-11-25", "2026-07-28"] {
        check_question(
            revision,
            &[
                ("`scripted-server` asks: Who are you?", ""),
                ("Answer? [y]es, [N]o, [c]ancel: ", "y\n"),
                ("agree [y] y/n: ", "n\n"),
                ("name (Your name): ", "\n"),
                ("required", "Ada\n"),
            ],
            r#"{"action":"accept","content":{"agree":false,"name":"Ada"}}"#,
        );
    }
}

#[test]
fn form_elicitation_can_be_declined_or_cancelled() {
    let asks = "Answer? [y]es, [N]o, [c]ancel: ";
    check_question("2025-11-25", &[(asks, "\n")], r#"{"action":"decline"}"#);
    check_question("2025-11-25", &[(asks, "n\n")], r#"{"action":"decline"}"#);
    check_question("2025-11-25", &[(asks, "what\n"), (asks, "c\n")], r#"{"action":"cancel"}"#);
    check_question(
        "2025-11-25",
        &[(asks, "y\n"), ("agree [y] y/n: ", END_OF_INPUT)],
        r#"{"action":"cancel"}"#,
    );
}

#[test]
fn input_before_a_prompt_is_discarded() {
    let fixture = Fixture::new();
    let call = ["call", "ask", "kind=elicitation", "--", "scripted-server"];
    let Some(mut pty) = open(&fixture, &call) else { return };
    pty.types("y\ny\nEve\n");
    pty.shows("Answer? [y]es, [N]o, [c]ancel: ");
    pty.types("y\n");
    pty.shows("agree [y] y/n: ");
    pty.types("n\n");
    pty.shows("name (Your name): ");
    pty.types("Ada\n");
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 0, "{text}");
    let answer = r#"{"action":"accept","content":{"agree":false,"name":"Ada"}}"#;
    assert!(text.contains(answer), "{text}");
}

#[test]
fn ctrl_c_at_a_prompt_exits() {
    let fixture = Fixture::new();
    let call = ["call", "ask", "kind=elicitation", "--", "scripted-server"];
    let Some(mut pty) = open(&fixture, &call) else { return };
    pty.shows("Answer? ");
    pty.types(INTERRUPT);
    let (code, text) = pty.end(Duration::from_secs(20));
    assert_eq!(code, 130, "{text}");
}

#[test]
fn arguments_are_read_from_the_terminal() {
    let fixture = Fixture::new();
    let call = ["call", "echo", "--args", "-", "--", "scripted-server"];
    let Some(mut pty) = open(&fixture, &call) else { return };
    pty.shows("press Ctrl-D");
    pty.types("{\"text\": \"typed\"}\n");
    pty.types(END_OF_INPUT);
    let (code, text) = pty.end(LONG);
    assert!(code == 0 && text.ends_with("typed\r\n"), "{code} {text}");
    let Some(mut pty) = open(&fixture, &call) else { return };
    pty.shows("press Ctrl-D");
    pty.types(INTERRUPT);
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 130, "{text}");
}

#[test]
fn every_server_has_a_spinner() {
    let fixture = Fixture::new();
    let slow = "transport = \"stdio\"\ncommand = \"scripted-server\"\nargs = [\"--plan\", \"initialize=late(1500ms)\"]\n";
    let entry = |name: &str| format!("[[defaults.mcp]]\nname = \"{name}\"\n{slow}\n");
    fixture.put("home/toolrack.toml", &[entry("one"), entry("two")].concat());
    let Some(pty) = open(&fixture, &["search", "--live", "echo"]) else { return };
    pty.shows("one: connecting");
    pty.shows("two: connecting");
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("one.echo") && text.contains("two.echo"), "{text}");
}

#[track_caller]
fn check_width(columns: u16, env: &[(&str, &str)], expected: &[&str]) {
    let fixture = Fixture::new();
    let Some(pty) = Pty::open(&fixture, columns, &["tools", "--", "scripted-server"], env) else {
        return;
    };
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 0, "{text}");
    for line in expected {
        assert!(text.lines().any(|shown| shown == *line), "no line {line:?} in\n{text}");
    }
    let plain = text.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    let widest = plain.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= usize::from(columns), "{widest} of {columns}\n{text}");
}

#[test]
fn tables_fit_the_terminal() {
    let long = "ask           Asks the client for ping, roots, sampling, elicitation or state, and returns its answer";
    let cut = "ask           Asks the client for ping, roots, sampling, elicitation or state,…";
    let bold = "\u{1b}[1mTOOL          DESCRIPTION\u{1b}[0m";
    check_width(80, &[], &[bold, cut]);
    check_width(200, &[], &[bold, long]);
    check_width(80, &[("NO_COLOR", "1")], &["TOOL          DESCRIPTION", cut]);
    check_width(80, &[("TERM", "dumb")], &["TOOL          DESCRIPTION", cut]);
}
