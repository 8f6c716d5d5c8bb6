//! What is remembered of servers after they have gone.

use toolrack_service::{LogKind, LogLine, McpService as _};

use crate::fixture::{Stage, binary};

fn kinds(lines: &[LogLine]) -> Vec<LogKind> {
    lines.iter().map(|it| it.kind).collect()
}

#[tokio::test]
async fn what_a_server_said_is_remembered_until_it_is_deleted() {
    let stage = Stage::new();
    let service = stage.open().await;
    let good = service.create(stage.scripted("good", &[])).unwrap();
    let script = "echo out of order >&2; exit 3";
    let bad = service.create(binary("bad", "/bin/sh", &["-c", script])).unwrap();
    service.start(good).await.unwrap();
    service.start(bad).await.unwrap_err();
    stage.end(&service).await;

    let service = stage.open().await;
    assert_eq!(kinds(&service.logs().read(good).unwrap()), [LogKind::Start, LogKind::Ready]);
    let said = service.logs().read(bad).unwrap();
    assert_eq!(said.first().map(|it| it.kind), Some(LogKind::Start));
    assert!(said.iter().any(|it| it.kind == LogKind::Stderr && it.text == "out of order"));
    let failure = said.iter().find(|it| it.kind == LogKind::Failure).unwrap();
    assert!(failure.text.contains("exited with code 3"), "{failure:?}");
    service.delete(bad).unwrap();
    assert_eq!(service.logs().read(bad).unwrap(), []);
    stage.end(&service).await;
}
