//! The history in a daemon: whatever happens to its file, calls go on.

use std::process::Command;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use toolrack_daemon::Daemon;
use toolrack_service::Home;
use toolrack_testkit::skipped;

use crate::stage::{Client, Stage, eventually, options};

/// Adds a server, makes one call, and gives the call to be made again once the first is written.
async fn call_once(stage: &Stage, client: &Client) -> Value {
    client.add(&stage.scripted("one", &[])).await;
    let echo = json!({ "tool": "one_echo", "arguments": { "text": "x" } });
    client.post("/api/calls", echo.clone()).await;
    eventually("the first is written", async || n_calls(client).await == 1).await;
    echo
}

async fn n_calls(client: &Client) -> usize {
    client.get("/api/calls?limit=500").await["calls"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_database_neither_fails_nor_slows_calls() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let echo = call_once(&stage, &client).await;
    let other = Connection::open(stage.home().history_file()).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    let began = tokio::time::Instant::now();
    for _ in 0..50 {
        client.post("/api/calls", echo.clone()).await;
    }
    // A call that waited for the database would take at least the patience of the writer each time.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    other.execute_batch("commit").unwrap();
    eventually("all are written in the end", async || n_calls(&client).await == 51).await;
    stage.end(daemon).await;
}

/// A small disk in memory, as long as it is kept.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    #[expect(clippy::disallowed_methods, reason = "only a program can mount a disk")]
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(dir.path())
            .output()
            .is_ok_and(|it| it.status.success());
        mounted.then_some(Self(dir))
    }
}

impl Drop for SmallDisk {
    #[expect(clippy::disallowed_methods, reason = "only a program can unmount a disk")]
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.0.path()).output());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_neither_fails_nor_slows_calls() {
    let Some(disk) = SmallDisk::new() else {
        skipped("a_full_disk_neither_fails_nor_slows_calls", "tmpfs cannot be mounted here");
        return;
    };
    let stage = Stage::new();
    let home = Home::new(stage.home().config_file(), disk.0.path());
    let daemon = Daemon::start(home.clone(), options()).await.unwrap();
    let client = Client::of(&daemon);
    let echo = call_once(&stage, &client).await;
    let filler = disk.0.path().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    std::io::copy(&mut std::io::repeat(7), &mut file).unwrap_err();
    for _ in 0..300 {
        client.post("/api/calls", echo.clone()).await;
    }
    std::fs::remove_file(&filler).unwrap();
    drop(file);
    eventually("all are written in the end", async || n_calls(&client).await == 301).await;
    daemon.shutdown().await;
    stage.marker.assert_nobody_left(Duration::ZERO);
}
