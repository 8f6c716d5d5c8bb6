//! A real server from npm.

use std::path::Path;

use toolrack_testkit::skipped;

use crate::fixture::{Fixture, LONG};
use crate::pty::Pty;

const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/servers/node/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
);

#[track_caller]
fn check(fixture: &Fixture, args: &[&str], code: i32, stdout: &str, stderr: &str) {
    let outcome = fixture.run(&[args, &["--", "node", SERVER]].concat());
    assert_eq!(outcome.status.code(), Some(code), "{outcome:?}");
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), (stdout, stderr), "{args:?}");
}

fn is_missing(test: &str) -> bool {
    let is_missing = !Path::new(SERVER).exists();
    if is_missing {
        skipped(test, "server-everything is missing; run `cargo xtask servers`");
    }
    is_missing
}

#[test]
fn url_elicitation_only_shows_the_url() {
    if is_missing("url_elicitation_only_shows_the_url") {
        return;
    }
    let fixture = Fixture::new();
    let call =
        ["call", "trigger-url-elicitation", "url=https://example.com/x", "--", "node", SERVER];
    let Some(mut pty) = Pty::open(&fixture, 120, &call, &[]) else { return };
    pty.shows("in your browser:\r\n  https://example.com/x\r\nContinue? ");
    pty.types("n\n");
    let (code, text) = pty.end(LONG);
    assert!(code == 0 && text.contains("\"action\": \"decline\""), "{code} {text}");
}

#[test]
fn ad_hoc_server_everything() {
    if is_missing("ad_hoc_server_everything") {
        return;
    }
    let fixture = Fixture::new();
    check(&fixture, &["call", "echo", "message=hello"], 0, "Echo: hello\n", "");
    check(&fixture, &["call", "get-sum(a: 19, b: 23)"], 0, "The sum of 19 and 23 is 42.\n", "");
    check(
        &fixture,
        &["call", "get-tiny-image", "--save", "out"],
        0,
        "Here's the image you requested:\n[image: image/png, 4033 bytes] saved to out/result-1.png\nThe image above is the MCP logo.\n",
        "",
    );
    let picture = std::fs::read(fixture.path().join("work/out/result-1.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() == 4033, "{}", picture.len());
    check(
        &fixture,
        &["call", "get-structured-content", "location=Paris"],
        1,
        "",
        "error: invalid value for `location`: expected \"New York\" | \"Chicago\" | \"Los Angeles\", got `Paris`\n\
         hint: `get-structured-content` takes: location: \"New York\" | \"Chicago\" | \"Los Angeles\"\n",
    );
}
