//! Config changes by the service, by hand and by another service, and what they do to running servers.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use toolrack_config::{McpServerConfig, McpTransport};
use toolrack_manager::{ManagerEvent, ManagerEvents};
use toolrack_service::{
    ConfigInput, ConfigStore, Enabled, EnvVarConfig, ErrorCode, LocalService, McpConfig,
    McpService as _, McpStatus, ServiceOptions, WatchConfig,
};
use uuid::Uuid;

use crate::fixture::{
    Fixture, TIMEOUT, binary, call, describe, eventually, is_running, options, pid, plain, until,
};

/// Spec 004, end-to-end flow of the toggle.
#[tokio::test]
async fn failed_toggle_reverts_the_enabled_flag() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let off = |config: McpConfig| McpConfig { enabled: false, ..config };
    let good = service.create(off(fixture.scripted("good", &[]))).unwrap();
    let bad = service.create(off(fixture.scripted("bad", &["--plan", "start=exit(3)"]))).unwrap();

    service.set_enabled(good, Enabled::Yes).await.unwrap();
    assert!(is_running(&service.status(good)) && service.get(good).unwrap().enabled);
    service.set_enabled(good, Enabled::No).await.unwrap();
    assert_eq!(service.status(good), McpStatus::Disabled);
    fixture.marker.assert_no_processes_left(Duration::ZERO);
    assert_eq!(fixture.text().matches("enabled = false").count(), 2, "{}", fixture.text());

    let error = service.set_enabled(bad, Enabled::Yes).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert!(error.to_string().contains("exited with code 3"), "{error}");
    assert!(!service.get(bad).unwrap().enabled);
    assert_eq!(service.status(bad), McpStatus::Disabled);
    assert_eq!(fixture.text().matches("enabled = false").count(), 2, "{}", fixture.text());
    fixture.end(&service).await;
}

/// A removed server gets seconds to end. Calls of the others see the new config at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_server_that_does_not_end_delays_no_call_of_others() {
    let fixture = Fixture::new();
    let service = fixture.open_as_daemon().await;
    let healthy = service.create(fixture.scripted("healthy", &[])).unwrap();
    let deaf = service.create(fixture.scripted("deaf", &["--plan", "ignore=term,eof"])).unwrap();
    until(&service, healthy, is_running).await;
    until(&service, deaf, is_running).await;
    let removed_at = Instant::now();
    service.delete(deaf).unwrap();
    assert!(!call(&service, healthy, "pid").await.is_empty());
    let added = service.create(fixture.scripted("added", &[])).unwrap();
    until(&service, added, is_running).await;
    let n_servers = service.list().len();
    assert!(removed_at.elapsed() < Duration::from_secs(4), "{:?}", removed_at.elapsed());
    // `reload` waits for the end of what was removed before.
    service.reload().await.unwrap();
    assert!(removed_at.elapsed() >= Duration::from_secs(4), "{:?}", removed_at.elapsed());
    assert_eq!((n_servers, fixture.marker.survivors().len()), (2, 2));
    fixture.end(&service).await;
}

#[tokio::test]
async fn update_restarts_only_if_needed() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let id = service.create(fixture.scripted("one", &[])).unwrap();
    service.start(id).await.unwrap();
    let first = pid(&fixture.marker);

    let mut config = service.get(id).unwrap();
    config.config = json!({ "timeout": "7s", "deny": ["fail"] });
    service.update(config.clone()).unwrap();
    let denied = service.call_tool(id, "fail", &json!({})).await.unwrap_err();
    assert_eq!(denied.code(), ErrorCode::Denied);
    assert!(denied.to_string().contains("deny = \"fail\""), "{denied}");
    assert_eq!(pid(&fixture.marker), first, "rules and limits are changed while it runs");

    config.env_vars.insert("NEW".to_owned(), plain("NEW", "1"));
    service.update(config.clone()).unwrap();
    assert!(call(&service, id, "env").await.contains("NEW"));
    let second = pid(&fixture.marker);
    assert_ne!(second, first);

    // A rename keeps the id, and a running server is restarted under its new name.
    service.update(McpConfig { name: "two".to_owned(), ..config }).unwrap();
    until(&service, id, is_running).await;
    assert_eq!(service.get(id).unwrap().name, "two");
    assert_eq!(service.find_tool_provider("two_echo"), Some(id));
    assert_eq!(service.find_tool_provider("one_echo"), None);
    assert_eq!(fixture.text().matches(&id.to_string()).count(), 1, "{}", fixture.text());

    service.delete(id).unwrap();
    assert_eq!((service.get(id), service.status(id)), (None, McpStatus::Stopped));
    eventually("nothing is left", || fixture.marker.survivors().is_empty()).await;
    fixture.end(&service).await;
}

