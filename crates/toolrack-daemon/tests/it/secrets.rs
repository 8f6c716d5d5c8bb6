//! `/api/secrets`: values can be written but not read, and are redacted everywhere.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, check_problem};
use crate::http::{Response, encode_request, send};

/// A server that leaks its key in progress, log messages, lists, results and errors.
const LEAKY_SERVER: &str = r#"
key=$(printf %s "$KEY" | sed 's/"/\\"/g')
say() { printf '%s\n' "$1"; }
tell() { say '{"jsonrpc":"2.0","method":"notifications/'"$1"'","params":{'"$2"'}}'; }
while read -r line; do
    id=${line#*'"id":'}; id=${id%%[,\}]*}
    token=${line#*'"progressToken":'}; token=${token%%[,\}]*}
    case $line in
    *'"method":"initialize"'*)
        info='"serverInfo":{"name":"t","version":"1"},"instructions":"use '"$key"'"'
        end='"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},'"$info"'}' ;;
    *'"method":"tools/list"'*)
        tool='"description":"'"$key"'","inputSchema":{"type":"object"}'
        end='"result":{"tools":[{"name":"tell",'"$tool"'},{"name":"refuse",'"$tool"'}]}' ;;
    *'"name":"tell"'*)
        tell progress '"progressToken":'"$token"',"progress":1,"message":"with '"$key"'"'
        tell message '"level":"error","data":{"key":"'"$key"'"}'
        end='"result":{"content":[{"type":"text","text":"it is '"$key"'"}],"structuredContent":{"'"$key"'":1}}' ;;
    *'"name":"refuse"'*)
        end='"error":{"code":-32000,"message":"bad key '"$key"'","data":["'"$key"'"]}' ;;
    *'"id":'*) end='"error":{"code":-32601,"message":"no method"}' ;;
    *) continue ;;
    esac
    say '{"jsonrpc":"2.0","id":'"$id"','"$end"'}'
done
"#;

