//! Random requests, sound and unsound ones, made by Schemathesis from the description of the API.
//!
//! No answer may be a fault of the daemon, have a status or a type that is not described, or a body that does not fit
//! its schema; nothing unsound may be taken, and nothing sound refused. Its schemathesis.toml has the exceptions.
//!
//! Random configs name random programs, packages and endpoints, and the daemon starts what it is told to. So it runs
//! as a program of its own whose `PATH` is an empty folder, where no command, `npx`, `uvx` or `docker` is found, and
//! hooks.py puts every endpoint at a port of this machine where nobody listens. The seed is fixed.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use toolrack_testkit::{Kept, program, skipped};

use crate::stage::{Client, Stage};

/// Half a minute on an idle machine.
const PATIENCE: Duration = Duration::from_mins(4);
const TEST: &str = "random_requests_are_answered_as_described";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/python/schemathesis")
}

/// `cargo test` builds examples too, unless it is told to build one test program only.
fn daemon_program() -> PathBuf {
    let path = program("scripted-server").with_file_name("examples").join("daemon");
    let build = "cargo build -p toolrack-daemon --example daemon";
    assert!(path.is_file(), "{} does not exist; build it with `{build}`", path.display());
    path
}

/// A daemon as a program, with nothing that it could start.
#[expect(clippy::disallowed_methods, reason = "a daemon with an environment of its own")]
fn start_daemon(stage: &Stage) -> (Kept, Client) {
    let empty = stage.dir.path().join("empty");
    std::fs::DirBuilder::new().create(&empty).unwrap();
    let (variable, value) = stage.marker.pair();
    let mut child = Command::new(daemon_program())
        .arg(stage.dir.path())
        .env_clear()
        .env("PATH", &empty)
        .env("HOME", stage.dir.path())
        .env(variable, value)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let kept = Kept::new(child);
    let addr = line.split_whitespace().nth(2).and_then(|it| it.parse().ok());
    let token = std::fs::read_to_string(toolrack_daemon::token_file(&stage.home())).unwrap();
    (kept, Client { addr: addr.unwrap_or_else(|| panic!("{line}")), token })
}

#[expect(clippy::disallowed_methods, reason = "tests start the tool that makes the requests")]
fn schemathesis(stage: &Stage, client: &Client, one: &str, spare: &str) -> (bool, String) {
    let said = stage.dir.path().join("said");
    let kept = stage.dir.path().join("kept.toml");
    std::fs::copy(stage.home().config_file(), &kept).unwrap();
    let output = File::create(&said).unwrap();
    let child = Command::new(folder().join("venv/bin/schemathesis"))
        .arg("--config-file")
        .arg(folder().join("schemathesis.toml"))
        .args(["run", "--no-color", "--warnings", "off"])
        .arg(format!("http://{}/api/openapi.json", client.addr))
        // It writes notes of its own into the folder where it runs.
        .current_dir(stage.dir.path())
        .env("PYTHONPATH", folder())
        .env("TOKEN", &client.token)
        .env("KEPT", kept)
        .env("ONE", one)
        .env("SPARE", spare)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let ended = Kept::new(child).output(PATIENCE);
    let said = std::fs::read_to_string(said).unwrap_or_default();
    (ended.is_ok_and(|(status, ..)| status.success()), said)
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_are_answered_as_described() {
    if !folder().join("venv/bin/schemathesis").exists() {
        return skipped(TEST, "Schemathesis is missing; run `cargo xtask servers`");
    }
    let stage = Stage::new();
    let (mut daemon, client) = start_daemon(&stage);
    let one = client.add(&stage.scripted("one", &[])).await;
    let mut spare = stage.scripted("spare", &[]);
    spare["enabled"] = json!(false);
    let spare = client.post("/api/servers", spare).await["config"]["id"].clone();

    let (is_clean, said) = tokio::task::block_in_place(|| {
        schemathesis(&stage, &client, &one, spare.as_str().unwrap())
    });
    assert!(is_clean, "{said}");
    // It leaves out where the description is; we, the end of the daemon and the stream of events.
    let n = crate::openapi::routes().len() - 1;
    assert!(said.contains(&format!("{}/{n}", n - 2)), "operations were left out: {said}");
    // It lives, and so does the server that was there.
    assert_eq!(client.ask("GET", "/readyz", None).await.status, 200);
    let call = json!({ "tool": "one_echo", "arguments": { "text": "still here" } });
    assert_eq!(client.post("/api/calls", call).await["text"], "still here");

    client.ask("POST", "/api/daemon/stop", Some(Value::Null)).await;
    let (status, ..) = tokio::task::block_in_place(|| daemon.output(PATIENCE)).unwrap();
    assert!(status.success(), "{status}");
    stage.marker.assert_nobody_left(Duration::ZERO);
}
