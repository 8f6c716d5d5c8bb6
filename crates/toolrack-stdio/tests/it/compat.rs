//! The verification plan of the founding document on the stdio transport, test by test, and what that
//! document deferred: requests under way at the same time, answered out of order.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use toolrack_stdio::{Incoming, McpServerDef, StdioTransport};
use toolrack_testkit::skipped;
use toolrack_transport::{Abandon, Delivery, Line as _, Outgoing, Patience, TransportError};
use toolrack_transport::{JsonRpcNotification, JsonRpcRequest};

use crate::fixture::{guarded, open, program, spawn};

/// The echo server of the founding document.
const ECHO: &str = r#"
import json, sys
for line in sys.stdin:
    try:
        req = json.loads(line.strip())
        resp = {"jsonrpc": "2.0", "id": req.get("id"), "result": req.get("params", {})}
        print(json.dumps(resp), flush=True)
    except json.JSONDecodeError:
        err = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}
        print(json.dumps(err), flush=True)
"#;

/// Answers a pair of requests in reverse order.
const REVERSED: &str = r#"
import json, sys
while True:
    pair = [json.loads(sys.stdin.readline()) for _ in range(2)]
    for req in reversed(pair):
        print(json.dumps({"jsonrpc": "2.0", "id": req["id"], "result": req["params"]}), flush=True)
"#;

/// The script as a server, or `None` where there is no Python to run it.
fn python(test: &str, script: &str) -> Option<McpServerDef> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir.join("python3").is_file()) {
        skipped(test, "python3 is not installed");
        return None;
    }
    Some(program("python3", &["-c", script]))
}