/// Sends a message to `/mcp`.
async fn message(client: &Client, session: Option<&str>, body: &Value) -> Response {
    let (host, bearer) = (client.addr.to_string(), format!("Bearer {}", client.token));
    let mut headers = vec![
        ("host", host.as_str()),
        ("authorization", &bearer),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    headers.extend(session.map(|id| ("mcp-session-id", id)));
    let (addr, bytes) = (client.addr, encode_request("POST", "/mcp", &headers, &body.to_string()));
    tokio::task::spawn_blocking(move || send(addr, &bytes)).await.unwrap().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a temporary file of the test")]
fn write_leaky_server(fixture: &Fixture) -> PathBuf {
    let script = fixture.dir.path().join("leaky.sh");
    std::fs::write(&script, LEAKY_SERVER).unwrap();
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_redacted_from_server_messages() {
    // The quote is escaped in JSON, and escaped twice in JSON within a string.
    const CANARY: &str = "can\"ary-5d1f0c7e9b";
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    client.request("PUT", "/api/secrets/key", Some(json!({ "value": CANARY }))).await;
    let mut leaky = fixture.scripted("leaky", &[]);
    leaky["package"]["identifier"] = json!("/bin/sh");
    leaky["config"]["args"] = json!([write_leaky_server(&fixture)]);
    for mut document in [fixture.scripted("one", &[]), leaky] {
        document["env_vars"]["KEY"] = json!({ "secret_ref": "key", "required": true });
        client.add(&document).await;
    }
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    }});
    let initialized = message(&client, None, &initialize).await;
    let session = initialized.header("mcp-session-id").unwrap().to_owned();
    let check = |body: &str, n_redacted: usize| {
        assert_eq!(body.matches("[secret key]").count(), n_redacted, "{body}");
        assert!(!body.contains("ary-5d1f"), "{body}");
    };
    check(&initialized.body, 1);
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    check(&message(&client, Some(&session), &list).await.body, 2);
    // Progress, log and both members of the result.
    for (tool, n_redacted) in [("one_env", 1), ("leaky_tell", 4), ("leaky_refuse", 2)] {
        let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
            "name": tool, "arguments": {}, "_meta": {"progressToken": "p"},
        }});
        check(&message(&client, Some(&session), &call).await.body, n_redacted);
        let called = client.request("POST", "/api/calls", Some(json!({ "tool": tool }))).await;
        assert!(!called.body.contains("ary-5d1f"), "{}", called.body);
    }
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_can_be_written_but_not_read() {
    const CANARY: &str = "canary-5d1f0c7e9b";
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let set = client.request("PUT", "/api/secrets/key", Some(json!({ "value": CANARY }))).await;
    assert_eq!((set.status, set.json()), (200, json!({ "restarted": [] })));
    assert_eq!(client.get("/api/secrets").await, json!({ "names": ["key"] }));
    let mut document = fixture.scripted("one", &[]);
    document["env_vars"]["KEY"] = json!({ "secret_ref": "key", "required": true });
    let id = client.add(&document).await;
    let result = client.post("/api/calls", json!({ "tool": "one_env" })).await.to_string();
    assert!(result.contains("KEY") && !result.contains(CANARY), "{result}");
    let changed =
        client.request("PUT", "/api/secrets/key", Some(json!({ "value": "other-value" }))).await;
    assert_eq!(changed.json(), json!({ "restarted": [id] }));
    client.wait_for_state(&id, "running").await;
    for path in ["/api/servers", "/api/config", "/api/calls", "/metrics", "/api/openapi.json"] {
        let response = client.request("GET", path, None).await;
        assert!(
            !response.body.contains(CANARY) && !response.body.contains("other-value"),
            "{path}"
        );
    }
    let deleted = client.request("DELETE", "/api/secrets/key", None).await;
    assert_eq!(deleted.json(), json!({ "restarted": [id] }));
    check_problem(
        &client.request("DELETE", "/api/secrets/key", None).await,
        404,
        "NOT_FOUND",
        None,
    );
    fixture.shutdown(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_secret_errors_do_not_repeat_the_value() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    for name in ["..%2fkey", "%2e%2e", ".hidden", "a%20b", "a%00"] {
        let path = format!("/api/secrets/{name}");
        let response = client.request("PUT", &path, Some(json!({ "value": "x1y2z3" }))).await;
        check_problem(&response, 422, "VALIDATION_ERROR", Some("name"));
        check_problem(
            &client.request("DELETE", &path, None).await,
            422,
            "VALIDATION_ERROR",
            Some("name"),
        );
    }
    for body in [json!({}), json!({ "value": 7 }), json!(["x1y2z3"]), json!({ "value": "" })] {
        let response = client.request("PUT", "/api/secrets/key", Some(body)).await;
        check_problem(&response, 422, "VALIDATION_ERROR", Some("value"));
        assert!(!response.body.contains("x1y2z3"));
    }
    assert_eq!(client.get("/api/secrets").await, json!({ "names": [] }));
    fixture.shutdown(daemon).await;
}

/// A file that another program has emptied.
#[tokio::test(flavor = "multi_thread")]
async fn empty_secret_can_be_set_again_and_deleted() {
    let fixture = Fixture::new();
    let (daemon, client) = fixture.start().await;
    let mut document = fixture.scripted("one", &[]);
    document["env_vars"]["KEY"] = json!({ "value": "hidden-value", "is_secret": true });
    let id = client.add(&document).await;
    let name = format!("{id}.KEY");
    let path = format!("/api/secrets/{name}");
    let file = fixture.home().secrets_dir().join(format!("mcp_{id}.key"));
    let empty = || toolrack_platform::replace(&file, b"{\"KEY\":\"\"}").unwrap();
    empty();
    let set = client.request("PUT", &path, Some(json!({ "value": "other-value" }))).await;
    assert_eq!(set.json(), json!({ "restarted": [id] }));
    client.wait_for_state(&id, "running").await;
    empty();
    let variable = json!({ "value": "new-value", "is_secret": true, "secret_ref": null });
    let change = json!({ "env_vars": { "KEY": variable } });
    let edited = client.request("PATCH", &format!("/api/servers/{id}"), Some(change)).await;
    assert_eq!(edited.status, 200, "{edited:?}");
    let stored = std::fs::read_to_string(&file).unwrap();
    assert_eq!(stored, "{\"KEY\":\"new-value\"}");
    empty();
    assert_eq!(client.request("DELETE", &path, None).await.status, 200);
    assert_eq!(client.get("/api/secrets").await, json!({ "names": [] }));
    fixture.shutdown(daemon).await;
}
