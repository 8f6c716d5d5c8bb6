//! The program on a terminal: spinners, Ctrl-C, prompts and tables.

use std::time::Duration;

use toolrack_testkit::{Journal, eventually};

use crate::screen::Screen;
use crate::stage::{LONG, Stage};

/// What Ctrl-C and Ctrl-D send.
const INTERRUPT: &str = "\u{3}";
const END_OF_INPUT: &str = "\u{4}";

fn open(stage: &Stage, args: &[&str]) -> Option<Screen> {
    Screen::open(stage, 80, args, &[])
}

#[test]
fn a_live_line_shows_how_far_a_call_is_and_goes() {
    let stage = Stage::new();
    let call = ["call", "progress", "steps=20", "ms=50", "--", "scripted-server"];
    let Some(screen) = open(&stage, &call) else { return };
    screen.shows("of 20 (");
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 0, "{text}");
    // The result comes last, after the spinner has been cleared.
    let (_, last) = text.rsplit_once("\u{1b}[2K").unwrap();
    assert_eq!(last, "took 20 steps\r\n");
}

#[test]
fn ctrl_c_cancels_the_call_and_the_server_is_told() {
    let stage = Stage::new();
    let journal = stage.path().join("journal");
    let path = journal.to_str().unwrap();
    let mark = stage.marker.value();
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
    let Some(mut screen) = open(&stage, &call) else { return };
    screen.shows("sleep: waiting for the answer");
    screen.types(INTERRUPT);
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 130, "{text}");
    assert!(text.contains("error: interrupted"), "{text}");
    eventually(LONG, "the cancellation in the journal", || {
        Journal::read(&journal).unwrap().cancellations("n1") == 1
    });
    stage.marker.assert_nobody_left(LONG);
}

#[test]
fn a_second_ctrl_c_leaves_at_once() {
    let stage = Stage::new();
    let mark = stage.marker.value();
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
    let Some(mut screen) = open(&stage, &call) else { return };
    screen.shows("sleep: waiting for the answer");
    screen.types(INTERRUPT);
    screen.shows("Ctrl-C again leaves at once");
    screen.types(INTERRUPT);
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 130, "{text}");
    assert!(text.contains("error: interrupted twice"), "{text}");
    stage.marker.assert_nobody_left(LONG);
}

#[track_caller]
fn check_question(revision: &str, dialogue: &[(&str, &str)], expected: &str) {
    let stage = Stage::new();
    let call = ["call", "ask", "kind=elicitation", "--", "scripted-server", "--revision", revision];
    let Some(mut screen) = open(&stage, &call) else { return };
    for (shown, typed) in dialogue {
        screen.shows(shown);
        screen.types(typed);
    }
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_form_is_filled_in_at_the_terminal() {
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
fn a_form_can_be_declined_and_left() {
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
fn what_was_typed_before_a_question_does_not_answer_it() {
    let stage = Stage::new();
    let call = ["call", "ask", "kind=elicitation", "--", "scripted-server"];
    let Some(mut screen) = open(&stage, &call) else { return };
    screen.types("y\ny\nEve\n");
    screen.shows("Answer? [y]es, [N]o, [c]ancel: ");
    screen.types("y\n");
    screen.shows("agree [y] y/n: ");
    screen.types("n\n");
    screen.shows("name (Your name): ");
    screen.types("Ada\n");
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 0, "{text}");
    let answer = r#"{"action":"accept","content":{"agree":false,"name":"Ada"}}"#;
    assert!(text.contains(answer), "{text}");
}

#[test]
fn ctrl_c_leaves_a_question() {
    let stage = Stage::new();
    let call = ["call", "ask", "kind=elicitation", "--", "scripted-server"];
    let Some(mut screen) = open(&stage, &call) else { return };
    screen.shows("Answer? ");
    screen.types(INTERRUPT);
    let (code, text) = screen.end(Duration::from_secs(20));
    assert_eq!(code, 130, "{text}");
}

#[test]
fn arguments_are_typed_or_left_with_ctrl_c() {
    let stage = Stage::new();
    let call = ["call", "echo", "--args", "-", "--", "scripted-server"];
    let Some(mut screen) = open(&stage, &call) else { return };
    screen.shows("then Ctrl-D");
    screen.types("{\"text\": \"typed\"}\n");
    screen.types(END_OF_INPUT);
    let (code, text) = screen.end(LONG);
    assert!(code == 0 && text.ends_with("typed\r\n"), "{code} {text}");
    let Some(mut screen) = open(&stage, &call) else { return };
    screen.shows("then Ctrl-D");
    screen.types(INTERRUPT);
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 130, "{text}");
}

#[test]
fn every_server_has_a_live_line() {
    let stage = Stage::new();
    let slow = "transport = \"stdio\"\ncommand = \"scripted-server\"\nargs = [\"--plan\", \"initialize=late(1500ms)\"]\n";
    let entry = |name: &str| format!("[[defaults.mcp]]\nname = \"{name}\"\n{slow}\n");
    stage.put("home/toolrack.toml", &[entry("one"), entry("two")].concat());
    let Some(screen) = open(&stage, &["search", "--live", "echo"]) else { return };
    screen.shows("one: handshake");
    screen.shows("two: handshake");
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("one.echo") && text.contains("two.echo"), "{text}");
}

#[track_caller]
fn check_width(columns: u16, env: &[(&str, &str)], expected: &[&str]) {
    let stage = Stage::new();
    let Some(screen) = Screen::open(&stage, columns, &["tools", "--", "scripted-server"], env)
    else {
        return;
    };
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 0, "{text}");
    for line in expected {
        assert!(text.lines().any(|shown| shown == *line), "no line {line:?} in\n{text}");
    }
    let plain = text.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    let widest = plain.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= usize::from(columns), "{widest} of {columns}\n{text}");
}

#[test]
fn tables_fit_their_terminal() {
    let long = "ask           Asks the client for ping, roots, sampling, elicitation or state, and returns its answer";
    let cut = "ask           Asks the client for ping, roots, sampling, elicitation or state,…";
    let bold = "\u{1b}[1mTOOL          DESCRIPTION\u{1b}[0m";
    check_width(80, &[], &[bold, cut]);
    check_width(200, &[], &[bold, long]);
    check_width(80, &[("NO_COLOR", "1")], &["TOOL          DESCRIPTION", cut]);
    check_width(80, &[("TERM", "dumb")], &["TOOL          DESCRIPTION", cut]);
}
