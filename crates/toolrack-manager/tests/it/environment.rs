//! `${…}` values of a manager that was made with `McpManager::new`.

use std::fs::File;
use std::io::Write as _;

use serde_json::{Value, json};
use toolrack_config::{EnvValue, McpServerConfig, McpTransport};
use toolrack_manager::{ConnectionState, McpManager};
use toolrack_testkit::program;

fn server(name: &str, seen: &str) -> McpServerConfig {
    let command = program("scripted-server").display().to_string();
    let mut config = McpServerConfig::stdio(name, command, &[]);
    let McpTransport::Stdio { env, .. } = &mut config.transport else { panic!() };
    env.insert("SEEN".to_owned(), EnvValue::from(seen));
    config
}

#[tokio::test]
async fn variables_come_from_this_process() {
    let known = server("known", "${PATH}");
    let unknown = server("unknown", "${TOOLRACK_NO_SUCH_VARIABLE}");
    let manager = McpManager::new(vec![known, unknown]);
    manager.connect_all().await.unwrap();
    assert!(manager.server("known").unwrap().is_connected());
    let state = manager.server("unknown").unwrap().state().clone();
    let ConnectionState::Failed(failure) = state else { panic!("{state:?}") };
    assert!(failure.to_string().contains("TOOLRACK_NO_SUCH_VARIABLE"), "{failure}");
    manager.close().await;
}

#[tokio::test]
async fn changed_values_take_effect_at_the_next_connection() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("value");
    let manager = McpManager::new(vec![server("demo", &format!("<${{file:{}}}>", file.display()))]);
    // Short values, because longer ones are masked in results.
    for value in ["1", "2"] {
        File::create(&file).unwrap().write_all(value.as_bytes()).unwrap();
        manager.reconnect("demo").await.unwrap();
        let result = manager.call_tool("demo", "env", &json!({})).await.unwrap();
        let environment: Value = serde_json::from_str(&result.content).unwrap();
        assert_eq!(environment["SEEN"], format!("<{value}>"));
    }
    manager.close().await;
}

/// Cargo sets `CARGO_PKG_NAME` for this process, and no server inherits it.
#[tokio::test]
async fn failure_names_a_variable_that_was_withheld() {
    let script = "echo 'Error: CARGO_PKG_NAME is required' >&2; exit 1";
    let config = McpServerConfig::stdio("demo", "sh", &["-c", script]);
    let mut passed = config.clone();
    passed.name = "passed".to_owned();
    let McpTransport::Stdio { env, .. } = &mut passed.transport else { panic!() };
    env.insert("CARGO_PKG_NAME".to_owned(), EnvValue::from("${CARGO_PKG_NAME}"));
    let inheriting =
        McpServerConfig { name: "inheriting".to_owned(), inherit_env: true, ..config.clone() };
    let manager = McpManager::new(vec![config, passed, inheriting]);
    manager.connect_all().await.unwrap();
    let hint = |name: &str| {
        let server = manager.server(name).unwrap();
        server.state().failure().unwrap().hint().unwrap_or_default().to_owned()
    };
    let expected = "`CARGO_PKG_NAME`, which the server names, is set here but not passed to it; add `env = { \
                    CARGO_PKG_NAME = \"${CARGO_PKG_NAME}\" }` to its entry";
    assert!(hint("demo").starts_with(expected), "{}", hint("demo"));
    assert!(hint("demo").contains("is required"), "{}", hint("demo"));
    for name in ["passed", "inheriting"] {
        assert!(!hint(name).contains("not passed"), "{}", hint(name));
    }
    manager.close().await;
}
