//! A hundred servers, some of them broken; and calls beside a server that floods.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use toolrack_config::McpServerConfig;
use toolrack_manager::McpManager;
use toolrack_testkit::Marker;

use crate::fixture::{LONG, builder, eventually, scripted, tools};

/// Plans of broken servers.
const BROKEN: [&str; 4] = [
    "initialize=hang; discover=hang",
    "start=exit(1)",
    "initialize=half(1); discover=half(1)",
    "start=garbage(text,3)+exit(0)",
];

/// Each of four pages has about 20 KiB.
#[tokio::test]
async fn max_list_bytes_of_the_config_truncates_lists() {
    let marker = Marker::new();
    let args = ["--tools", "40", "--schema-bytes", "2KiB", "--page-size", "10"];
    let all = scripted("all", &marker, &args);
    let some = McpServerConfig { max_list_bytes: Some(50_000), ..scripted("some", &marker, &args) };
    let manager = builder().build(vec![all, some]);
    manager.connect_all().await.unwrap();
    let n_tools = |server: &str| {
        let prefix = format!("{server}_");
        tools(&manager).iter().filter(|name| name.starts_with(&prefix)).count()
    };
    eventually("both are connected", || n_tools("all") > 0 && n_tools("some") > 0).await;
    assert!(n_tools("all") >= 40, "{}", n_tools("all"));
    assert!((10..40).contains(&n_tools("some")), "{}", n_tools("some"));
    manager.close().await;
    marker.assert_no_processes_left(Duration::ZERO);
}

/// The goal is ten seconds on two idle cores; the test allows for a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eighty_servers_connect_beside_twenty_broken_ones() {
    let marker = Marker::new();
    let dir = tempfile::tempdir().unwrap();
    let configs: Vec<_> = (0..100)
        .map(|number| {
            let name = format!("s{number}");
            match number % 5 {
                0 => scripted(&name, &marker, &["--plan", BROKEN[number / 5 % BROKEN.len()]]),
                _ => scripted(&name, &marker, &[]),
            }
        })
        .collect();
    let manager =
        builder().tool_cache(dir.path()).ready_wait(Duration::ZERO).build(configs.clone());
    let began = Instant::now();
    manager.connect_all().await.unwrap();
    let n_connected = |manager: &McpManager| {
        manager.servers().iter().filter(|server| server.is_connected()).count()
    };
    eventually("eighty are connected", || n_connected(&manager) == 80).await;
    let took = began.elapsed();
    assert!(took < LONG, "{took:?}");
    eprintln!("80 of 100 servers ready after {took:?}");
    let n_tools = manager.all_tools().len();
    assert_eq!(n_tools % 80, 0);
    for server in manager.servers().iter().filter(|server| server.is_connected()) {
        let name = format!("{}_echo", server.name());
        assert_eq!(
            manager.call(&name).args(json!({"text": "x"})).send().await.unwrap().text(),
            "x"
        );
    }
    let files = || std::fs::read_dir(dir.path()).unwrap().count();
    eventually("the cache is written", || files() >= 1).await;
    manager.close().await;
    marker.assert_no_processes_left(Duration::from_secs(5));

    // The next run lists all tools from the cache, before the servers are connected.
    let manager = builder().tool_cache(dir.path()).ready_wait(Duration::ZERO).build(configs);
    manager.connect_all().await.unwrap();
    assert!(manager.all_tools().len() >= n_tools, "{} tools", manager.all_tools().len());
    drop(manager);
    eventually("nothing is left", || marker.survivors().is_empty()).await;
}

/// 99th percentile of the latency.
async fn p99(manager: &McpManager) -> Duration {
    let mut times = Vec::new();
    for _ in 0..300 {
        let began = Instant::now();
        let result = manager.call("good_echo").args(json!({"text": "x"})).send().await.unwrap();
        assert_eq!(result.text(), "x");
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flooding_server_does_not_fail_the_others() {
    let marker = Marker::new();
    let manager = builder().build(vec![
        scripted("good", &marker, &[]),
        scripted("flood", &marker, &["--plan", "call=stderr(64MiB)+notify(100000)+hang"]),
        scripted("stalled", &marker, &["--plan", "call=stopread+hang"]),
    ]);
    manager.connect_all().await.unwrap();
    let alone = p99(&manager).await;
    let big = json!({"text": "x".repeat(1 << 20)});
    let text = json!({"text": "x"});
    let beside_flood = tokio::select! {
        _ = manager.call("flood_echo").args(&text).send() => panic!("the flooding server responded"),
        _ = manager.call("stalled_echo").args(&big).send() => panic!("the server that does not read responded"),
        beside_flood = p99(&manager) => beside_flood,
    };
    eprintln!("p99 of calls: {alone:?} alone, {beside_flood:?} beside a flood");
    manager.close().await;
    marker.assert_no_processes_left(Duration::from_secs(5));
}
