//! Ways from names to tools.

use std::time::Duration;

use toolrack_client::Listing;
use toolrack_config::McpServerConfig;
use toolrack_mcp::Tool;

use super::*;
use crate::filter::Filter;
use crate::life::event::Epoch;
use crate::route::Standing;
use crate::state::ConnectionState;
use crate::toolset::Toolset;

fn tool(name: &str) -> Tool {
    let json = serde_json::json!({"name": name, "inputSchema": {"type": "object"}});
    serde_json::from_value(json).unwrap()
}

fn server(name: &str, standing: Standing, tools: Option<&[&str]>, deny: &[&str]) -> McpConnection {
    let deny: Vec<String> = deny.iter().map(|it| (*it).to_owned()).collect();
    let filter = Filter::new(&[], &deny);
    let listing = tools.map(|tools| {
        let items = tools.iter().map(|name| tool(name)).collect();
        Arc::new(Listing { items, ..Listing::default() })
    });
    McpConnection {
        name: name.into(),
        config: Arc::new(McpServerConfig::stdio(name, "true", &[])),
        state: ConnectionState::Disconnected,
        phase: None,
        standing,
        retry_at: None,
        is_crash_looping: false,
        launch: None,
        link: None,
        toolset: Arc::new(Toolset::new(listing, &filter)),
        filter: Arc::new(filter),
    }
}

fn snapshot(servers: Vec<McpConnection>) -> Snapshot {
    let servers: Vec<Arc<McpConnection>> = servers.into_iter().map(Arc::new).collect();
    let places = servers.iter().enumerate().map(|(at, it)| (Arc::clone(&it.name), at)).collect();
    let index = Index::build(&Names::default(), &servers, &Index::default());
    Snapshot::new(servers, Arc::new(places), Arc::new(index))
}

fn example() -> Snapshot {
    let ready = Standing::Ready(Epoch(1));
    snapshot(vec![
        server("fs", ready, Some(&["read_file", "write_file", "a.b/c"]), &["write_*"]),
        server("my.git", ready, Some(&["log", "read_file"]), &[]),
        server("new", Standing::Resting, None, &[]),
        server("off", Standing::Disabled, Some(&["x"]), &[]),
    ])
}

#[track_caller]
fn check(snapshot: &Snapshot, typed: &str, expected: &str) {
    let found = match snapshot.resolve(typed) {
        Ok(target) => format!("{} {}", target.connection.name(), target.tool),
        Err(error) => error.to_string(),
    };
    assert_eq!(found, expected, "{typed}");
}

#[test]
fn a_tool_is_found_however_it_is_typed() {
    let snapshot = example();
    check(&snapshot, "fs_read_file", "fs read_file");
    check(&snapshot, "fs.read_file", "fs read_file");
    check(&snapshot, "fs/read_file", "fs read_file");
    check(&snapshot, "fs__read_file", "fs read_file");
    check(&snapshot, "mcp__fs__read_file", "fs read_file");
    check(&snapshot, "fs.a.b/c", "fs a.b/c");
    check(&snapshot, "fs_a_b_c", "fs a.b/c");
    check(&snapshot, "my.git.log", "my.git log");
    check(&snapshot, "my.git/log", "my.git log");
    check(&snapshot, "my_git_log", "my.git log");
    // Its tools are not known yet, so it has to be asked.
    check(&snapshot, "new.anything", "new anything");
    // It is there, and a rule keeps it out; who calls it is told which.
    check(&snapshot, "fs.write_file", "fs write_file");
    check(&snapshot, "fs_write_file", "fs write_file");
}

#[test]
fn a_name_that_does_not_exist_brings_suggestions() {
    let snapshot = example();
    check(&snapshot, "fs_read_fil", "there is no tool `fs_read_fil`, but there is `fs_read_file`");
    check(&snapshot, "completely-different", "there is no tool `completely-different`");
    let server = snapshot.server("my.gti").unwrap_err();
    assert_eq!(server.to_string(), "there is no server `my.gti`, but there is `my.git`");
}

#[test]
fn a_raw_name_finds_the_first_server_that_has_it() {
    let snapshot = example();
    let find = |typed: &str| snapshot.find(typed).map(|it| it.name().as_ref().to_owned());
    assert_eq!(find("read_file").as_deref(), Some("fs_read_file"));
    assert_eq!(find("log").as_deref(), Some("my_git_log"));
    assert_eq!(find("my.git/read_file").as_deref(), Some("my_git_read_file"));
    assert_eq!(find("write_file"), None);
    assert_eq!(find("fs.write_file"), None);
    assert_eq!(find("x"), None);
}

#[test]
fn only_what_is_wanted_and_allowed_is_listed() {
    let names: Vec<Arc<str>> = example().tools().iter().map(|it| Arc::clone(it.name())).collect();
    let names: Vec<&str> = names.iter().map(|it| &**it).collect();
    assert_eq!(names, ["fs_read_file", "fs_a_b_c", "my_git_log", "my_git_read_file"]);
}

/// The list of a hundred servers with fifty tools each.
#[test]
fn a_long_list_is_given_at_once() {
    let tools: Vec<String> = (0..50).map(|it| format!("tool_{it}")).collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let ready = Standing::Ready(Epoch(1));
    let servers = (0..100).map(|it| server(&format!("server-{it}"), ready, Some(&tools), &[]));
    let snapshot = snapshot(servers.collect());
    let started = tokio::time::Instant::now();
    for _ in 0..100 {
        assert_eq!(Arc::clone(snapshot.tools()).len(), 5000);
    }
    assert!(started.elapsed() < Duration::from_millis(100), "{:?}", started.elapsed());
}