#[tokio::test]
async fn spawns_echo_process() {
    let transport = spawn(&program("cat", &[])).await;
    assert!(transport.is_running().await);
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn spawn_fails_for_nonexistent_command() {
    let refused = StdioTransport::spawn(&program("nonexistent_command_12345", &[])).await;
    assert!(matches!(refused, Err(TransportError::Spawn(_))));
}

#[tokio::test]
async fn spawn_with_env_vars() {
    let script = r#"echo "{\"method\":\"note\",\"params\":[\"$TEST_VAR\"]}"; cat"#;
    let mut definition = program("sh", &["-c", script]);
    definition.env.insert("TEST_VAR".to_owned(), "hello".to_owned());
    let transport = spawn(&definition).await;
    let note = Incoming::Notification { method: "note".to_owned(), params: Some(json!(["hello"])) };
    assert_eq!(transport.receive().await.unwrap(), note);
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn spawn_with_working_directory() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"echo "{\"method\":\"note\",\"params\":[\"$PWD\"]}"; cat"#;
    let mut definition = program("sh", &["-c", script]);
    definition.cwd = Some(dir.path().to_owned());
    let transport = spawn(&definition).await;
    let params = Some(json!([dir.path().canonicalize().unwrap()]));
    let note = Incoming::Notification { method: "note".to_owned(), params };
    assert_eq!(transport.receive().await.unwrap(), note);
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn send_and_receive_roundtrip() {
    let Some(server) = python("send_and_receive_roundtrip", ECHO) else { return };
    let transport = spawn(&server).await;
    let result = transport.request("echo", Some(json!({"test": "value"})), 5000).await.unwrap();
    assert_eq!(result, json!({"test": "value"}));
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_was_sent_by_hand_is_received_by_hand() {
    let Some(server) = python("what_was_sent_by_hand_is_received_by_hand", ECHO) else { return };
    let transport = spawn(&server).await;
    transport.send(&JsonRpcRequest::new(77, "echo", Some(json!([1])))).await.unwrap();
    let Incoming::Response(response) = transport.receive().await.unwrap() else { panic!() };
    assert_eq!(response.into_result(), Ok(json!([1])));
    transport.send_notification(&JsonRpcNotification::new("note", None)).await.unwrap();
    let result = transport.request_with_default_timeout("x", Some(json!([2]))).await.unwrap();
    assert_eq!(result, json!([2]), "the answer to a notification is no message, and no harm");
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn request_times_out() {
    let transport = spawn(&program("sleep", &["10"])).await;
    let started = Instant::now();
    let result = transport.request("test", None, 100).await;
    assert!(matches!(result, Err(TransportError::Timeout(100))), "{result:?}");
    assert!(started.elapsed() < Duration::from_millis(350));
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_error_answer_is_an_error_with_its_code() {
    let transport = spawn(&program(
        "sh",
        &["-c", r#"read line; echo '{"id":1,"error":{"code":-32601,"message":"no"}}'; cat"#],
    ))
    .await;
    match transport.request("x", None, 5000).await {
        Err(TransportError::JsonRpc(error)) => {
            assert_eq!((error.code, &*error.message), (-32601, "no"));
        }
        other => panic!("{other:?}"),
    }
    transport.shutdown().await.unwrap();
}

/// The founding document would call this a mismatch; here every answer finds its own request.
#[tokio::test]
async fn answers_out_of_order_find_their_requests() {
    let Some(server) = python("answers_out_of_order_find_their_requests", REVERSED) else { return };
    let transport = spawn(&server).await;
    let ask = |number: u64| transport.request("x", Some(json!(number)), 5000);
    let (first, second) = tokio::join!(ask(1), ask(2));
    assert_eq!((first.unwrap(), second.unwrap()), (json!(1), json!(2)));
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_thousand_requests_at_once_are_answered() {
    let Some(server) = python("a_thousand_requests_at_once_are_answered", ECHO) else { return };
    let transport = spawn(&server).await;
    let asked = (0..1000).map(|number| transport.request("x", Some(json!(number)), 20_000));
    let answers: Vec<Value> =
        futures_util::future::join_all(asked).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, (0..1000).map(|number| json!(number)).collect::<Vec<_>>());
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn receive_fails_when_the_process_has_exited() {
    let transport = spawn(&program("sh", &["-c", "echo last words >&2; exit 3"])).await;
    match transport.receive().await {
        Err(TransportError::ProcessExited(exit)) => assert_eq!(
            exit.to_string(),
            "process exited with code 3 (last line on stderr: last words)"
        ),
        other => panic!("{other:?}"),
    }
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn shutdown_marks_transport_closed() {
    let transport = spawn(&program("cat", &[])).await;
    transport.shutdown().await.unwrap();
    assert!(transport.is_shutdown());
    assert!(!transport.is_running().await);
}

#[tokio::test]
async fn operations_fail_after_shutdown() {
    let transport = spawn(&program("cat", &[])).await;
    transport.shutdown().await.unwrap();
    let gone =
        |outcome: Result<(), TransportError>| matches!(outcome, Err(TransportError::Shutdown));
    assert!(gone(transport.request("test", None, 1000).await.map(drop)));
    assert!(gone(transport.send(&JsonRpcRequest::new(1, "x", None)).await));
    assert!(gone(transport.send_notification(&JsonRpcNotification::new("x", None)).await));
    assert!(gone(transport.receive().await.map(drop)));
}

#[tokio::test]
async fn shutdown_waits_for_a_graceful_exit() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("cat; sleep 0.3; touch {}/done", dir.path().display());
    let transport = spawn(&program("sh", &["-c", &script])).await;
    transport.shutdown().await.unwrap();
    assert!(dir.path().join("done").exists());
}

#[tokio::test]
async fn shutdown_kills_what_does_not_listen() {
    let script = "trap '' TERM; while :; do sleep 1; done";
    let mut options = guarded();
    options.ladder.close = Duration::from_millis(100);
    options.ladder.terminate = Duration::from_millis(100);
    let definition = program("sh", &["-c", script]);
    let transport = StdioTransport::spawn_with(&definition, options).await.unwrap();
    let started = Instant::now();
    transport.shutdown().await.unwrap();
    let took = started.elapsed();
    assert!(took > Duration::from_millis(200) && took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn what_cannot_be_written_as_json_is_not_sent() {
    let line = open(&program("cat", &[]), guarded()).await;
    let unwritable = Some(BTreeMap::from([((1, 2), 3)]));
    let request = Outgoing {
        method: "m",
        params: &unwritable,
        patience: Patience::exactly(Duration::from_secs(10)),
        abandon: Abandon::Tell,
    };
    let refused = line.request(request).await.unwrap_err();
    assert!(matches!(refused.error, TransportError::Serialize(_)), "{refused:?}");
    assert_eq!(refused.delivery, Delivery::NotSent);
    assert_eq!(line.diagnosis().messages, 0);
    line.close().await;
}

#[tokio::test]
async fn what_was_sent_before_a_shutdown_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("heard");
    let script = format!("sleep 0.2; cat > {}", file.display());
    let transport = spawn(&program("sh", &["-c", &script])).await;
    for number in 0..100 {
        let told = JsonRpcNotification::new("told", Some(json!({ "number": number })));
        transport.send_notification(&told).await.unwrap();
    }
    transport.shutdown().await.unwrap();
    let heard = std::fs::read_to_string(&file).unwrap();
    assert_eq!(heard.lines().count(), 100, "{heard}");
}

#[tokio::test]
async fn the_usual_wait_is_thirty_seconds() {
    let transport = spawn(&program("sleep", &["1000"])).await;
    tokio::time::pause();
    let waited = transport.request_with_default_timeout("m", None).await;
    assert!(matches!(waited, Err(TransportError::Timeout(30_000))), "{waited:?}");
    tokio::time::resume();
    transport.shutdown().await.unwrap();
}
