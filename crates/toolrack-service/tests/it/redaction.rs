//! A secret passes through every part of the service and is shown nowhere (goal G09 of the fault table).

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use serde_json::json;
use toolrack_service::{
    ConfigStore, LocalService, McpConfig, McpService as _, McpStatus, Secret, ServiceOptions,
};
use toolrack_testkit::{HttpServer, HttpServerKind, LogCapture};
use uuid::Uuid;

use crate::fixture::{Fixture, binary, eventually, http, options, plain, secret, until};

const CANARY: &str = "canary-7c1f0b9e-s3cret";
const SECOND: &str = "second-52aa81d3-s3cret";

/// Everything that the service showed.
#[derive(Default)]
struct Output(String);

impl Output {
    fn add(&mut self, what: &str, shown: impl fmt::Display) {
        writeln!(self.0, "{what}: {shown}").unwrap();
    }

    #[track_caller]
    fn assert_clean(&self) {
        for secret in [CANARY, SECOND] {
            let lines: Vec<&str> = self.0.lines().filter(|line| line.contains(secret)).collect();
            assert!(lines.is_empty(), "{secret} was seen: {lines:#?}");
        }
    }
}

/// A server that prints its secret and exits.
fn leaking_server(name: &str, script: &str) -> McpConfig {
    let mut config = binary(name, "/bin/sh", &["-c", script]);
    config.env_vars.insert("TOKEN".to_owned(), secret("TOKEN", "canary"));
    config
}

async fn fill(service: &LocalService, fixture: &Fixture, server: &HttpServer) -> Vec<Uuid> {
    service.set_secret("canary", Secret::from(CANARY)).await.unwrap();
    let mut good = fixture.scripted("good", &[]);
    good.env_vars.insert("TOKEN".to_owned(), secret("TOKEN", "canary"));
    let mut given = plain("GIVEN", SECOND);
    given.is_secret = true;
    good.env_vars.insert("GIVEN".to_owned(), given);
    let mut remote = http("remote", &format!("{}?key=${{secret:canary}}", server.url()));
    remote.config = json!({ "headers": { "Authorization": "Bearer ${secret:canary}" } });
    let mut unreachable = http("unreachable", "http://127.0.0.1:9/mcp?key=${secret:canary}");
    unreachable.config = json!({ "headers": { "X-Key": "${secret:canary}" } });
    let configs = [
        good,
        remote,
        unreachable,
        leaking_server("dies", "echo \"my token is $TOKEN\" >&2; exit 3"),
        leaking_server("chatters", "echo \"token $TOKEN\"; echo \"$TOKEN\" >&2; sleep 1; exit 4"),
        leaking_server("wrong", "read line; echo \"{\\\"token\\\": \\\"$TOKEN\\\"}\"; exit 5"),
    ];
    configs.into_iter().map(|config| service.create(config).unwrap()).collect()
}

#[tokio::test]
async fn secret_is_redacted_everywhere() {
    let heard = LogCapture::default();
    let _listening = tracing::subscriber::set_default(heard.clone());
    let fixture = Fixture::new();
    let server = HttpServer::start(HttpServerKind::scripted(&["--shape", "dual"])).unwrap();
    let mut shown = Output::default();
    let service = fixture.open().await;
    let mut events = service.subscribe();
    let ids = fill(&service, &fixture, &server).await;
    for id in &ids {
        let outcome = service.start(*id).await;
        if let Err(error) = &outcome {
            shown.add("start", error);
            shown.add("hint", error.hint().unwrap_or_default());
        }
        shown.add("start", format!("{outcome:?}"));
    }
    let [good, remote, .., dies, _, _] = ids.as_slice() else { panic!("six servers") };
    until(&service, *dies, |status| matches!(status, McpStatus::Error { .. })).await;

    // The server really has the secret and returns it.
    for (id, tool, arguments) in [
        (good, "env", json!({})),
        (good, "echo", json!({ "text": CANARY })),
        (good, "fail", json!({ "text": CANARY, "message": CANARY })),
        (good, "nothing", json!({ "text": CANARY })),
        (good, "add", json!({ "a": CANARY, "b": 1 })),
        (remote, "echo", json!({ "text": CANARY })),
    ] {
        let outcome = service.call_tool(*id, tool, &arguments).await;
        shown.add(tool, format!("{outcome:?}"));
    }
    // The manager below redacts it too.
    let env = service.manager().call_tool("good", "env", &json!({})).await.unwrap();
    assert!(env.content.contains("[secret canary]"), "{env:?}");
    shown.add("manager", &env.content);
    assert!(shown.0.contains("[secret canary]"), "it was there and was redacted: {}", shown.0);
    show(&service, &ids, &mut shown);
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        shown.add("process", String::from_utf8_lossy(&line));
    }
    // All events have arrived once the stream is quiet.
    service.shutdown_all().await.unwrap();
    let quiet = std::time::Duration::from_millis(300);
    while let Ok(Some(event)) = tokio::time::timeout(quiet, events.next()).await {
        shown.add("event", format!("{event:?}"));
    }
    assert!(shown.0.contains("my token is [secret canary]"), "{}", shown.0);
    fixture.end(&service).await;
    shown.add("log", heard.text());
    scan(fixture.path(), &fixture.home().secrets_dir(), &mut shown);
    shown.assert_clean();
    assert!(heard.text().contains("server stderr"), "the log was heard");
}

fn show(service: &LocalService, ids: &[Uuid], shown: &mut Output) {
    shown.add("service", format!("{service:?} {:?}", service.manager()));
    shown.add("options", format!("{:?}", ServiceOptions { agent: None, ..options() }));
    for server in service.manager().servers() {
        shown.add("server", format!("{server:?} {}", server.state()));
    }
    let stored = ConfigStore::new(service.home().config_file()).read();
    shown.add("stored", format!("{stored:?}"));
    shown.add("secrets", format!("{:?} {:?}", service.secrets(), service.secrets().list()));
    shown.add("secret", format!("{:?}", service.secrets().get("canary")));
    for id in ids {
        let (config, detail) = (service.get(*id).unwrap(), service.status_detail(*id).unwrap());
        shown.add("config", format!("{config:?} {}", serde_json::to_string(&config).unwrap()));
        shown.add("detail", format!("{detail:?} {}", serde_json::to_string(&detail).unwrap()));
        shown.add("status", format!("{:?}", service.status(*id)));
    }
    for tool in service.available_tools() {
        shown.add("tool", format!("{tool:?}"));
    }
}

/// Reads every file below `dir`, except where secrets belong.
fn scan(dir: &Path, except: &Path, shown: &mut Output) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path == except {
            continue;
        }
        if path.is_dir() {
            scan(&path, except, shown);
        } else {
            let bytes = fs::read(&path).unwrap_or_default();
            shown.add(&path.display().to_string(), String::from_utf8_lossy(&bytes));
        }
    }
}

/// The redactor still knows a secret after its server has exited.
#[tokio::test]
async fn secret_in_the_stderr_of_a_crash_is_redacted() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    service.set_secret("canary", Secret::from(CANARY)).await.unwrap();
    let script = "echo \"bad key $TOKEN\" >&2; exit 3";
    let id = service.create(leaking_server("dies", script)).unwrap();
    let error = service.start(id).await.unwrap_err();
    let said = format!("{error} {}", error.hint().unwrap_or_default());
    assert!(said.contains("bad key [secret canary]"), "{said}");
    eventually("the status says it too", || {
        format!("{:?}", service.status_detail(id)).contains("[secret canary]")
    })
    .await;
    fixture.end(&service).await;
}