#[tokio::test]
async fn server_names_are_unique() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let one = service.create(binary("one", "x", &[])).unwrap();
    let two = service.create(binary("two", "x", &[])).unwrap();
    let taken = "CONFLICT the name `one` is already taken (name)";
    assert_eq!(describe(&service.create(binary("one", "y", &[])).unwrap_err()), taken);
    let renamed = McpConfig { name: "one".to_owned(), ..service.get(two).unwrap() };
    assert_eq!(describe(&service.update(renamed).unwrap_err()), taken);
    let same_id = McpConfig { id: one, ..binary("three", "x", &[]) };
    assert_eq!(service.create(same_id).unwrap_err().code(), ErrorCode::Conflict);
    assert_eq!(service.list().len(), 2);
    fixture.end(&service).await;
}

const BY_HAND: &str =
    "# mine\n[[defaults.mcp]]\nname = \"one\"\ncommand = \"x\" # why\nextra = 1\n";

#[tokio::test]
async fn handwritten_entries_keep_their_id() {
    let fixture = Fixture::new();
    put(&fixture, BY_HAND);
    let first = fixture.open().await;
    let id = first.list()[0].id;
    assert!(!id.is_nil());
    assert_eq!(fixture.text(), BY_HAND, "looking writes nothing");
    fixture.end(&first).await;

    let second = fixture.open().await;
    assert_eq!(second.list()[0].id, id);
    let other = second.create(binary("two", "y", &[])).unwrap();
    let text = fixture.text();
    assert!(text.contains(&id.to_string()) && text.contains("# why"), "{text}");
    assert!(text.contains("extra = 1"), "unknown keys survive: {text}");
    second.set_enabled(id, Enabled::No).await.unwrap();
    assert_eq!(second.list().iter().map(|config| config.id).collect::<Vec<_>>(), [id, other]);
    fixture.end(&second).await;

    let third = fixture.open().await;
    assert_eq!(third.list().iter().map(|config| config.id).collect::<Vec<_>>(), [id, other]);
    fixture.end(&third).await;
}

#[tokio::test]
async fn edits_by_hand_are_applied_and_an_invalid_file_is_not() {
    let fixture = Fixture::new();
    let service = fixture.open_as_daemon().await;
    let mut events = service.subscribe();
    let one = service.create(fixture.scripted("one", &[])).unwrap();
    until(&service, one, is_running).await;
    let (process, good) = (pid(&fixture.marker), fixture.text());

    put(&fixture, &format!("{good}\n[[defaults.mcp]\n"));
    let message = rejected(&mut events).await;
    assert!(message.contains("toolrack.toml:"), "{message}");
    let refused = service.create(binary("two", "x", &[])).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ValidationError, "{refused}");
    assert!(
        fixture.text().ends_with("[[defaults.mcp]\n"),
        "what a person wrote is not overwritten"
    );
    assert!(is_running(&service.status(one)));

    put(
        &fixture,
        &format!("{good}\n[[defaults.mcp]]\nname = \"by-hand\"\ncommand = \"nowhere\"\n"),
    );
    eventually("the new one is known", || service.list().len() == 2).await;
    let by_hand = service.list()[1].id;
    until(&service, by_hand, |status| matches!(status, McpStatus::Error { .. })).await;
    assert_eq!(pid(&fixture.marker), process, "the other one is left alone");

    put(&fixture, "");
    eventually("all are forgotten", || service.list().is_empty()).await;
    eventually("nothing is left", || fixture.marker.survivors().is_empty()).await;
    fixture.end(&service).await;
}

