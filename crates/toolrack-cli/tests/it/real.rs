//! A real server from npm.

use std::path::Path;

use toolrack_testkit::skipped;

use crate::screen::Screen;
use crate::stage::{LONG, Stage};

const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/servers/node/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
);

#[track_caller]
fn check(stage: &Stage, args: &[&str], code: i32, output: &str, talk: &str) {
    let outcome = stage.run(&[args, &["--", "node", SERVER]].concat());
    assert_eq!(outcome.status.code(), Some(code), "{outcome:?}");
    assert_eq!((outcome.output.as_str(), outcome.talk.as_str()), (output, talk), "{args:?}");
}

fn is_missing(test: &str) -> bool {
    let is_missing = !Path::new(SERVER).exists();
    if is_missing {
        skipped(test, "server-everything is missing; run `cargo xtask servers`");
    }
    is_missing
}

#[test]
fn a_page_is_shown_to_the_user_and_opened_by_nobody_else() {
    if is_missing("a_page_is_shown_to_the_user_and_opened_by_nobody_else") {
        return;
    }
    let stage = Stage::new();
    let call =
        ["call", "trigger-url-elicitation", "url=https://example.com/x", "--", "node", SERVER];
    let Some(mut screen) = Screen::open(&stage, 120, &call, &[]) else { return };
    screen.shows("in your browser:\r\n  https://example.com/x\r\nWill you? ");
    screen.types("n\n");
    let (code, text) = screen.end(LONG);
    assert!(code == 0 && text.contains("\"action\": \"decline\""), "{code} {text}");
}

#[test]
fn server_everything_is_called_without_a_config() {
    if is_missing("server_everything_is_called_without_a_config") {
        return;
    }
    let stage = Stage::new();
    check(&stage, &["call", "echo", "message=hello"], 0, "Echo: hello\n", "");
    check(&stage, &["call", "get-sum(a: 19, b: 23)"], 0, "The sum of 19 and 23 is 42.\n", "");
    check(
        &stage,
        &["call", "get-tiny-image", "--save", "out"],
        0,
        "Here's the image you requested:\n[image: image/png, 4033 bytes] saved as \
         out/result-1.png\nThe image above is the MCP logo.\n",
        "",
    );
    let picture = std::fs::read(stage.path().join("work/out/result-1.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() == 4033, "{}", picture.len());
    check(
        &stage,
        &["call", "get-structured-content", "location=Paris"],
        1,
        "",
        "error: `location` is `Paris` and not one of: \"New York\" | \"Chicago\" | \"Los Angeles\"\n\
         hint: `get-structured-content` takes: location: \"New York\" | \"Chicago\" | \"Los Angeles\"\n",
    );
}
