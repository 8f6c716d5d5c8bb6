//! Faults over stdio, seen by the client.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;

use serde_json::{Value, json};
use toolrack_testkit::{Journal, eventually};

use crate::peer::{Peer, TIMEOUT, texts};

/// Output lines of an `echo` call under a plan, with `ID` for the id of the call.
fn lines_of(plan: &str, n_lines: usize) -> Vec<String> {
    let mut peer = Peer::legacy(&["--plan", plan]);
    let id = peer.call("echo", json!({ "text": "t" }));
    let read =
        |peer: &mut Peer| String::from_utf8_lossy(&peer.line().expect("a line")).into_owned();
    let lines: Vec<String> = (0..n_lines).map(|_| read(&mut peer)).collect();
    peer.close_stdin();
    if let Some(extra) = peer.line() {
        panic!("{plan}: too much: {}", String::from_utf8_lossy(&extra));
    }
    assert_eq!(peer.exit().code(), Some(0), "{plan}");
    lines.into_iter().map(|line| line.replace(&format!("\"id\":{id}"), "\"id\":ID")).collect()
}

const ANSWER: &str =
    r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"t"}]}}"#;

#[test]
fn responses_are_misshapen_as_planned() {
    let check = |plan: &str, expected: &[&str]| {
        assert_eq!(lines_of(plan, expected.len()), expected, "{plan}");
    };
    let body = r#""result":{"content":[{"type":"text","text":"t"}]}}"#;
    check("", &[ANSWER]);
    check("ok", &[ANSWER]);
    check("call:2=exit", &[ANSWER]);
    check("dup", &[ANSWER, ANSWER]);
    check("hang", &[]);
    check("late=1ms", &[ANSWER]);
    check("hold=1", &[ANSWER]);
    check("hold=2", &[]);
    check("id=zero", &[&format!(r#"{{"jsonrpc":"2.0","id":0,{body}"#)]);
    check("id=text", &[&format!(r#"{{"jsonrpc":"2.0","id":"2",{body}"#)]);
    check("id=float", &[&format!(r#"{{"jsonrpc":"2.0","id":ID.0,{body}"#)]);
    check("id=unknown", &[&format!(r#"{{"jsonrpc":"2.0","id":987654321,{body}"#)]);
    check("id=null", &[&format!(r#"{{"jsonrpc":"2.0","id":null,{body}"#)]);
    check("shape=neither", &[r#"{"jsonrpc":"2.0","id":ID}"#]);
    check("shape=null", &[r#"{"jsonrpc":"2.0","id":ID,"result":null}"#]);
    check("shape=number", &[r#"{"jsonrpc":"2.0","id":ID,"result":5}"#]);
    let error = r#"{"code":-32603,"message":"also an error"}"#;
    let both = ANSWER.replace("}]}}", &format!(r#"}}]}},"error":{error}}}"#));
    check("shape=both", &[&both]);
    check(
        "shape=alien",
        &[r#"{"jsonrpc":"2.0","id":ID,"result":{"resultType":"alien","content":[]}}"#],
    );
    check(
        "error=-32000",
        &[r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"the plan says so"}}"#],
    );
    check("frame=crlf", &[&format!("{ANSWER}\r")]);
    check("frame=bom", &[&format!("\u{feff}{ANSWER}")]);
    check("frame=batch", &[&format!("[{ANSWER}]")]);
    check("frame=bytewise", &[ANSWER]);
}

#[test]
fn noise_comes_before_the_response() {
    let check = |plan: &str, noise: &[&str]| {
        let expected: Vec<&str> = noise.iter().copied().chain([ANSWER]).collect();
        assert_eq!(lines_of(plan, expected.len()), expected, "{plan}");
    };
    let nonsense = r#"{"jsonrpc":"2.0","id":1,"result":5,"method":7}"#;
    check("nonsense=3", &[nonsense; 3]);
    check("garbage=text,2", &["Server listening on port 3000 (press q to quit)"; 2]);
    check("garbage=blank", &[""]);
    check("garbage=crlf", &["\r"]);
    check("garbage=bom", &["\u{feff}"]);
    check("garbage=json", &[r#"{"level":30,"msg":"ready","pid":1}"#]);
    check("garbage=ansi", &["\x1b[2K\x1b[31m✖ warning\x1b[0m \x1b]0;title\x07"]);
    check("garbage=utf8", &["{\"jsonrpc\":\"2.0\",\"method\":\"\u{fffd}\u{fffd}\u{fffd}(\"}"]);
    check("huge=100", &["j".repeat(100).as_str()]);
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    check("changed=2", &[changed; 2]);
    let log = |n: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":{n},"level":"info","logger":"flood"}}}}"#
        )
    };
    check("notify=2", &[&log(0), &log(1)]);
    // The server counts its requests from 1, so its second one has the id of our call.
    let ping = |id: &str| format!(r#"{{"id":{id},"jsonrpc":"2.0","method":"ping"}}"#);
    check("ping=2", &[&ping("1"), &ping("ID")]);
}

#[test]
fn faults_happen_at_their_triggers() {
    let mut peer = Peer::scripted(&[
        "--plan",
        "start=garbage; initialize=garbage(json); list:2=dup; eof=garbage",
    ]);
    let text = b"Server listening on port 3000 (press q to quit)".to_vec();
    assert_eq!(peer.line(), Some(text.clone()));
    peer.send("initialize", json!({ "protocolVersion": "2025-11-25" }));
    assert_eq!(peer.message()["msg"], json!("ready"));
    assert_eq!(peer.message()["id"], json!(1));
    peer.request("tools/list", json!({}));
    peer.assert_quiet();
    let second = peer.request("tools/list", json!({}));
    assert_eq!(peer.message(), second);
    peer.close_stdin();
    assert_eq!((peer.line(), peer.line()), (Some(text), None));
    assert_eq!(peer.exit().code(), Some(0));
}

#[test]
fn held_responses_come_in_reverse_order() {
    let mut peer = Peer::legacy(&["--plan", "call:1-3=hold(3)"]);
    let mut ids: Vec<Value> = (0..3).map(|_| peer.call("echo", json!({ "text": "x" }))).collect();
    let seen: Vec<Value> = (0..3).map(|_| peer.message()["id"].clone()).collect();
    ids.reverse();
    assert_eq!(seen, ids);
    peer.finish();
}

#[test]
fn late_response_lets_others_pass_and_survives_cancellation() {
    let mut peer = Peer::legacy(&["--plan", "call:1=late(1s)"]);
    let late = peer.call("echo", json!({ "text": "late" }));
    peer.notify("notifications/cancelled", json!({ "requestId": late }));
    peer.assert_quiet();
    assert_eq!(texts(&peer.response_to(&late)), json!("late"));
    peer.finish();
}

#[test]
fn huge_responses_have_their_id_where_planned() {
    for place in ["front", "back"] {
        let mut peer = Peer::legacy(&["--plan", &format!("call:1=huge(3MiB,{place})")]);
        let id = peer.call("echo", json!({ "text": "x" }));
        let line = peer.line().expect("a line");
        let needle = format!("\"id\":{id}");
        let at = line.windows(needle.len()).position(|line| line == needle.as_bytes());
        assert_eq!(at.map(|at| at < 100), Some(place == "front"));
        let response: Value = serde_json::from_slice(&line).expect("a message");
        assert_eq!(texts(&response).as_str().map(str::len), Some(3 << 20));
        peer.assert_quiet();
        peer.finish();
    }
    let mut open = Peer::legacy(&["--plan", "call:1=huge(1MiB,open)"]);
    open.call("echo", json!({ "text": "x" }));
    open.close_stdin();
    assert_eq!(open.line().map(|line| line.len()), Some(1 << 20));
    assert_eq!(open.line(), None);
}

#[test]
fn endless_flood_ends_with_its_reader() {
    let mut peer = Peer::legacy(&["--plan", "nonsense=forever"]);
    peer.call("echo", json!({ "text": "x" }));
    for _ in 0..100_000 {
        assert_eq!(peer.message()["method"], json!(7));
    }
    let marker = peer.marker.clone();
    drop(peer);
    marker.assert_no_processes_left(TIMEOUT);
}

#[test]
fn changes_can_come_at_an_interval() {
    let mut peer = Peer::legacy(&["--plan", "call:1=changed(5,1ms)"]);
    let id = peer.call("echo", json!({ "text": "x" }));
    let mut methods: Vec<Value> = (0..6).map(|_| peer.message()).collect();
    methods.retain(|method| method.get("id") != Some(&id));
    assert_eq!(methods.len(), 5);
    assert!(
        methods.iter().all(|method| method["method"] == json!("notifications/tools/list_changed"))
    );
    peer.finish();
}

#[test]
fn stderr_flood_comes_before_the_response() {
    for (plan, n_lines) in [("call:1=stderr(1MiB)", 13_057), ("call:1=stderr(1MiB,raw)", 1)] {
        let mut peer = Peer::legacy(&["--plan", plan]);
        assert_eq!(peer.call_text("echo", json!({ "text": "x" })), json!("x"));
        peer.close_stdin();
        peer.exit();
        let flood = peer.stderr();
        let seen = (flood.len(), flood.split(|flood| *flood == b'\n').count());
        assert_eq!(seen, (1 << 20, n_lines), "{plan}");
    }
}

#[test]
fn server_exits_as_planned() {
    let check = |plan: &str, code: Option<i32>, signal: Option<i32>, before: &[u8]| {
        let mut peer = Peer::legacy(&["--plan", plan]);
        peer.call("echo", json!({ "text": "x" }));
        let mut rest = Vec::new();
        while let Some(line) = peer.line() {
            rest.extend(line);
        }
        assert_eq!(rest, before, "{plan}");
        let status = peer.exit();
        assert_eq!((status.code(), status.signal()), (code, signal), "{plan}");
        peer.marker.assert_no_processes_left(TIMEOUT);
    };
    check("exit=7", Some(7), None, b"");
    check("call:1=exit(0)", Some(0), None, b"");
    check("kill=KILL", None, Some(9), b"");
    check("kill=TERM", None, Some(15), b"");
    check("kill=SEGV", None, Some(11), b"");
    check("half=4", Some(4), None, br#"{"jsonrpc":"2.0","id":2,"result":{"co"#);
}

#[test]
fn server_may_exit_before_or_during_the_handshake() {
    let check = |plan: &str, code: i32| {
        let mut peer = Peer::scripted(&["--plan", plan]);
        if plan.starts_with("initialize") {
            peer.send("initialize", json!({ "protocolVersion": "2025-11-25" }));
        }
        assert_eq!(peer.line(), None, "{plan}");
        assert_eq!(peer.exit().code(), Some(code), "{plan}");
    };
    check("start=exit(5)", 5);
    check("initialize=exit(6)", 6);
    let mut after = Peer::legacy(&["--plan", "initialized=exit(8)"]);
    assert_eq!(after.line(), None);
    assert_eq!(after.exit().code(), Some(8));
}

#[test]
fn legacy_server_handles_discovery_as_planned() {
    let mut dies = Peer::scripted(&["--revision", "2024-11-05", "--plan", "unknown=exit(1)"]);
    dies.send("server/discover", json!({}));
    assert_eq!((dies.line(), dies.exit().code()), (None, Some(1)));

    let mut silent = Peer::scripted(&["--plan", "discover=hang"]);
    silent.send("server/discover", json!({}));
    silent.initialize("2025-11-25");
    assert_eq!(silent.received.len(), 1);
    silent.finish();

    let mut odd = Peer::scripted(&["--plan", "discover=error(0)"]);
    assert_eq!(odd.request("server/discover", json!({}))["error"]["code"], json!(0));
    odd.finish();

    let mut hangs = Peer::scripted(&["--plan", "initialize=hang"]);
    let id = hangs.send("initialize", json!({ "protocolVersion": "2025-11-25" }));
    let pinged = hangs.request("ping", json!({}));
    assert_eq!(pinged["id"], json!(id.as_u64().expect("a number") + 1));
    hangs.finish();
}

#[test]
fn versions_and_cursors_follow_the_plan() {
    let mut peer = Peer::scripted(&["--plan", "version=1999-01-01"]);
    let response = peer.initialize("2025-11-25");
    assert_eq!(response["result"]["protocolVersion"], json!("1999-01-01"));
    peer.finish();

    let mut modern = Peer::modern(&["--plan", "discover=version(2031-01-01)"]);
    let response = modern.request("server/discover", json!({}));
    assert_eq!(response["result"]["supportedVersions"], json!(["2031-01-01"]));
    modern.finish();

    for (plan, expected) in [
        ("cursor=same", ["again", "again"]),
        ("cursor=empty", ["", ""]),
        ("cursor=endless", ["1", "2"]),
    ] {
        let mut peer = Peer::legacy(&["--plan", plan]);
        let first = peer.request("tools/list", json!({}))["result"]["nextCursor"].clone();
        let second =
            peer.request("tools/list", json!({ "cursor": first }))["result"]["nextCursor"].clone();
        assert_eq!([first, second], expected, "{plan}");
        peer.finish();
    }
}

#[test]
fn server_answers_what_it_read_before_it_stopped() {
    let mut peer = Peer::legacy(&["--plan", "call:2=stopread", "--lifetime", "1s"]);
    assert_eq!(peer.call_text("echo", json!({ "text": "one" })), json!("one"));
    assert_eq!(peer.call_text("echo", json!({ "text": "two" })), json!("two"));
    peer.call("echo", json!({ "text": "three" }));
    peer.close_stdin();
    assert!(peer.is_running());
    assert_eq!(peer.line(), None);
    assert_eq!(peer.exit().code(), Some(0));
}

#[test]
fn server_may_never_read() {
    let mut peer = Peer::scripted(&["--plan", "start=stopread", "--lifetime", "1s"]);
    peer.send("initialize", json!({ "protocolVersion": "2025-11-25" }));
    assert_eq!((peer.line(), peer.exit().code()), (None, Some(0)));
}

#[test]
fn string_id_comes_back_unchanged() {
    for plan in ["", "id=float", "id=text"] {
        let mut peer = Peer::legacy(&["--plan", plan]);
        peer.write(&json!({ "jsonrpc": "2.0", "id": "a-1", "method": "tools/call", "params": { "name": "pid" } }));
        assert_eq!(peer.message()["id"], json!("a-1"), "{plan}");
        peer.finish();
    }
}

#[test]
fn prompting_server_reads_messages_as_answers() {
    let mut peer = Peer::scripted(&["--plan", "prompt"]);
    peer.send("initialize", json!({ "protocolVersion": "2025-11-25" }));
    peer.write_raw(b"y\n");
    peer.initialize("2025-11-25");
    assert_eq!(peer.received.len(), 1);
    peer.close_stdin();
    peer.exit();
    assert!(peer.stderr().ends_with(b"(y) "));
}

#[test]
fn mix_is_repeatable_by_seed() {
    let run = |seed: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("journal");
        let file = path.to_str().expect("a name");
        let mix = "ok=60,hang=20,dup=20";
        let mut peer = Peer::legacy(&["--mix", mix, "--seed", seed, "--journal", file]);
        let ids: Vec<Value> = (0..100)
            .map(|n| peer.call("echo", json!({ "text": "x", "nonce": n.to_string() })))
            .collect();
        peer.close_stdin();
        let mut answered = Vec::new();
        while let Some(line) = peer.line() {
            let message: Value = serde_json::from_slice(&line).expect("a message");
            answered.push(message["id"].as_u64().expect("an id"));
        }
        let journal = Journal::read(&path).expect("a journal");
        assert_eq!((journal.records.len(), journal.duplicates().len()), (ids.len(), 0));
        answered
    };
    let (one, two) = (run("7"), run("8"));
    assert_eq!(one, run("7"));
    assert_ne!(one, two);
    let distinct: BTreeSet<&u64> = one.iter().collect();
    assert!(distinct.len() < 95 && one.len() > distinct.len(), "{one:?}");
}

#[test]
fn call_is_journaled_before_the_server_crashes() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("journal");
    let file = path.to_str().expect("a name");
    for plan in ["exit", "kill=KILL", "half"] {
        let mut peer = Peer::legacy(&["--journal", file, "--plan", plan]);
        peer.call("echo", json!({ "text": "x", "nonce": plan }));
        peer.exit();
        let journal = Journal::read(&path).expect("a journal");
        assert_eq!(journal.executions(plan), 1, "{plan}");
    }
}

#[test]
fn spin_ends_with_the_lifetime() {
    let mut peer = Peer::scripted(&["--plan", "initialize=spin", "--lifetime", "300ms"]);
    peer.send("initialize", json!({ "protocolVersion": "2025-11-25" }));
    eventually(TIMEOUT, "the spinning server ends", || !peer.is_running());
    assert_eq!(peer.line(), None);
}
