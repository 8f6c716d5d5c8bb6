//! A network that delays, cuts, slows, corrupts, resets and swallows: every call has one outcome in time, nothing
//! storms, and the line is well again when the network is.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;
use toolrack_client::{CallOptions, EraChoice, McpClient};
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_testkit::proxy::{ChaosProxy, ProxyPlan};
use toolrack_testkit::{HttpServer, HttpServerKind};

const N_CALLS: usize = 40;
const DEADLINE: Duration = Duration::from_secs(1);
/// What a deadline may be late on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);
const SEED: u64 = 7;

const PLANS: [&str; 9] = [
    "delay(20ms,30ms)",
    "slow(20KiB)",
    "cut(0-2000)",
    "reset(0-2000)",
    "corrupt(0-2000)",
    "hole",
    "refuse",
    "delay(5ms); cut(100-5000); chance(50)",
    "reset(50-500); chance(30)",
];

async fn check(shape: &str, reply: &str) {
    let kind = HttpServerKind::scripted(&["--shape", shape, "--reply", reply]);
    let server = HttpServer::start(kind).unwrap();
    let healthy = ProxyPlan::default();
    let proxy = ChaosProxy::start(server.address(), healthy, SEED).unwrap();
    let path = if shape == "sse" { "sse" } else { "mcp" };
    let definition = HttpServerDef::new(format!("http://{}/{path}", proxy.address()));
    let builder = McpClient::builder("far").era(EraChoice::Auto);
    let client = builder.connect_http(definition, HttpOptions::default()).await.unwrap();
    for plan in PLANS {
        let what = format!("{shape}, {reply}, {plan}");
        proxy.set_plan(ProxyPlan::parse(plan).unwrap()).unwrap();
        // Connections that were there before are as ill as new ones.
        proxy.reset_all();
        let before = proxy.n_connections();
        let options = CallOptions {
            timeout: Some(DEADLINE),
            total_timeout: Some(DEADLINE),
            ..CallOptions::default()
        };
        let calls = (0..N_CALLS).map(async |number| {
            let text = format!("{number}-{}", "x".repeat(number * 10));
            let begun = Instant::now();
            let arguments = json!({"text": text});
            let outcome = client.call_tool_full("echo", &arguments, &options).await;
            assert!(begun.elapsed() < DEADLINE + SLACK, "{what}: {:?}", begun.elapsed());
            // An answer is the right one. A corrupted one may be read only if it is not ours to judge.
            if let (Ok(result), false) = (&outcome, plan.contains("corrupt")) {
                let shown = format!("{result:?}");
                assert!(shown.contains(&text), "{what}: {shown}");
            }
        });
        join_all(calls).await;
        let n_connections = proxy.n_connections() - before;
        // Each call may need a connection and a second one, and the line has a few of its own.
        assert!(n_connections <= 3 * N_CALLS as u64 + 20, "{what}: {n_connections} connections");
        proxy.heal().unwrap();
        proxy.reset_all();
        let begun = Instant::now();
        while client.call_tool("echo", &json!({"text": "well"})).await.is_err() {
            assert!(begun.elapsed() < Duration::from_mins(1), "{what}: not well again");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    client.shutdown().await;
}

#[tokio::test]
async fn a_stateless_line_survives_every_network() {
    check("stateless", "json").await;
    check("stateless", "sse").await;
}

#[tokio::test]
async fn a_line_with_a_session_survives_every_network() {
    check("session", "json").await;
    check("session", "sse").await;
}

#[tokio::test]
async fn a_line_with_two_endpoints_survives_every_network() {
    check("sse", "sse").await;
}
