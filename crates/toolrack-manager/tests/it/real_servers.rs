//! A config file with real npm servers and a broken one, changed while they run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolrack_config::{McpServerConfig, read};
use toolrack_manager::{ConnectionState, ManagerEvent, McpManager};
use toolrack_testkit::{Marker, skipped};

use crate::fixture::{LONG, builder, eventually, next, put, state, tools};

fn node() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/node")
}

fn entry(name: &str, marker: &Marker, args: &str, env: &str) -> String {
    let (variable, value) = marker.env_var();
    format!(
        "[[defaults.mcp]]\nname = \"{name}\"\ntransport = \"stdio\"\ncommand = \"npx\"\n\
         args = [\"--no-install\", {args}]\ncwd = \"{}\"\nenv = {{ {variable} = \"{value}\"{env} }}\n\n",
        node().display()
    )
}

pub(crate) fn parse(path: &Path, text: &str) -> Result<Vec<McpServerConfig>, String> {
    let name = path.display().to_string();
    match read(&name, text).accept() {
        Ok((file, _warnings)) => Ok(file.resolve("main")),
        Err(faults) => Err(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
    }
}

fn pids(marker: &Marker) -> BTreeSet<u32> {
    marker.survivors().into_iter().map(|process| process.pid).collect()
}

fn is_connected(manager: &McpManager, name: &str) -> bool {
    manager.server(name).is_ok_and(|server| server.is_connected())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn config_file_of_real_servers_is_watched() {
    let test = "config_file_of_real_servers_is_watched";
    let programs = ["mcp-server-filesystem", "mcp-server-memory", "mcp-server-everything"];
    if let Some(missing) =
        programs.iter().find(|name| !node().join("node_modules/.bin").join(name).exists())
    {
        return skipped(test, &format!("{missing} is not installed; run `cargo xtask servers`"));
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let markers: Vec<Marker> = (0..4).map(|_| Marker::new()).collect();
    let files = entry(
        "filesystem",
        &markers[0],
        &format!("\"mcp-server-filesystem\", \"{}\"", root.display()),
        "",
    );
    let memory_file = format!(", MEMORY_FILE_PATH = \"{}\"", root.join("memory.jsonl").display());
    let memory = entry("memory", &markers[1], "\"mcp-server-memory\"", &memory_file);
    let everything = entry("everything", &markers[2], "\"mcp-server-everything\"", "");
    let broken = "[[defaults.mcp]]\nname = \"broken\"\ntransport = \"stdio\"\n\
                  command = \"no-such-program-anywhere\"\n\n";
    let path = root.join("toolrack.toml");
    let first = format!("{files}{memory}{everything}{broken}");
    put(&path, &first);

    let servers = parse(&path, &first).unwrap();
    let manager = builder().build(servers.clone());
    let mut events = manager.subscribe();
    manager.connect_all().await.unwrap();
    assert!(matches!(state(&manager, "broken"), ConnectionState::Failed(_)));
    for name in ["filesystem", "memory", "everything"] {
        eventually(name, || is_connected(&manager, name)).await;
    }
    let listed = tools(&manager);
    for name in ["filesystem_read_text_file", "memory_search_nodes", "everything_echo"] {
        assert!(listed.iter().any(|tool| tool == name), "{name} in {listed:?}");
    }
    let sum =
        manager.call("everything.get-sum").args(json!({"a": 19, "b": 23})).send().await.unwrap();
    assert!(sum.text().contains("42"), "{}", sum.text());
    let before: Vec<BTreeSet<u32>> = markers.iter().map(pids).collect();
    assert!(before[..3].iter().all(|pids| !pids.is_empty()));

    // Remove one, change one, add one; one stays as it is.
    let _watch = manager.watch_file(&path, servers, Arc::new(parse)).unwrap();
    let changed = entry(
        "memory",
        &markers[1],
        "\"mcp-server-memory\"",
        &format!("{memory_file}, MORE = \"1\""),
    );
    let added = entry("more", &markers[3], "\"mcp-server-everything\"", "");
    let draft = root.join("draft");
    put(&draft, &format!("{files}{changed}{added}{broken}"));
    std::fs::rename(&draft, &path).unwrap();
    let plan = next(&mut events, |event| match event {
        ManagerEvent::ConfigApplied { plan } => Some(plan),
        _ => None,
    });
    let plan = plan.await;
    let done = (plan.connect, plan.disconnect, plan.reconnect, plan.keep);
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let expected = (
        owned(&["more"]),
        owned(&["everything"]),
        owned(&["memory"]),
        owned(&["filesystem", "broken"]),
    );
    assert_eq!(done, expected);
    eventually("the new server is connected", || is_connected(&manager, "more")).await;
    eventually("the changed server is connected", || is_connected(&manager, "memory")).await;
    let after: Vec<BTreeSet<u32>> = markers.iter().map(pids).collect();
    assert_eq!(after[0], before[0], "filesystem was restarted");
    assert!(after[1].is_disjoint(&before[1]) && !after[1].is_empty(), "memory was not replaced");
    assert!(after[2].is_empty(), "everything still runs");
    assert!(!tools(&manager).iter().any(|tool| tool.starts_with("everything_")));
    tokio::time::timeout(LONG, manager.close()).await.unwrap();
    for marker in &markers {
        marker.assert_no_processes_left(Duration::ZERO);
    }
}