/// Fault F91: two services on one home at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_on_one_home_lose_no_change() {
    const EACH: usize = 15;
    let fixture = Fixture::new();
    let following = || ServiceOptions { watch_config: WatchConfig::Yes, ..options() };
    let mut services = Vec::new();
    for _ in 0..2 {
        let opened = LocalService::open(fixture.home(), following()).await.unwrap();
        services.push(Arc::new(opened));
    }
    let writers: Vec<_> = services
        .iter()
        .enumerate()
        .map(|(who, service)| {
            let service = Arc::clone(service);
            tokio::task::spawn_blocking(move || -> Vec<Uuid> {
                let create = |n| service.create(binary(&format!("s{who}-{n}"), "x", &[])).unwrap();
                let ids: Vec<Uuid> = (0..EACH).map(create).collect();
                // One in three is changed, and one in three is deleted.
                for chunk in ids.chunks(3) {
                    let changed = service.get(chunk[0]).unwrap();
                    service.update(McpConfig { enabled: false, ..changed }).unwrap();
                    service.delete(chunk[1]).unwrap();
                }
                ids
            })
        })
        .collect();
    let mut expected = BTreeSet::new();
    for writer in writers {
        let ids = writer.await.unwrap();
        expected.extend(ids.chunks(3).flat_map(|chunk| [(chunk[0], false), (chunk[2], true)]));
    }
    let listed = |service: &LocalService| -> BTreeSet<(Uuid, bool)> {
        service.list().into_iter().map(|config| (config.id, config.enabled)).collect()
    };
    for service in &services {
        eventually("both list everything", || listed(service) == expected).await;
    }
    for service in &services {
        fixture.end(service).await;
    }
    let fresh = fixture.open().await;
    assert_eq!(listed(&fresh), expected);
    fixture.end(&fresh).await;
}

#[tokio::test]
async fn failed_change_leaves_no_secret_behind() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let mut config = McpConfig { id: Uuid::new_v4(), ..binary("one", "x", &[]) };
    for name in ["A", "B"] {
        let hidden = EnvVarConfig { is_secret: true, ..plain(name, "hidden-value") };
        config.env_vars.insert(name.to_owned(), hidden);
    }
    let secret = |name: &str| fixture.home().secrets_dir().join(format!("mcp_{}{name}", config.id));
    // The secret of the second variable can be neither read nor replaced.
    fs::create_dir_all(secret(".B.key")).unwrap();
    service.create(config.clone()).unwrap_err();
    assert!(!secret(".key").exists() && service.list().is_empty());
    fixture.end(&service).await;
}

#[tokio::test]
async fn config_that_was_read_before_is_used() {
    let fixture = Fixture::new();
    put(&fixture, BY_HAND);
    let stored = ConfigStore::new(fixture.home().config_file()).load().unwrap();
    put(&fixture, "");
    let options = ServiceOptions { config: ConfigInput::Stored(stored), ..options() };
    let service = LocalService::open(fixture.home(), options).await.unwrap();
    assert_eq!(service.list().len(), 1);
    service.reload().await.unwrap();
    assert!(service.list().is_empty(), "the file has changed since");
    fixture.end(&service).await;
}

#[tokio::test]
async fn servers_of_the_caller_need_no_config_file() {
    let fixture = Fixture::new();
    put(&fixture, "this is not a config");
    let program = toolrack_testkit::program("scripted-server").display().to_string();
    let mut server = McpServerConfig::stdio("typed", program, &[]);
    server.startup_timeout = Duration::from_secs(29);
    let (variable, value) = fixture.marker.env_var();
    if let McpTransport::Stdio { env, .. } = &mut server.transport {
        env.insert(variable.to_owned(), value.into());
    }
    let options = ServiceOptions {
        config: ConfigInput::Servers(vec![server.clone()]),
        watch_config: WatchConfig::Yes,
        ..options()
    };
    let service = LocalService::open(fixture.home(), options).await.unwrap();
    let id = service.id_for_name("typed").unwrap();
    service.start(id).await.unwrap();
    assert!(is_running(&service.status(id)));
    let config = service.manager().server("typed").unwrap().config().clone();
    assert_eq!(config, McpServerConfig { id: Some(id.to_string()), ..server });
    let refusals = [
        service.create(binary("two", "x", &[])).unwrap_err(),
        service.update(service.get(id).unwrap()).unwrap_err(),
        service.delete(id).unwrap_err(),
        service.set_enabled(id, Enabled::No).await.unwrap_err(),
        service.reload().await.unwrap_err(),
    ];
    for refusal in refusals {
        let expected = "CONFLICT there is no config file: these servers were given by the caller";
        assert_eq!(describe(&refusal), expected);
    }
    assert_eq!(fixture.text(), "this is not a config");
    fixture.end(&service).await;
}

fn put(fixture: &Fixture, text: &str) {
    let draft = fixture.path().join("draft");
    let file = fs::File::create(&draft).unwrap();
    std::io::Write::write_all(&mut &file, text.as_bytes()).unwrap();
    fs::rename(draft, fixture.home().config_file()).unwrap();
}

async fn rejected(events: &mut ManagerEvents) -> String {
    let wanted = async {
        loop {
            if let Some(ManagerEvent::ConfigRejected { message }) = events.next().await {
                return message;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, wanted).await.unwrap()
}
