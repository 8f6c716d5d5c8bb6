//! Property-based test: Schemathesis generates valid and invalid requests from the `OpenAPI` document.
//!
//! No response may be a 5xx of the daemon itself, have an undocumented status or content type, or a body that does not
//! match its schema; invalid requests must be refused and valid ones accepted. schemathesis.toml lists the exceptions.
//!
//! Random configs name random programs, packages and URLs, which the daemon would start. So it runs as a child process
//! whose `PATH` is an empty directory, without commands, `npx`, `uvx` or `docker`, and hooks.py redirects every URL to
//! a closed port on this machine. The seed is fixed.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use toolrack_testkit::{ChildGuard, program, skipped};

use crate::fixture::{Client, Fixture};

/// Half a minute on an idle machine.
const TIMEOUT: Duration = Duration::from_mins(4);
const TEST: &str = "random_requests_match_the_openapi_document";

fn schemathesis_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/python/schemathesis")
}

/// `cargo test` builds examples too, unless it is restricted to one test target.
fn daemon_program() -> PathBuf {
    let path = program("scripted-server").with_file_name("examples").join("daemon");
    let build = "cargo build -p toolrack-daemon --example daemon";
    assert!(path.is_file(), "{} does not exist; build it with `{build}`", path.display());
    path
}

/// A daemon process with an empty `PATH`.
#[expect(clippy::disallowed_methods, reason = "the daemon needs an environment of its own")]
fn start_daemon(fixture: &Fixture) -> (ChildGuard, Client) {
    let empty = fixture.dir.path().join("empty");
    std::fs::DirBuilder::new().create(&empty).unwrap();
    let (variable, value) = fixture.marker.env_var();
    let mut child = Command::new(daemon_program())
        .arg(fixture.dir.path())
        .env_clear()
        .env("PATH", &empty)
        .env("HOME", fixture.dir.path())
        .env(variable, value)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let kept = ChildGuard::new(child);
    let addr = line.split_whitespace().nth(2).and_then(|addr| addr.parse().ok());
    let token = fixture.admin.clone();
    (kept, Client { addr: addr.unwrap_or_else(|| panic!("{line}")), token })
}

#[expect(clippy::disallowed_methods, reason = "the test starts Schemathesis")]
fn schemathesis(fixture: &Fixture, client: &Client, one: &str, spare: &str) -> (bool, String) {
    let log = fixture.dir.path().join("output.log");
    let config_copy = fixture.dir.path().join("kept.toml");
    std::fs::copy(fixture.home().config_file(), &config_copy).unwrap();
    let output = File::create(&log).unwrap();
    let child = Command::new(schemathesis_dir().join("venv/bin/schemathesis"))
        .arg("--config-file")
        .arg(schemathesis_dir().join("schemathesis.toml"))
        .args(["run", "--no-color", "--warnings", "off"])
        .arg(format!("http://{}/api/openapi.json", client.addr))
        // Schemathesis writes files into its working directory.
        .current_dir(fixture.dir.path())
        .env("PYTHONPATH", schemathesis_dir())
        .env("TOKEN", &client.token)
        .env("KEPT", config_copy)
        .env("ONE", one)
        .env("SPARE", spare)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let ended = ChildGuard::new(child).wait_with_output(TIMEOUT);
    let log = std::fs::read_to_string(log).unwrap_or_default();
    (ended.is_ok_and(|(status, ..)| status.success()), log)
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_match_the_openapi_document() {
    if !schemathesis_dir().join("venv/bin/schemathesis").exists() {
        return skipped(TEST, "Schemathesis is missing; run `cargo xtask servers`");
    }
    let fixture = Fixture::new();
    let (mut daemon, client) = start_daemon(&fixture);
    let one = client.add(&fixture.scripted("one", &[])).await;
    let mut spare = fixture.scripted("spare", &[]);
    spare["enabled"] = json!(false);
    let spare = client.post("/api/servers", spare).await["config"]["id"].clone();

    let (is_clean, log) = tokio::task::block_in_place(|| {
        schemathesis(&fixture, &client, &one, spare.as_str().unwrap())
    });
    assert!(is_clean, "{log}");
    // Skipped: the document itself by Schemathesis; the stop route and the event stream by its config.
    let n = crate::openapi::routes().len() - 1;
    assert!(log.contains(&format!("{}/{n}", n - 2)), "operations were skipped: {log}");
    // The daemon and its server are still alive.
    assert_eq!(client.request("GET", "/readyz", None).await.status, 200);
    let call = json!({ "tool": "one_echo", "arguments": { "text": "still here" } });
    assert_eq!(client.post("/api/calls", call).await["text"], "still here");

    client.request("POST", "/api/daemon/stop", Some(Value::Null)).await;
    let (status, ..) = tokio::task::block_in_place(|| daemon.wait_with_output(TIMEOUT)).unwrap();
    assert!(status.success(), "{status}");
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}
