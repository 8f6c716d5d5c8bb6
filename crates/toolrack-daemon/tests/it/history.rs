//! Call history: a locked or damaged database or a full disk does not affect calls.

use std::process::Command;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use toolrack_daemon::{Daemon, KeyFile};
use toolrack_service::Home;
use toolrack_testkit::skipped;

use crate::fixture::{Client, Fixture, eventually, options};

/// Adds a server, makes one call, waits until it is recorded, and returns the request.
async fn call_once(fixture: &Fixture, client: &Client) -> Value {
    client.add(&fixture.scripted("one", &[])).await;
    let echo = json!({ "tool": "one_echo", "arguments": { "text": "x" } });
    client.post("/api/calls", echo.clone()).await;
    eventually("the first call is recorded", async || n_calls(client).await == 1).await;
    echo
}

async fn n_calls(client: &Client) -> usize {
    client.get("/api/calls?limit=500").await["calls"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_database_does_not_affect_calls() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let echo = call_once(&fixture, &client).await;
    let other = Connection::open(fixture.home().history_file()).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    let started = tokio::time::Instant::now();
    for _ in 0..50 {
        client.post("/api/calls", echo.clone()).await;
    }
    // Calls that waited for the database would take at least the busy timeout of the writer each.
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
    other.execute_batch("commit").unwrap();
    eventually("all calls are recorded", async || n_calls(&client).await == 51).await;
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_history_is_replaced_and_told() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let echo = call_once(&fixture, &client).await;
    let status = client.get("/api/daemon").await;
    let expected = json!({ "n_written": 1, "n_dropped": 0, "n_damaged": 0 });
    assert_eq!(status["history"], expected);
    let path = fixture.home().history_file();
    // Without the write-ahead log, which would restore the few pages of one call.
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", path.display())).unwrap();
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::copy("/proc/self/exe", &path).unwrap();
    client.post("/api/calls", echo).await;
    eventually("the history is replaced, without a restart", async || {
        client.get("/api/daemon").await["history"]["n_damaged"] == 1
    })
    .await;
    eventually("the call is in the new one", async || n_calls(&client).await == 1).await;
    let status = client.get("/api/daemon").await;
    assert_eq!(status["history"]["n_dropped"], 0, "{status}");
    let notice = status["history"]["notice"].as_str().unwrap();
    assert!(notice.contains("history.db.damaged-"), "{notice}");
    let metrics = client.request("GET", "/metrics", None).await.body;
    assert!(metrics.contains("toolrack_history_damaged_total 1"), "{metrics}");
    fixture.shutdown(daemon).await;
}

/// A small tmpfs, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    #[expect(clippy::disallowed_methods, reason = "mounting needs a program")]
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"])
            .arg(dir.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(dir))
    }
}

impl Drop for SmallDisk {
    #[expect(clippy::disallowed_methods, reason = "unmounting needs a program")]
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.0.path()).output());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_does_not_affect_calls() {
    let Some(disk) = SmallDisk::new() else {
        skipped("full_disk_does_not_affect_calls", "cannot mount a tmpfs");
        return;
    };
    let fixture = Fixture::new();
    let home = Home::new(fixture.home().config_file(), disk.0.path());
    std::fs::copy(KeyFile::new(&fixture.home()).path(), KeyFile::new(&home).path()).unwrap();
    let daemon = Daemon::start(home.clone(), options()).await.unwrap();
    let client = fixture.client(&daemon);
    let echo = call_once(&fixture, &client).await;
    let filler = disk.0.path().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    std::io::copy(&mut std::io::repeat(7), &mut file).unwrap_err();
    for _ in 0..300 {
        client.post("/api/calls", echo.clone()).await;
    }
    eventually("the failure is told", async || {
        client.get("/api/daemon").await["history"]["failure"].is_string()
    })
    .await;
    std::fs::remove_file(&filler).unwrap();
    drop(file);
    eventually("all calls are recorded", async || n_calls(&client).await == 301).await;
    let history = client.get("/api/daemon").await["history"].take();
    assert_eq!(history, json!({ "n_written": 301, "n_dropped": 0, "n_damaged": 0 }));
    daemon.shutdown().await;
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}
