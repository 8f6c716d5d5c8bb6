//! The tests that founding document 004 names, through `McpService` and with real processes.

use std::os::unix::fs::symlink;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::time::Instant;
use toolrack_service::{
    EnvVarConfig, ErrorCode, McpConfig, McpService as _, McpStatus, Secret, ServiceError,
};
use toolrack_testkit::{Journal, program};
use uuid::Uuid;

use crate::fixture::{
    Fixture, binary, call, describe, eventually, is_running, next_failure, pid, plain, process_env,
    secret, until,
};

#[tokio::test]
async fn mc_t1_start_spawns_process_correctly() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    // Text with shell syntax arrives unchanged. This option takes any text.
    let text = "$(x) \"y\" 'z' `w` *; $HOME\n&& exit";
    let mut config = fixture.scripted("one", &["--tools", "3", "--marker", text]);
    config.config["cwd"] = json!(fixture.path());
    let id = service.create(config).unwrap();
    assert_eq!(service.status(id), McpStatus::Stopped);
    assert!(fixture.marker.survivors().is_empty());

    service.start(id).await.unwrap();
    let process = pid(&fixture.marker);
    let line = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap();
    let program = program("scripted-server").display().to_string();
    assert_eq!(line.trim_end_matches('\0'), format!("{program}\0--tools\x003\0--marker\0{text}"));
    let cwd = std::fs::read_link(format!("/proc/{process}/cwd")).unwrap();
    assert_eq!(cwd, fixture.path().canonicalize().unwrap());
    assert!(is_running(&service.status(id)));

    // Starting a running server does nothing.
    service.start(id).await.unwrap();
    assert_eq!(pid(&fixture.marker), process);
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_t2_stop_terminates_process() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let polite = service.create(fixture.scripted("polite", &[])).unwrap();
    service.start(polite).await.unwrap();
    service.stop(polite).await.unwrap();
    fixture.marker.assert_no_processes_left(Duration::ZERO);
    assert_eq!(service.status(polite), McpStatus::Stopped);

    let deaf = service.create(fixture.scripted("deaf", &["--plan", "ignore=term,eof"])).unwrap();
    service.start(deaf).await.unwrap();
    let started = Instant::now();
    service.stop(deaf).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(4), "the server gets time to exit");
    fixture.marker.assert_no_processes_left(Duration::ZERO);
    assert_eq!(service.status(deaf), McpStatus::Stopped);
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_t3_tool_list_populated_after_start() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let mut config = fixture.scripted("one", &[]);
    config.config = json!({ "allow": ["echo", "add", "fail"], "deny": ["fail"] });
    let id = service.create(config).unwrap();
    assert!(service.available_tools().is_empty());
    service.start(id).await.unwrap();
    let names: Vec<String> = service.available_tools().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["one_echo", "one_add"]);
    let tools = vec!["echo".to_owned(), "add".to_owned()];
    assert_eq!(service.status(id), McpStatus::Running { tools });
    assert_eq!(service.find_tool_provider("one_echo"), Some(id));
    assert_eq!(service.find_tool_provider("add"), Some(id));
    assert_eq!(service.find_tool_provider("fail"), None);
    let detail = service.status_detail(id).unwrap();
    assert_eq!((detail.n_tools, detail.phase.as_str()), (2, "connected"));
    assert!(detail.n_tools_total.unwrap() > 3);
    service.stop(id).await.unwrap();
    assert!(service.available_tools().is_empty());
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_t4_tool_call_returns_result() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let id = service.create(fixture.scripted("one", &[])).unwrap();
    service.start(id).await.unwrap();
    for name in ["echo", "one_echo", "one.echo"] {
        let text = service.call_tool(id, name, &json!({ "text": "hello" })).await.unwrap();
        assert_eq!(text, "hello", "{name}");
    }
    let failed = service.call_tool(id, "fail", &json!({ "text": "no\u{1b}[1m luck" })).await;
    let failed = failed.unwrap_err();
    assert_eq!(failed.code(), ErrorCode::ServiceUnavailable);
    assert!(!failed.to_string().contains('\u{1b}'), "{failed}");
    let wrong = service.call_tool(id, "echo", &json!([1])).await.unwrap_err();
    assert_eq!(
        describe(&wrong),
        "VALIDATION_ERROR must be an object with one member per argument (arguments)"
    );
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_t5_failed_mcp_does_not_block_others() {
    let fixture = Fixture::new();
    let first = fixture.open().await;
    let missing = first.create(binary("missing", "no-such-program-anywhere", &[])).unwrap();
    let dying = first.create(fixture.scripted("dying", &["--plan", "start=exit(3)"])).unwrap();
    let good = first.create(fixture.scripted("good", &[])).unwrap();
    fixture.end(&first).await;

    let service = fixture.open_as_daemon().await;
    until(&service, good, is_running).await;
    for id in [missing, dying] {
        until(&service, id, |status| matches!(status, McpStatus::Error { .. })).await;
    }
    let tools = service.available_tools();
    let McpStatus::Running { tools: names } = service.status(good) else { panic!("not running") };
    assert!(names.iter().any(|name| name == "pid"), "{names:?}");
    assert_eq!(tools.len(), names.len(), "{tools:?}");
    assert!(tools.iter().all(|tool| tool.name.starts_with("good_")));
    assert!(!call(&service, good, "pid").await.is_empty());
    let error = service.start(dying).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_t6_environment_variables_set_correctly() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let mut config = fixture.scripted("one", &[]);
    config.env_vars.insert("PLAIN".to_owned(), plain("PLAIN", "a value with $ and \"quotes\""));
    let unset = EnvVarConfig { value: None, ..plain("UNSET", "") };
    config.env_vars.insert("UNSET".to_owned(), unset);
    let absent = EnvVarConfig { required: false, ..secret("ABSENT", "no-such-secret") };
    config.env_vars.insert("ABSENT".to_owned(), absent);
    let id = service.create(config.clone()).unwrap();
    assert_eq!(service.get(id).unwrap(), McpConfig { id, ..config });
    service.start(id).await.unwrap();
    let process = pid(&fixture.marker);
    let plain = process_env(process, "PLAIN");
    assert_eq!(plain.as_deref(), Some("a value with $ and \"quotes\""));
    // `build_environment` of the document: `unwrap_or_default`.
    assert_eq!(process_env(process, "UNSET").as_deref(), Some(""));
    assert_eq!(process_env(process, "ABSENT").as_deref(), Some(""));
    assert_eq!(process_env(process, "CARGO_MANIFEST_DIR"), None, "our own environment is ours");
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_t7_secrets_resolved_from_store() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    service.set_secret("api", Secret::from("first-secret-value")).await.unwrap();
    let mut config = fixture.scripted("one", &[]);
    config.env_vars.insert("TOKEN".to_owned(), secret("TOKEN", "api"));
    let given = EnvVarConfig { is_secret: true, ..plain("GIVEN", "typed-secret-value") };
    config.env_vars.insert("GIVEN".to_owned(), given);
    let id = service.create(config).unwrap();
    // A second server with another secret.
    let other = Fixture::new();
    service.set_secret("other", Secret::from("secret-value-of-two")).await.unwrap();
    let mut config = other.scripted("two", &[]);
    config.env_vars.insert("TOKEN".to_owned(), secret("TOKEN", "other"));
    let two = service.create(config).unwrap();
    // A value marked secret moves into the store; the file and the config refer to it.
    let variable = service.get(id).unwrap().env_vars["GIVEN"].clone();
    assert_eq!((variable.value, variable.secret_ref), (None, Some(format!("{id}.GIVEN"))));
    assert!(!fixture.text().contains("secret-value"), "{}", fixture.text());

    service.start(id).await.unwrap();
    let value = |name: &str| process_env(pid(&fixture.marker), name).unwrap();
    assert_eq!(value("TOKEN"), "first-secret-value");
    assert_eq!(value("GIVEN"), "typed-secret-value");

    // A new value restarts this server and no other; the same value restarts nothing.
    service.start(two).await.unwrap();
    let (before, bystander) = (pid(&fixture.marker), pid(&other.marker));
    let same = service.set_secret("api", Secret::from("first-secret-value")).await.unwrap();
    assert_eq!((same, pid(&fixture.marker)), (Vec::new(), before));
    let restarted = service.set_secret("api", Secret::from("other-secret-value")).await.unwrap();
    assert_eq!(restarted, [id]);
    eventually("the server has the new value", || {
        let servers = fixture.marker.survivors();
        servers.iter().any(|process| {
            process.pid != before
                && process.command_line.contains("scripted-server")
                && process_env(process.pid, "TOKEN").as_deref() == Some("other-secret-value")
        })
    })
    .await;
    until(&service, id, is_running).await;
    assert_eq!(pid(&other.marker), bystander, "the other server keeps running");
    assert!(is_running(&service.status(two)));

    service.delete(id).unwrap();
    let left = service.secrets().list().unwrap();
    assert_eq!(left, ["api", "other"], "its own secrets go with it");
    fixture.end(&service).await;
    other.marker.assert_no_processes_left(Duration::ZERO);
}

