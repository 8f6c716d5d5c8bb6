//! `/api/agents/mcp`: the servers of every agent, as founding document 002 describes it.

use serde_json::{Value, json};
use toolrack_testkit::program;

use crate::fixture::{Client, Fixture, check_problem, eventually};

/// The config of the document: a default server, and an agent with a server of its own.
fn config(fixture: &Fixture) -> String {
    let (variable, value) = fixture.marker.env_var();
    let scripted = program("scripted-server").display().to_string();
    let server = |table: &str, name: &str, command: &str| {
        format!(
            "[[{table}]]\nname = \"{name}\"\ntransport = \"stdio\"\ncommand = \"{command}\"\n\
             env = {{ {variable} = \"{value}\" }}\n"
        )
    };
    [
        server("defaults.mcp", "filesystem", &scripted),
        "[[agents]]\nid = \"main\"\n".to_owned(),
        server("agents.mcp", "postgres", &scripted),
        server("agents.mcp", "broken", "/no/such/program"),
    ]
    .concat()
}

/// Names and connections of an agent's servers.
async fn connections(client: &Client, query: &str) -> Vec<(String, String)> {
    let listed = client.get(&format!("/api/agents/mcp{query}")).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let servers = listed["servers"].as_array().unwrap();
    servers.iter().map(|server| (text(&server["name"]), text(&server["connection"]))).collect()
}

fn is(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_each_agent_are_listed_and_reconnected() {
    let fixture = Fixture::new();
    std::fs::File::create(fixture.home().config_file())
        .and_then(|mut file| std::io::Write::write_all(&mut file, config(&fixture).as_bytes()))
        .unwrap();
    let (daemon, client) = fixture.start().await;
    eventually("the default server", async || {
        connections(&client, "").await == is(&[("filesystem", "Connected")])
    })
    .await;
    // Listing starts nothing.
    let inactive =
        [("filesystem", "Disconnected"), ("postgres", "Disconnected"), ("broken", "Disconnected")];
    for _ in 0..2 {
        assert_eq!(connections(&client, "?agent=main").await, is(&inactive));
    }
    // Reconnecting a server of the agent starts them.
    let reconnect = async |body: Value| client.post("/api/agents/mcp/reconnect", body).await;
    let first = reconnect(json!({ "agent": "main", "name": "postgres" })).await;
    assert_eq!(first["status"]["state"], json!("running"), "{first}");
    let active = [("filesystem", "Connected"), ("postgres", "Connected"), ("broken", "Failed")];
    eventually("the agent's servers", async || {
        connections(&client, "?agent=main").await == is(&active)
    })
    .await;
    let second = reconnect(json!({ "agent": "main", "name": "postgres" })).await;
    assert!(second["launch"].as_u64() > first["launch"].as_u64(), "{first} {second}");
    assert_ne!(second["process"], first["process"], "the process is a new one");
    // The other agents' servers are left alone.
    assert_eq!(connections(&client, "").await, is(&[("filesystem", "Connected")]));
    let listed = client.get("/api/agents/mcp?agent=main").await;
    assert_eq!(listed["agent"], json!("main"));
    let broken = &listed["servers"][2];
    assert!(broken["reason"].as_str().unwrap().contains("/no/such/program"), "{broken}");
    assert_eq!(broken["status"]["state"], json!("error"));
    assert_eq!(listed["servers"][1]["reason"], Value::Null);

    let before = client.get("/api/agents/mcp").await["servers"][0]["launch"].as_u64();
    let after = reconnect(json!({ "name": "filesystem" })).await["launch"].as_u64();
    assert!(after > before, "{before:?} {after:?}");
    let unknown = client.request("GET", "/api/agents/mcp?agent=nobody", None).await;
    check_problem(&unknown, 404, "NOT_FOUND", None);
    for body in [json!({ "agent": "nobody", "name": "x" }), json!({ "agent": "main", "name": "x" })]
    {
        let unknown = client.request("POST", "/api/agents/mcp/reconnect", Some(body)).await;
        check_problem(&unknown, 404, "NOT_FOUND", None);
    }
    fixture.shutdown(daemon).await;
}
