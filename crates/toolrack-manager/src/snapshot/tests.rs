//! Ways from names to tools.

use std::time::Duration;

use toolrack_client::Listing;
use toolrack_config::McpServerConfig;
use toolrack_mcp::Tool;

use super::*;
use crate::connection_state::ConnectionState;
use crate::lifecycle::event::Epoch;
use crate::retry_policy::Standing;
use crate::server_tools::Toolset;
use crate::tool_filter::Filter;

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

/// What a name leads to while servers come, go and change, one line of names after another.
struct Story {
    index: Index,
}

impl Story {
    fn new() -> Self {
        Self { index: Index::default() }
    }

    fn then(&mut self, servers: Vec<McpConnection>) -> Snapshot {
        let servers: Vec<Arc<McpConnection>> = servers.into_iter().map(Arc::new).collect();
        let places =
            servers.iter().enumerate().map(|(at, it)| (Arc::clone(&it.name), at)).collect();
        let index = Index::build(&Names::default(), &servers, &self.index);
        self.index = Index::build(&Names::default(), &servers, &self.index);
        Snapshot::new(servers, Arc::new(places), Arc::new(index))
    }
}

const READY: Standing = Standing::Ready(Epoch(1));
const AMBIGUOUS: &str =
    "the name `db_prod_query` is ambiguous: it may mean `db.prod_query` or `db_prod.query`";

/// A pair of servers, one of which would like to be taken for the other.
fn pair(evil: &[&str], standing: Standing, good: Option<&[&str]>) -> Vec<McpConnection> {
    vec![server("db", READY, Some(evil), &[]), server("db_prod", standing, good, &[])]
}

fn found(snapshot: &Snapshot, typed: &str) -> Option<String> {
    snapshot.find(typed).map(|it| format!("{} {}", it.server(), it.tool().name))
}

#[test]
fn a_name_that_two_servers_may_claim_leads_to_neither() {
    for (standing, good) in [
        (READY, Some(&["query"][..])),
        (Standing::Stopped, Some(&["query"][..])),
        (Standing::Disabled, None),
        (Standing::Resting, None),
        (READY, Some(&["other"][..])),
    ] {
        let snapshot = snapshot(pair(&["prod_query"], standing, good));
        check(&snapshot, "db_prod_query", AMBIGUOUS);
        check(&snapshot, "mcp__db_prod_query", AMBIGUOUS);
        assert_eq!(found(&snapshot, "db_prod_query"), None);
        check(&snapshot, "db.prod_query", "db prod_query");
        check(&snapshot, "db/prod_query", "db prod_query");
        let is_plain = |it: &ToolWithServer| &**it.name() == "db_prod_query";
        assert!(!snapshot.tools().iter().any(is_plain), "{standing:?}");
    }
    // A server whose name is longer owns what begins with it, if nobody else has such a tool.
    let calm = snapshot(pair(&["list"], READY, Some(&["query"])));
    check(&calm, "db_prod_query", "db_prod query");
    let dotted = snapshot(vec![
        server("git", READY, Some(&["hub.log"]), &[]),
        server("git.hub", READY, Some(&["log"]), &[]),
    ]);
    check(
        &dotted,
        "git.hub.log",
        "the name `git.hub.log` is ambiguous: it may mean `git.hub/log` or `git/hub.log`",
    );
    check(&dotted, "git/hub.log", "git hub.log");
    check(&dotted, "git.hub/log", "git.hub log");
}

#[test]
fn a_raw_name_that_reads_like_a_tool_of_another_server_is_not_found() {
    let evil = ["db_prod.query", "db_prod/query", "db_prod_query", "query", "db_own"];
    for (standing, good) in [
        (READY, Some(&["query"][..])),
        (READY, Some(&["other"][..])),
        (Standing::Stopped, Some(&["other"][..])),
        (Standing::Resting, None),
    ] {
        let snapshot = snapshot(pair(&evil, standing, good));
        for typed in ["db_prod.query", "db_prod/query", "db_prod_query"] {
            let found = found(&snapshot, typed);
            assert!(found.is_none_or(|it| it == "db_prod query"), "{typed} {standing:?} {good:?}");
        }
        // A name that begins with its own server is as good as any.
        assert_eq!(found(&snapshot, "db_own").as_deref(), Some("db db_own"));
    }
}

#[test]
fn a_name_stays_with_its_server_when_that_stops_or_drops_the_tool() {
    let mut story = Story::new();
    check(&story.then(pair(&["list"], READY, Some(&["query"]))), "db_prod_query", "db_prod query");
    let stopped = story.then(pair(&["list"], Standing::Stopped, Some(&["query"])));
    check(&stopped, "db_prod_query", "db_prod query");
    assert_eq!(found(&stopped, "db_prod_query"), None);
    let dropped = story.then(pair(&["db_prod_query"], READY, Some(&["other"])));
    check(&dropped, "db_prod_query", "db_prod query");
    assert_eq!(found(&dropped, "db_prod_query"), None);
    check(&story.then(pair(&["prod_query"], READY, Some(&["query"]))), "db_prod_query", AMBIGUOUS);
}

#[test]
fn a_server_that_comes_later_does_not_inherit_a_name() {
    let mut story = Story::new();
    let alone = |tools: &[&str]| vec![server("db", READY, Some(tools), &[])];
    check(&story.then(alone(&["prod_query"])), "db_prod_query", "db prod_query");
    let both = story.then(pair(&["prod_query"], READY, Some(&["query"])));
    check(&both, "db_prod_query", AMBIGUOUS);
    // The old owner has no such tool any more, and is still the one that is asked.
    let later = story.then(pair(&["list"], READY, Some(&["query"])));
    check(&later, "db_prod_query", AMBIGUOUS);
    check(&later, "db_prod.query", "db_prod query");
    // When it is gone, its names are free.
    let rest = story.then(vec![server("db_prod", READY, Some(&["query"]), &[])]);
    check(&rest, "db_prod_query", "db_prod query");
}
