//! Network faults (delay, cut, slow, corrupt, reset, black hole): every call ends once and on time, there is no
//! connection storm, and the transport recovers with the network.

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
/// Tolerance for deadlines on a busy machine.
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
        let case = format!("{shape}, {reply}, {plan}");
        proxy.set_plan(ProxyPlan::parse(plan).unwrap()).unwrap();
        // Existing connections must not stay healthy.
        proxy.reset_all();
        let before = proxy.n_connections();
        let options = CallOptions {
            timeout: Some(DEADLINE),
            total_timeout: Some(DEADLINE),
            ..CallOptions::default()
        };
        let calls = (0..N_CALLS).map(async |number| {
            let text = format!("{number}-{}", "x".repeat(number * 10));
            let started = Instant::now();
            let arguments = json!({"text": text});
            let outcome = client.call_tool_full("echo", &arguments, &options).await;
            assert!(started.elapsed() < DEADLINE + SLACK, "{case}: {:?}", started.elapsed());
            // A response belongs to its call. Only a corrupted response may have other content.
            if let (Ok(result), false) = (&outcome, plan.contains("corrupt")) {
                let shown = format!("{result:?}");
                assert!(shown.contains(&text), "{case}: {shown}");
            }
        });
        join_all(calls).await;
        let n_connections = proxy.n_connections() - before;
        // A call may need two connections, and the transport has a few of its own.
        assert!(n_connections <= 3 * N_CALLS as u64 + 20, "{case}: {n_connections} connections");
        proxy.heal().unwrap();
        proxy.reset_all();
        let started = Instant::now();
        while client.call_tool("echo", &json!({"text": "well"})).await.is_err() {
            assert!(started.elapsed() < Duration::from_mins(1), "{case}: not well again");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    client.shutdown().await;
}

#[tokio::test]
async fn stateless_http_survives_network_faults() {
    check("stateless", "json").await;
    check("stateless", "sse").await;
}

#[tokio::test]
async fn http_session_survives_network_faults() {
    check("session", "json").await;
    check("session", "sse").await;
}

#[tokio::test]
async fn http_sse_survives_network_faults() {
    check("sse", "sse").await;
}
