//! `${VAR}` values come from the process's environment. A program of its own, because it changes that environment.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests and their helpers fail by panicking"
)]

use serde_json::{Value, json};
use toolrack_config::{EnvValue, McpServerConfig, McpTransport};
use toolrack_manager::{ConnectionState, McpManager};
use toolrack_testkit::program;

const VARIABLE: &str = "TOOLRACK_TEST_CHANGING";

#[expect(unsafe_code, reason = "the only way to change a variable; no other thread runs yet")]
fn set(value: &str) {
    // SAFETY: the only test of this program, on a runtime with one thread, and nothing else reads variables here.
    unsafe { std::env::set_var(VARIABLE, value) };
}

/// The value that the server's process has.
async fn value(manager: &McpManager) -> Value {
    let result = manager.call_tool("demo", "env", &json!({})).await.unwrap();
    let environment: Value = serde_json::from_str(&result.content).unwrap();
    environment["SEEN"].clone()
}

#[tokio::test]
async fn changed_variables_take_effect_at_the_next_connection() {
    let command = program("scripted-server").display().to_string();
    let mut config = McpServerConfig::stdio("demo", command, &[]);
    let McpTransport::Stdio { env, .. } = &mut config.transport else { panic!() };
    env.insert("SEEN".to_owned(), EnvValue::from(format!("<${{{VARIABLE}}}>")));
    let manager = McpManager::new(vec![config]);
    manager.connect_all().await.unwrap();
    let state = manager.server("demo").unwrap().state().clone();
    let ConnectionState::Failed(failure) = state else { panic!("{state:?}") };
    assert!(failure.to_string().contains(VARIABLE), "{failure}");
    // Short values, because longer ones are masked in results.
    for expected in ["1", "2"] {
        set(expected);
        manager.reconnect("demo").await.unwrap();
        assert_eq!(value(&manager).await, format!("<{expected}>"));
    }
    manager.close().await;
}
