//! Server logs outlive their servers.

use toolrack_service::{LogKind, LogLine, McpService as _};

use crate::fixture::{Fixture, binary};

fn kinds(lines: &[LogLine]) -> Vec<LogKind> {
    lines.iter().map(|line| line.kind).collect()
}

#[tokio::test]
async fn server_log_is_kept_until_the_server_is_deleted() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let good = service.create(fixture.scripted("good", &[])).unwrap();
    let script = "echo out of order >&2; exit 3";
    let bad = service.create(binary("bad", "/bin/sh", &["-c", script])).unwrap();
    service.start(good).await.unwrap();
    service.start(bad).await.unwrap_err();
    fixture.end(&service).await;

    let service = fixture.open().await;
    assert_eq!(kinds(&service.logs().read(good).unwrap()), [LogKind::Start, LogKind::Ready]);
    let lines = service.logs().read(bad).unwrap();
    assert_eq!(lines.first().map(|line| line.kind), Some(LogKind::Start));
    assert!(lines.iter().any(|line| line.kind == LogKind::Stderr && line.text == "out of order"));
    let failure = lines.iter().find(|line| line.kind == LogKind::Failure).unwrap();
    assert!(failure.text.contains("exited with code 3"), "{failure:?}");
    service.delete(bad).unwrap();
    assert_eq!(service.logs().read(bad).unwrap(), []);
    fixture.end(&service).await;
}
