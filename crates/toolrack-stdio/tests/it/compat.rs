//! The verification plan of founding document 001, test by test, and concurrent requests, which that document deferred.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use toolrack_stdio::{Incoming, McpServerDef, StdioTransport};
use toolrack_testkit::skipped;
use toolrack_transport::{
    Delivery, JsonRpcNotification, JsonRpcRequest, OnCancel, OutgoingRequest, RequestTimeout,
    Transport as _, TransportError,
};

use crate::fixture::{connect, guarded, program, spawn};

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

/// Responds to a pair of requests in reverse order.
const REVERSED: &str = r#"
import json, sys
while True:
    pair = [json.loads(sys.stdin.readline()) for _ in range(2)]
    for req in reversed(pair):
        print(json.dumps({"jsonrpc": "2.0", "id": req["id"], "result": req["params"]}), flush=True)
"#;

/// A server that runs the script, or `None` without Python.
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
    let rejected = StdioTransport::spawn(&program("nonexistent_command_12345", &[])).await;
    assert!(matches!(rejected, Err(TransportError::Spawn(_))));
}

#[tokio::test]
async fn spawn_with_env_vars() {
    let script = r#"echo "{\"method\":\"note\",\"params\":[\"$TEST_VAR\"]}"; cat"#;
    let mut definition = program("sh", &["-c", script]);
    definition.env.insert("TEST_VAR".to_owned(), "hello".to_owned());
    let transport = spawn(&definition).await;
    let expected =
        Incoming::Notification { method: "note".to_owned(), params: Some(json!(["hello"])) };
    assert_eq!(transport.receive().await.unwrap(), expected);
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
    let expected = Incoming::Notification { method: "note".to_owned(), params };
    assert_eq!(transport.receive().await.unwrap(), expected);
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
async fn response_to_a_sent_request_is_received() {
    let Some(server) = python("response_to_a_sent_request_is_received", ECHO) else { return };
    let transport = spawn(&server).await;
    transport.send(&JsonRpcRequest::new(77, "echo", Some(json!([1])))).await.unwrap();
    let Incoming::Response(response) = transport.receive().await.unwrap() else { panic!() };
    assert_eq!(response.into_result(), Ok(json!([1])));
    transport.send_notification(&JsonRpcNotification::new("note", None)).await.unwrap();
    let result = transport.request_with_default_timeout("x", Some(json!([2]))).await.unwrap();
    assert_eq!(result, json!([2]), "the response to the notification is ignored");
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn request_times_out() {
    let transport = spawn(&program("sleep", &["10"])).await;
    let started = Instant::now();
    let result = transport.request("test", None, 100).await;
    assert!(matches!(result, Err(TransportError::Timeout(100))), "{result:?}");
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(100) && took < Duration::from_millis(350), "{took:?}");
    transport.shutdown().await.unwrap();
}

/// The inline server of the founding document, which exits at a message without an id. It sleeps if the parameters say
/// so.
const STRICT: &str = r#"
import sys, json, time
for line in sys.stdin:
    req = json.loads(line)
    time.sleep((req.get("params") or {}).get("sleep", 0))
    resp = {"jsonrpc": "2.0", "id": req["id"], "result": req.get("params", {})}
    print(json.dumps(resp), flush=True)
"#;

#[tokio::test]
async fn timed_out_request_can_be_retried() {
    let Some(server) = python("timed_out_request_can_be_retried", STRICT) else { return };
    let transport = spawn(&server).await;
    transport.request("warm up", None, 5000).await.unwrap();
    let late = transport.request("echo", Some(json!({"sleep": 0.3})), 50).await;
    assert!(matches!(late, Err(TransportError::Timeout(50))), "{late:?}");
    // A dropped request is abandoned just as quietly.
    let dropped = transport.request("echo", Some(json!({"sleep": 0.1})), 5000);
    assert!(tokio::time::timeout(Duration::from_millis(20), dropped).await.is_err());
    let result = transport.request("echo", Some(json!({"test": "value"})), 5000).await.unwrap();
    assert_eq!(result, json!({"test": "value"}));
    assert!(transport.is_running().await, "the server got no message that it does not know");
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn error_response_keeps_its_code() {
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

/// A mismatch in the founding document; here every response finds its request.
#[tokio::test]
async fn out_of_order_responses_match_their_requests() {
    let Some(server) = python("out_of_order_responses_match_their_requests", REVERSED) else {
        return;
    };
    let transport = spawn(&server).await;
    let request = |number: u64| transport.request("x", Some(json!(number)), 5000);
    let (first, second) = tokio::join!(request(1), request(2));
    assert_eq!((first.unwrap(), second.unwrap()), (json!(1), json!(2)));
    transport.shutdown().await.unwrap();
}

#[tokio::test]
async fn thousand_concurrent_requests_complete() {
    let Some(server) = python("thousand_concurrent_requests_complete", ECHO) else { return };
    let transport = spawn(&server).await;
    let requests = (0..1000).map(|number| transport.request("x", Some(json!(number)), 20_000));
    let results: Vec<Value> =
        futures_util::future::join_all(requests).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(results, (0..1000).map(|number| json!(number)).collect::<Vec<_>>());
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
async fn received_lines_are_responses_or_parse_errors() {
    let script = r#"echo banner; echo '{"jsonrpc":"2.0","method":"note"}'
        echo '{"jsonrpc":"2.0","id":1,"result":{"ok":true}}'; echo banner
        echo '{"jsonrpc":"2.0","id":2,"result":null}'; cat"#;
    let transport = spawn(&program("sh", &["-c", script])).await;
    let parse_error = |received| match received {
        Err(TransportError::Parse(text)) => text,
        other => panic!("{other:?}"),
    };
    let banner = parse_error(transport.receive_response().await);
    assert_eq!(banner, "not a JSON-RPC message: banner");
    let notification = parse_error(transport.receive_response().await);
    assert_eq!(notification, "notification `note` instead of a response");
    let response = transport.receive_response().await.unwrap();
    assert_eq!(response.id, 1);
    assert_eq!(response.jsonrpc, "2.0");
    // `receive` skips the second banner.
    let response = transport.receive().await.unwrap().into_response().unwrap();
    assert!(response.id == 2 && response.result == Some(Value::Null), "{response:?}");
    transport.shutdown().await.unwrap();
}

/// Waits for the failure of requests to a server that does not respond.
async fn failure_of(script: &str) -> TransportError {
    let transport = spawn(&program("sh", &["-c", script])).await;
    let started = Instant::now();
    loop {
        match transport.request("test", None, 500).await {
            Err(TransportError::Timeout(_)) if started.elapsed() < Duration::from_secs(10) => {}
            outcome => {
                transport.shutdown().await.unwrap();
                return outcome.unwrap_err();
            }
        }
    }
}

#[tokio::test]
async fn closed_pipes_have_their_own_errors() {
    let error = failure_of("exec 0<&-; sleep 20").await;
    assert!(matches!(error, TransportError::StdinNotAvailable), "{error:?}");
    let error = failure_of("exec 1>&-; sleep 20").await;
    assert!(matches!(error, TransportError::StdoutNotAvailable), "{error:?}");
    let error = failure_of("exit 3").await;
    assert!(error.is_process_exited() && error.to_string().contains("code 3"), "{error:?}");
}

#[test]
fn dropped_runtime_is_an_io_error() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let transport = first.block_on(spawn(&program("cat", &[])));
    drop(first);
    let error = runtime().block_on(transport.request("test", None, 1000)).unwrap_err();
    assert!(matches!(error, TransportError::Io(_)), "{error:?}");
    assert!(error.to_string().starts_with("IO error: "), "{error}");
}

#[tokio::test]
async fn exited_server_is_not_shut_down() {
    let transport = spawn(&program("true", &[])).await;
    assert!(transport.receive().await.unwrap_err().is_process_exited());
    assert!(!transport.is_shutdown() && !transport.is_running().await);
    transport.shutdown().await.unwrap();
    assert!(transport.is_shutdown());
    let error = transport.receive().await.unwrap_err();
    assert!(matches!(error, TransportError::Shutdown), "{error:?}");
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
    let is_shutdown_error =
        |outcome: Result<(), TransportError>| matches!(outcome, Err(TransportError::Shutdown));
    assert!(is_shutdown_error(transport.request("test", None, 1000).await.map(drop)));
    assert!(is_shutdown_error(transport.send(&JsonRpcRequest::new(1, "x", None)).await));
    assert!(is_shutdown_error(
        transport.send_notification(&JsonRpcNotification::new("x", None)).await
    ));
    assert!(is_shutdown_error(transport.receive().await.map(drop)));
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
async fn shutdown_kills_an_unresponsive_server() {
    let script = "trap '' TERM; while :; do sleep 1; done";
    let mut options = guarded();
    options.shutdown.close_stdin = Duration::from_millis(100);
    options.shutdown.terminate = Duration::from_millis(100);
    let definition = program("sh", &["-c", script]);
    let transport = StdioTransport::spawn_with(&definition, options).await.unwrap();
    let started = Instant::now();
    transport.shutdown().await.unwrap();
    let took = started.elapsed();
    assert!(took > Duration::from_millis(200) && took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn unserializable_params_are_not_sent() {
    let transport = connect(&program("cat", &[]), guarded()).await;
    let unserializable = Some(BTreeMap::from([((1, 2), 3)]));
    let request = OutgoingRequest {
        method: "m",
        params: &unserializable,
        timeout: RequestTimeout::fixed(Duration::from_secs(10)),
        on_cancel: OnCancel::Notify,
    };
    let rejected = transport.request(request).await.unwrap_err();
    assert!(matches!(rejected.error, TransportError::Serialize(_)), "{rejected:?}");
    assert_eq!(rejected.delivery, Delivery::NotSent);
    assert_eq!(transport.stats().messages, 0);
    transport.close().await;
}

#[tokio::test]
async fn messages_sent_before_shutdown_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("received");
    let script = format!("sleep 0.2; cat > {}", file.display());
    let transport = spawn(&program("sh", &["-c", &script])).await;
    for number in 0..100 {
        let notification = JsonRpcNotification::new("note", Some(json!({ "number": number })));
        transport.send_notification(&notification).await.unwrap();
    }
    transport.shutdown().await.unwrap();
    let received = std::fs::read_to_string(&file).unwrap();
    assert_eq!(received.lines().count(), 100, "{received}");
}

#[tokio::test]
async fn default_timeout_is_thirty_seconds() {
    let transport = spawn(&program("sleep", &["1000"])).await;
    tokio::time::pause();
    let outcome = transport.request_with_default_timeout("m", None).await;
    assert!(matches!(outcome, Err(TransportError::Timeout(30_000))), "{outcome:?}");
    tokio::time::resume();
    transport.shutdown().await.unwrap();
}