#[tokio::test]
async fn mc_t8_shutdown_all_stops_everything() {
    let fixture = Fixture::new();
    let service = fixture.open_as_daemon().await;
    let plans = [&[][..], &["--plan", "tree"][..], &["--plan", "ignore=term,eof"][..]];
    let ids: Vec<Uuid> = plans
        .iter()
        .enumerate()
        .map(|(n, args)| service.create(fixture.scripted(&format!("s{n}"), args)).unwrap())
        .collect();
    for id in &ids {
        until(&service, *id, is_running).await;
    }
    let started = Instant::now();
    service.shutdown_all().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "servers stop in parallel");
    fixture.marker.assert_no_processes_left(Duration::ZERO);
    assert!(ids.iter().all(|id| service.status(*id) == McpStatus::Stopped));
    // The service itself stays usable.
    service.start(ids[0]).await.unwrap();
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_t9_status_reflects_actual_state() {
    let fixture = Fixture::new();
    let service = fixture.open_as_daemon().await;
    assert_eq!(service.status(Uuid::new_v4()), McpStatus::Stopped);
    let (config, link) = fixture.linked("one", &["--plan", "initialize=late(300ms)"]);
    let mut events = service.subscribe();
    let id = service.create(config).unwrap();
    until(&service, id, |status| *status == McpStatus::Starting).await;
    until(&service, id, is_running).await;

    std::fs::remove_file(&link).unwrap();
    let process = Pid::from_raw(i32::try_from(pid(&fixture.marker)).unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    let crash = next_failure(&mut events).await;
    assert!(crash.reason().contains("was killed by signal 9"), "{crash}");
    assert!(!is_running(&service.status(id)), "the status changes before the event");
    until(&service, id, |status| matches!(status, McpStatus::Error { .. })).await;
    assert!(service.available_tools().is_empty());
    let not_found = McpStatus::Error { message: "Package not found".to_owned() };
    until(&service, id, |status| *status == not_found).await;

    symlink(program("scripted-server"), &link).unwrap();
    service.start(id).await.unwrap();
    assert!(is_running(&service.status(id)));

    let config = McpConfig { enabled: false, ..service.get(id).unwrap() };
    service.update(config).unwrap();
    until(&service, id, |status| *status == McpStatus::Disabled).await;
    eventually("nothing is left", || fixture.marker.survivors().is_empty()).await;
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_nt1_starting_a_disabled_server_is_a_conflict() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let config = McpConfig { enabled: false, ..fixture.scripted("one", &[]) };
    let id = service.create(config).unwrap();
    for refused in [service.start(id).await, service.restart(id).await] {
        assert_eq!(describe(&refused.unwrap_err()), "CONFLICT `one` is disabled (enabled)");
    }
    assert_eq!(service.status(id), McpStatus::Disabled);
    assert!(fixture.marker.survivors().is_empty());
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_nt2_calling_an_unknown_server_is_not_found() {
    let fixture = Fixture::new();
    let journal = fixture.path().join("journal");
    let service = fixture.open().await;
    let args = ["--journal", journal.to_str().unwrap()];
    let id = service.create(fixture.scripted("one", &args)).unwrap();
    service.start(id).await.unwrap();
    let unknown = Uuid::new_v4();
    let arguments = json!({ "text": "x", "nonce": "refused" });
    let refused = service.call_tool(unknown, "echo", &arguments).await.unwrap_err();
    assert_eq!(describe(&refused), format!("NOT_FOUND no server with the id `{unknown}` (id)"));
    // The call of a known server shows that the journal would have the other one.
    service.call_tool(id, "echo", &json!({ "text": "x", "nonce": "run" })).await.unwrap();
    let executed = Journal::read(&journal).unwrap();
    assert_eq!(
        (executed.executions("refused"), executed.executions("run")),
        (0, 1),
        "{executed:?}"
    );
    assert_eq!(executed.records.len(), 1, "{executed:?}");
    let every = [
        service.start(unknown).await,
        service.stop(unknown).await,
        service.restart(unknown).await,
        service.update(McpConfig { id: unknown, ..service.get(id).unwrap() }),
        service.delete(unknown),
    ];
    assert!(every.iter().all(|result| code(result) == Some(ErrorCode::NotFound)), "{every:?}");
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_nt3_creating_without_a_name_is_refused_and_nothing_saved() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let refused = service.create(fixture.scripted(" \t ", &[])).unwrap_err();
    assert_eq!(describe(&refused), "VALIDATION_ERROR Name is required (name)");
    let nothing = McpConfig::from_json(&json!({})).unwrap_err();
    let messages: Vec<&str> =
        nothing.details().iter().map(|detail| detail.message.as_str()).collect();
    assert_eq!(messages, ["Package identifier required", "Transport required", "Name is required"]);
    assert_eq!((service.list(), fixture.text().as_str()), (Vec::new(), ""));
    fixture.end(&service).await;
}

#[tokio::test]
async fn mc_nt4_a_required_variable_that_is_not_given_blocks_the_save() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let mut config = fixture.scripted("one", &[]);
    let given = EnvVarConfig { value: None, required: true, ..plain("API_KEY", "") };
    config.env_vars.insert("API_KEY".to_owned(), given);
    let refused = service.create(config.clone()).unwrap_err();
    let missing = "VALIDATION_ERROR Missing required credentials (env_vars.API_KEY)";
    assert_eq!(describe(&refused), missing);
    config.env_vars.insert("API_KEY".to_owned(), secret("API_KEY", "nowhere"));
    let refused = service.create(config.clone()).unwrap_err();
    let missing = "VALIDATION_ERROR Missing required credentials (env_vars.API_KEY.secret_ref)";
    assert_eq!(describe(&refused), missing);
    assert_eq!(refused.hint(), Some("store it with `toolrack secret set nowhere`"));
    assert_eq!((service.list(), fixture.text().as_str()), (Vec::new(), ""));

    // An invalid secret name is another error, and so is a value that cannot be stored.
    let mut invalid = config.clone();
    invalid.env_vars.insert("API_KEY".to_owned(), secret("API_KEY", "../passwd"));
    let refused = service.create(invalid.clone()).unwrap_err();
    assert_eq!(refused.details()[0].field.as_deref(), Some("env_vars.API_KEY.secret_ref"));
    assert_ne!(refused.details()[0].message, "Missing required credentials");
    let huge = EnvVarConfig { is_secret: true, ..plain("API_KEY", &"x".repeat(100_000)) };
    invalid.env_vars.insert("API_KEY".to_owned(), huge);
    let refused = service.create(invalid).unwrap_err();
    assert_eq!(refused.details()[0].field.as_deref(), Some("env_vars.API_KEY.value"));
    assert_eq!(service.secrets().list().unwrap(), Vec::<String>::new());

    // A start fails in the same way if the secret was removed.
    service.set_secret("nowhere", Secret::from("some-secret-value")).await.unwrap();
    let id = service.create(config).unwrap();
    service.remove_secret("nowhere").await.unwrap();
    let refused = service.start(id).await.unwrap_err();
    assert_eq!(describe(&refused), "VALIDATION_ERROR Missing required credentials");
    assert!(refused.hint().unwrap().contains("nowhere"), "{refused:?}");
    let message = "Missing required credentials".to_owned();
    assert_eq!(service.status(id), McpStatus::Error { message });
    fixture.end(&service).await;
}

fn code(outcome: &Result<(), ServiceError>) -> Option<ErrorCode> {
    outcome.as_ref().err().map(ServiceError::code)
}
