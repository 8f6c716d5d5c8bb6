//! Errors of failing servers, with real server processes.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use toolrack_manager::ErrorKind;
use toolrack_service::{ErrorCode, LocalService, McpConfig, McpService as _, McpStatus};
use toolrack_testkit::{HttpServer, HttpServerKind, program};
use uuid::Uuid;

use crate::fixture::{Fixture, binary, call, describe, http, is_running, next_failure, until};

fn with(config: McpConfig, key: &str, value: Value) -> McpConfig {
    let mut config = config;
    config.config[key] = value;
    config
}

async fn started(service: &LocalService, config: McpConfig) -> Uuid {
    let id = service.create(config).unwrap();
    service.start(id).await.unwrap();
    id
}

/// Spec 004, startup errors.
#[tokio::test]
async fn failed_start_matches_spec_004() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let silent = fixture.scripted("silent", &["--plan", "initialize=hang; discover=hang"]);
    let silent = with(silent, "startup_timeout", json!("500ms"));
    let rows = [
        (binary("missing", "no-such-program-anywhere", &[]), "NOT_FOUND Package not found"),
        (binary("nowhere", "/no/such/program", &[]), "NOT_FOUND Package not found"),
        (silent, "NETWORK_ERROR Handshake timed out"),
    ];
    for (config, expected) in rows {
        let name = config.name.clone();
        let id = service.create(config).unwrap();
        let error = service.start(id).await.unwrap_err();
        assert_eq!(describe(&error), expected, "{name}");
        assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{name}: {error:?}");
        let (_, message) = expected.split_once(' ').unwrap();
        assert_eq!(service.status(id), McpStatus::Error { message: message.to_owned() }, "{name}");
        service.stop(id).await.unwrap();
        assert_eq!(service.status(id), McpStatus::Stopped, "{name}");
    }
    fixture.end(&service).await;
}

/// Spec 004, runtime errors.
#[tokio::test]
async fn failed_call_matches_spec_004() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let hangs =
        with(fixture.scripted("hangs", &["--plan", "call=hang"]), "timeout", json!("300ms"));
    let hangs = started(&service, hangs).await;
    let error = service.call_tool(hangs, "echo", &json!({ "text": "x" })).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NetworkError, "{error}");
    assert_eq!(error.hint(), Some("the server may have run it; check before you retry"));

    let crashes =
        started(&service, fixture.scripted("crashes", &["--plan", "call:1=exit(7)"])).await;
    let error = service.call_tool(crashes, "echo", &json!({ "text": "x" })).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(error.to_string().contains("exited with code 7"), "{error}");
    // It can be restarted.
    service.restart(crashes).await.unwrap();
    assert!(is_running(&service.status(crashes)));

    let fails =
        started(&service, with(fixture.scripted("fails", &[]), "deny", json!(["ad*"]))).await;
    let error = service.call_tool(fails, "fail", &json!({})).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    let error = service.call_tool(fails, "ecko", &json!({})).await.unwrap_err();
    assert_eq!(describe(&error), "NOT_FOUND no tool named `fails.ecko`; did you mean `echo`?");
    let error = service.call_tool(fails, "add", &json!({})).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Denied, "{error}");
    assert!(error.to_string().contains("deny = \"ad*\""), "{error}");
    service.stop(fails).await.unwrap();
    let error = service.call_tool(fails, "echo", &json!({})).await.unwrap_err();
    assert_eq!(describe(&error), "SERVICE_UNAVAILABLE `fails` is not running");
    fixture.end(&service).await;
}

/// Spec 004, runtime errors: connection lost.
#[tokio::test]
async fn lost_connection_is_an_error_until_reconnected() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let (config, link) = fixture.linked("fades", &["--plan", "call:1=close(stdout)"]);
    let id = started(&service, config).await;
    std::fs::remove_file(&link).unwrap();
    let mut events = service.subscribe();
    let error = service.call_tool(id, "echo", &json!({ "text": "x" })).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NetworkError, "{error}");
    // The test `startup_errors_match_spec_004` checks the code of this kind.
    let lost = next_failure(&mut events).await;
    assert_eq!(lost.kind(), ErrorKind::Lost, "{lost}");
    assert!(!is_running(&service.status(id)), "the status changes before the event");
    until(&service, id, |status| matches!(status, McpStatus::Error { .. })).await;
    symlink(program("scripted-server"), &link).unwrap();
    service.start(id).await.unwrap();
    assert!(is_running(&service.status(id)));
    fixture.end(&service).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_server_is_called_and_its_loss_reported() {
    let fixture = Fixture::new();
    let mut server = HttpServer::start(HttpServerKind::scripted(&["--shape", "dual"])).unwrap();
    let service = fixture.open().await;
    let id = started(&service, http("remote", &server.url())).await;
    assert!(!call(&service, id, "pid").await.is_empty());
    let mut events = service.subscribe();
    server.kill();
    let error = service.call_tool(id, "pid", &json!({})).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NetworkError, "{error}");
    // Reconnecting failed too, so the connection is lost.
    let lost = next_failure(&mut events).await;
    assert_eq!(lost.kind(), ErrorKind::Lost, "{lost}");
    assert!(!is_running(&service.status(id)), "the status changes before the event");
    until(&service, id, |status| matches!(status, McpStatus::Error { .. })).await;
    server.launch().unwrap();
    // The manager reconnects by itself.
    until(&service, id, is_running).await;
    assert!(!call(&service, id, "pid").await.is_empty());
    fixture.end(&service).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_requires_login_is_unauthorized() {
    let fixture = Fixture::new();
    let closed = ["--shape", "dual", "--plan", "http=status(401)"];
    let server = HttpServer::start(HttpServerKind::scripted(&closed)).unwrap();
    let service = fixture.open().await;
    let id = service.create(http("remote", &server.url())).unwrap();
    let error = service.start(id).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unauthorized, "{error}");
    assert!(error.hint().is_some(), "{error:?}");
    assert!(matches!(service.status(id), McpStatus::Error { .. }));
    assert!(service.authorizer(id).is_ok());
    fixture.end(&service).await;
}
