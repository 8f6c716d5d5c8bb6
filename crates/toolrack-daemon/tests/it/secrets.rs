//! `/api/secrets`: values go in and never out.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::http::{Answer, request, send};
use crate::stage::{Client, Stage, check_problem};

/// A server that tells its key in every way there is: as progress, in its log, in lists, results and refusals.
const TELLTALE: &str = r#"
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

/// Sends a message to `/mcp`, in this session if there is one.
async fn message(client: &Client, session: Option<&str>, body: &Value) -> Answer {
    let (host, key) = (client.addr.to_string(), format!("Bearer {}", client.token));
    let mut headers = vec![
        ("host", host.as_str()),
        ("authorization", &key),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    headers.extend(session.map(|it| ("mcp-session-id", it)));
    let (addr, bytes) = (client.addr, request("POST", "/mcp", &headers, &body.to_string()));
    tokio::task::spawn_blocking(move || send(addr, &bytes)).await.unwrap().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a file of the test, which nobody reads meanwhile")]
fn write_telltale(stage: &Stage) -> PathBuf {
    let script = stage.dir.path().join("telltale.sh");
    std::fs::write(&script, TELLTALE).unwrap();
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_sees_a_secret_that_a_server_tells() {
    // As JSON it is spelled in another way, and once more within a text.
    const CANARY: &str = "can\"ary-5d1f0c7e9b";
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    client.ask("PUT", "/api/secrets/key", Some(json!({ "value": CANARY }))).await;
    let mut telltale = stage.scripted("tale", &[]);
    telltale["package"]["identifier"] = json!("/bin/sh");
    telltale["config"]["args"] = json!([write_telltale(&stage)]);
    for mut document in [stage.scripted("one", &[]), telltale] {
        document["env_vars"]["KEY"] = json!({ "secret_ref": "key", "required": true });
        client.add(&document).await;
    }
    let greeting = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    }});
    let opened = message(&client, None, &greeting).await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let check = |said: &str, n_masked: usize| {
        assert_eq!(said.matches("[secret key]").count(), n_masked, "{said}");
        assert!(!said.contains("ary-5d1f"), "{said}");
    };
    check(&opened.body, 1);
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    check(&message(&client, Some(&session), &list).await.body, 2);
    // Progress, log and the two members of the result.
    for (tool, n_masked) in [("one_env", 1), ("tale_tell", 4), ("tale_refuse", 2)] {
        let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
            "name": tool, "arguments": {}, "_meta": {"progressToken": "p"},
        }});
        check(&message(&client, Some(&session), &call).await.body, n_masked);
        let called = client.ask("POST", "/api/calls", Some(json!({ "tool": tool }))).await;
        assert!(!called.body.contains("ary-5d1f"), "{}", called.body);
    }
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_in_and_never_out() {
    const CANARY: &str = "canary-5d1f0c7e9b";
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    let set = client.ask("PUT", "/api/secrets/key", Some(json!({ "value": CANARY }))).await;
    assert_eq!((set.status, set.json()), (200, json!({ "restarted": [] })));
    assert_eq!(client.get("/api/secrets").await, json!({ "names": ["key"] }));
    let mut document = stage.scripted("one", &[]);
    document["env_vars"]["KEY"] = json!({ "secret_ref": "key", "required": true });
    let id = client.add(&document).await;
    let told = client.post("/api/calls", json!({ "tool": "one_env" })).await.to_string();
    assert!(told.contains("KEY") && !told.contains(CANARY), "{told}");
    let changed =
        client.ask("PUT", "/api/secrets/key", Some(json!({ "value": "other-value" }))).await;
    assert_eq!(changed.json(), json!({ "restarted": [id] }));
    client.until_state(&id, "running").await;
    for path in ["/api/servers", "/api/config", "/api/calls", "/metrics", "/api/openapi.json"] {
        let answer = client.ask("GET", path, None).await;
        assert!(!answer.body.contains(CANARY) && !answer.body.contains("other-value"), "{path}");
    }
    let gone = client.ask("DELETE", "/api/secrets/key", None).await;
    assert_eq!(gone.json(), json!({ "restarted": [id] }));
    check_problem(&client.ask("DELETE", "/api/secrets/key", None).await, 404, "NOT_FOUND", None);
    stage.end(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_secret_is_refused_without_repeating_it() {
    let stage = Stage::new();
    let (daemon, client) = stage.start().await;
    for name in ["..%2fkey", "%2e%2e", ".hidden", "a%20b", "a%00"] {
        let path = format!("/api/secrets/{name}");
        let answer = client.ask("PUT", &path, Some(json!({ "value": "x1y2z3" }))).await;
        check_problem(&answer, 422, "VALIDATION_ERROR", Some("name"));
        check_problem(
            &client.ask("DELETE", &path, None).await,
            422,
            "VALIDATION_ERROR",
            Some("name"),
        );
    }
    for body in [json!({}), json!({ "value": 7 }), json!(["x1y2z3"]), json!({ "value": "" })] {
        let answer = client.ask("PUT", "/api/secrets/key", Some(body)).await;
        check_problem(&answer, 422, "VALIDATION_ERROR", Some("value"));
        assert!(!answer.body.contains("x1y2z3"));
    }
    assert_eq!(client.get("/api/secrets").await, json!({ "names": [] }));
    stage.end(daemon).await;
}
