//! A Spacebot-style config with three npm servers and a broken one: a config change restarts exactly the changed
//! servers, as their processes prove.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use toolrack::{ConnectionState, ManagerEvent, Toolrack};
use toolrack_testkit::{Marker, skipped};

use crate::fixture::{LONG, builder, connected, eventually, next, tools, write_file};

fn node() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/node")
}

fn entry(table: &str, name: &str, marker: &Marker, args: &str, env: &str) -> String {
    let (variable, value) = marker.env_var();
    format!(
        "[[{table}]]\nname = \"{name}\"\ntransport = \"stdio\"\ncommand = \"npx\"\n\
         args = [\"--no-install\", {args}]\ncwd = \"{}\"\nenv = {{ {variable} = \"{value}\"{env} }}\n\n",
        node().display()
    )
}

fn pids(marker: &Marker) -> BTreeSet<u32> {
    marker.survivors().into_iter().map(|process| process.pid).collect()
}

fn state(rack: &Toolrack, server: &str) -> ConnectionState {
    rack.manager().server(server).unwrap().state().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_servers_follow_the_config_file() {
    let test = "real_servers_follow_the_config_file";
    let programs = ["mcp-server-filesystem", "mcp-server-memory", "mcp-server-everything"];
    if let Some(missing) =
        programs.iter().find(|program| !node().join("node_modules/.bin").join(program).exists())
    {
        return skipped(test, &format!("{missing} is not installed; run `cargo xtask servers`"));
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let markers: [Marker; 4] = std::array::from_fn(|_| Marker::new());
    let [m_files, m_memory, m_everything, m_more] = &markers;
    let files = format!("\"mcp-server-filesystem\", \"{}\"", root.display());
    let files = entry("defaults.mcp", "filesystem", m_files, &files, "");
    let store = format!(", MEMORY_FILE_PATH = \"{}\"", root.join("memory.jsonl").display());
    let memory = entry("defaults.mcp", "memory", m_memory, "\"mcp-server-memory\"", &store);
    let broken = "[[defaults.mcp]]\nname = \"broken\"\ntransport = \"stdio\"\n\
                  command = \"no-such-program-anywhere\"\n\n";
    let agent = "[[agents]]\nid = \"main\"\n\n";
    let everything =
        entry("agents.mcp", "everything", m_everything, "\"mcp-server-everything\"", "");
    let path = root.join("spacebot.toml");
    write_file(&path, &format!("[defaults]\n\n{files}{memory}{broken}{agent}{everything}"));

    // The broken server fails soon after `open`, however slow the others are.
    let wait = Duration::from_millis(500);
    let rack = builder().file(&path).agent("main").ready_wait(wait).open().await.unwrap();
    eventually("the broken server has failed", || {
        matches!(state(&rack, "broken"), ConnectionState::Failed(_))
    })
    .await;
    let reason = state(&rack, "broken").to_string();
    assert!(reason.contains("`no-such-program-anywhere` not found in PATH"), "{reason}");
    eventually("the other servers connect", || {
        connected(&rack) == ["filesystem", "memory", "everything"]
    })
    .await;
    let listed = tools(&rack);
    for name in ["filesystem_read_text_file", "memory_search_nodes", "everything_echo"] {
        assert!(listed.iter().any(|tool| tool == name), "{name} in {listed:?}");
    }
    let listing =
        rack.call("filesystem_list_directory").args(json!({"path": root})).send().await.unwrap();
    assert!(listing.text().contains("spacebot.toml"), "{}", listing.text());
    let sum =
        rack.call(("everything", "get-sum")).args(json!({"a": 19, "b": 23})).send().await.unwrap();
    assert!(sum.text().contains("42"), "{}", sum.text());
    let before = markers.each_ref().map(pids);
    assert!(before[..3].iter().all(|pids| !pids.is_empty()));

    // Changes one server, removes one, adds one, and keeps one.
    let mut events = rack.events();
    let store = format!("{store}, MORE = \"1\"");
    let memory = entry("defaults.mcp", "memory", m_memory, "\"mcp-server-memory\"", &store);
    let more = entry("agents.mcp", "more", m_more, "\"mcp-server-everything\"", "");
    let draft = root.join("draft");
    write_file(&draft, &format!("[defaults]\n\n{files}{memory}{broken}{agent}{more}"));
    std::fs::rename(&draft, &path).unwrap();
    let plan = next(&mut events, |event| match event {
        ManagerEvent::ConfigApplied { plan } => Some(plan),
        ManagerEvent::ConfigRejected { message } => panic!("{message}"),
        _ => None,
    });
    let plan = plan.await;
    assert_eq!(plan.connect, ["more"]);
    assert_eq!(plan.disconnect, ["everything"]);
    assert_eq!(plan.reconnect, ["memory"]);
    assert_eq!(plan.keep, ["filesystem", "broken"]);
    eventually("the new servers connect", || connected(&rack) == ["filesystem", "memory", "more"])
        .await;
    let after = markers.each_ref().map(pids);
    assert_eq!(after[0], before[0], "filesystem was restarted");
    assert!(!after[1].is_empty() && after[1].is_disjoint(&before[1]), "memory was not replaced");
    assert!(after[2].is_empty(), "everything still runs");
    assert!(!after[3].is_empty(), "more does not run");
    let listed = tools(&rack);
    assert!(listed.iter().any(|tool| tool == "more_echo"), "{listed:?}");
    assert!(!listed.iter().any(|tool| tool.starts_with("everything_")), "{listed:?}");

    tokio::time::timeout(LONG, rack.shutdown()).await.unwrap();
    for marker in &markers {
        marker.assert_no_processes_left(Duration::ZERO);
    }
}
