//! Resolution of tool names.

use std::time::Duration;

use toolrack_config::StartMode;

use super::*;
use crate::lifecycle::{Event, Policy};

fn tool(name: &str) -> Tool {
    let json = serde_json::json!({"name": name, "inputSchema": {"type": "object"}});
    serde_json::from_value(json).unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Availability {
    Ready,
    Idle,
    Stopped,
    Disabled,
}

impl Availability {
    fn lifecycle(self) -> Lifecycle {
        let policy = Policy { enabled: self != Self::Disabled, start: StartMode::Lazy };
        let mut lifecycle = Lifecycle::new(policy);
        let events = match self {
            Self::Ready => vec![Event::Start, Event::Opened(Epoch(1))],
            Self::Idle | Self::Disabled => vec![Event::ConnectAll { are_tools_known: true }],
            Self::Stopped => Vec::new(),
        };
        for event in events {
            lifecycle.step(event, Instant::now(), 1.0);
        }
        lifecycle
    }
}

fn server(
    name: &str,
    availability: Availability,
    tools: Option<&[&str]>,
    deny: &[&str],
) -> McpConnection {
    let deny: Vec<String> = deny.iter().map(|pattern| (*pattern).to_owned()).collect();
    let config = McpServerConfig { deny, ..McpServerConfig::stdio(name, "true", &[]) };
    let filter = ToolFilter::new(&config, Vec::new());
    let list = tools.map(|tools| {
        let items = tools.iter().map(|name| tool(name)).collect();
        Arc::new(List { items, ..List::default() })
    });
    McpConnection {
        name: name.into(),
        config: Arc::new(config),
        lifecycle: availability.lifecycle(),
        phase: ConnectPhase::default(),
        active: None,
        tools: Arc::new(ServerTools::new(list, &filter)),
        filter,
    }
}

/// Snapshots of servers that are added, removed and changed, with the name reservations of the previous ones.
#[derive(Default)]
struct History {
    index: Arc<Index>,
}

impl History {
    fn next(&mut self, servers: Vec<McpConnection>) -> Snapshot {
        let servers: Vec<Arc<McpConnection>> = servers.into_iter().map(Arc::new).collect();
        self.index = Arc::new(Index::build(&ToolNaming::default(), &servers, &self.index));
        Snapshot { servers, index: Arc::clone(&self.index) }
    }
}

fn snapshot(servers: Vec<McpConnection>) -> Snapshot {
    History::default().next(servers)
}

fn example() -> Snapshot {
    snapshot(vec![
        server("fs", READY, Some(&["read_file", "write_file", "a.b/c"]), &["write_*"]),
        server("my.git", READY, Some(&["log", "read_file"]), &[]),
        server("new", Availability::Idle, None, &[]),
        server("off", Availability::Disabled, Some(&["x"]), &[]),
    ])
}

#[track_caller]
fn check(snapshot: &Snapshot, name: &str, expected: &str) {
    let resolved = match snapshot.resolve(name) {
        Ok(resolved) => format!("{} {}", resolved.connection.name(), resolved.tool),
        Err(error) => error.to_string(),
    };
    assert_eq!(resolved, expected, "{name}");
}

#[test]
fn every_notation_resolves() {
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
    // The tools of this server are not known yet, so the call has to go there.
    check(&snapshot, "new.anything", "new anything");
    // A denied tool resolves, so that the call can fail with the rule.
    check(&snapshot, "fs.write_file", "fs write_file");
    check(&snapshot, "fs_write_file", "fs write_file");
}

#[test]
fn unknown_name_has_suggestions() {
    let snapshot = example();
    check(&snapshot, "fs_read_fil", "no tool named `fs_read_fil`; did you mean `fs_read_file`?");
    check(&snapshot, "completely-different", "no tool named `completely-different`");
    let error = snapshot.server("my.gti").unwrap_err();
    assert_eq!(error.to_string(), "no server named `my.gti`; did you mean `my.git`?");
}

#[test]
fn bare_tool_name_finds_the_first_server() {
    let snapshot = example();
    let find = |name: &str| snapshot.find(name).map(|tool| tool.name().as_ref().to_owned());
    assert_eq!(find("read_file").as_deref(), Some("fs_read_file"));
    assert_eq!(find("log").as_deref(), Some("my_git_log"));
    assert_eq!(find("my.git/read_file").as_deref(), Some("my_git_read_file"));
    assert_eq!(find("write_file"), None);
    assert_eq!(find("fs.write_file"), None);
    assert_eq!(find("x"), None);
}

#[test]
fn only_offered_and_allowed_tools_are_listed() {
    let snapshot = example();
    let names: Vec<&str> = snapshot.index.listed.iter().map(|tool| &**tool.name()).collect();
    assert_eq!(names, ["fs_read_file", "fs_a_b_c", "my_git_log", "my_git_read_file"]);
}

/// A hundred servers with fifty tools each.
#[test]
fn long_tool_list_is_not_copied() {
    let tools: Vec<String> = (0..50).map(|number| format!("tool_{number}")).collect();
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let servers =
        (0..100).map(|number| server(&format!("server-{number}"), READY, Some(&tools), &[]));
    let snapshot = snapshot(servers.collect());
    let started = Instant::now();
    for _ in 0..100 {
        assert_eq!(Arc::clone(&snapshot.index.listed).len(), 5000);
    }
    assert!(started.elapsed() < Duration::from_millis(100), "{:?}", started.elapsed());
}

const READY: Availability = Availability::Ready;
const AMBIGUOUS: &str =
    "tool name `db_prod_query` is ambiguous: it matches `db.prod_query` and `db_prod.query`";

/// Two servers, one of which tries to pass for the other.
fn pair(evil: &[&str], availability: Availability, good: Option<&[&str]>) -> Vec<McpConnection> {
    vec![server("db", READY, Some(evil), &[]), server("db_prod", availability, good, &[])]
}

fn found(snapshot: &Snapshot, name: &str) -> Option<String> {
    snapshot.find(name).map(|tool| format!("{} {}", tool.server(), tool.tool().name))
}

#[test]
fn name_that_two_servers_could_own_is_ambiguous() {
    for (availability, good) in [
        (READY, Some(&["query"][..])),
        (Availability::Stopped, Some(&["query"][..])),
        (Availability::Disabled, None),
        (Availability::Idle, None),
        (READY, Some(&["other"][..])),
    ] {
        let snapshot = snapshot(pair(&["prod_query"], availability, good));
        check(&snapshot, "db_prod_query", AMBIGUOUS);
        check(&snapshot, "mcp__db_prod_query", AMBIGUOUS);
        assert_eq!(found(&snapshot, "db_prod_query"), None);
        check(&snapshot, "db.prod_query", "db prod_query");
        check(&snapshot, "db/prod_query", "db prod_query");
        let has_base_name = |tool: &ToolWithServer| &**tool.name() == "db_prod_query";
        assert!(!snapshot.index.listed.iter().any(has_base_name), "{availability:?}");
    }
    // The server with the longer name owns the prefix, if the other has no such tool.
    let distinct = snapshot(pair(&["list"], READY, Some(&["query"])));
    check(&distinct, "db_prod_query", "db_prod query");
    let dotted = snapshot(vec![
        server("git", READY, Some(&["hub.log"]), &[]),
        server("git.hub", READY, Some(&["log"]), &[]),
    ]);
    check(
        &dotted,
        "git.hub.log",
        "tool name `git.hub.log` is ambiguous: it matches `git.hub/log` and `git/hub.log`",
    );
    check(&dotted, "git/hub.log", "git hub.log");
    check(&dotted, "git.hub/log", "git.hub log");
}

#[test]
fn tool_named_like_that_of_another_server_is_not_found() {
    let evil = ["db_prod.query", "db_prod/query", "db_prod_query", "query", "db_own"];
    for (availability, good) in [
        (READY, Some(&["query"][..])),
        (READY, Some(&["other"][..])),
        (Availability::Stopped, Some(&["other"][..])),
        (Availability::Idle, None),
    ] {
        let snapshot = snapshot(pair(&evil, availability, good));
        for name in ["db_prod.query", "db_prod/query", "db_prod_query"] {
            let found = found(&snapshot, name);
            let is_own = found.is_none_or(|found| found == "db_prod query");
            assert!(is_own, "{name} {availability:?} {good:?}");
        }
        // A tool name that starts with the name of its own server is fine.
        assert_eq!(found(&snapshot, "db_own").as_deref(), Some("db db_own"));
    }
}

#[test]
fn name_stays_with_its_server() {
    let mut history = History::default();
    let first = history.next(pair(&["list"], READY, Some(&["query"])));
    check(&first, "db_prod_query", "db_prod query");
    let stopped = history.next(pair(&["list"], Availability::Stopped, Some(&["query"])));
    check(&stopped, "db_prod_query", "db_prod query");
    assert_eq!(found(&stopped, "db_prod_query"), None);
    let dropped = history.next(pair(&["db_prod_query"], READY, Some(&["other"])));
    check(&dropped, "db_prod_query", "db_prod query");
    assert_eq!(found(&dropped, "db_prod_query"), None);
    let both = history.next(pair(&["prod_query"], READY, Some(&["query"])));
    check(&both, "db_prod_query", AMBIGUOUS);
}

#[test]
fn later_server_does_not_take_over_a_name() {
    let mut history = History::default();
    let alone = |tools: &[&str]| vec![server("db", READY, Some(tools), &[])];
    check(&history.next(alone(&["prod_query"])), "db_prod_query", "db prod_query");
    let both = history.next(pair(&["prod_query"], READY, Some(&["query"])));
    check(&both, "db_prod_query", AMBIGUOUS);
    // The first owner has dropped the tool, and the name is still reserved for it.
    let later = history.next(pair(&["list"], READY, Some(&["query"])));
    check(&later, "db_prod_query", AMBIGUOUS);
    check(&later, "db_prod.query", "db_prod query");
    // When the server is removed, its names are free.
    let rest = history.next(vec![server("db_prod", READY, Some(&["query"]), &[])]);
    check(&rest, "db_prod_query", "db_prod query");
}

/// A caller can send any name. With every prefix looked up, this one takes minutes.
#[test]
fn long_name_costs_little() {
    let snapshot = snapshot(vec![server("a.b", Availability::Ready, Some(&["t"]), &[])]);
    for name in [".".repeat(1 << 20), "/".repeat(1 << 20), "a.".repeat(1 << 19)] {
        let started = Instant::now();
        let error = snapshot.resolve(&name).unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        assert!(error.to_string().len() < 1_000, "{error}");
        assert!(snapshot.find(&name).is_none());
    }
    let found = snapshot.resolve("a.b.t").unwrap();
    assert_eq!((found.connection.name(), found.tool), ("a.b", "t"));
}

#[test]
fn ambiguous_name_is_shortened_in_errors() {
    let servers = ["a", "a_b"].map(|name| server(name, Availability::Ready, None, &[]));
    let name = format!("a.{}", "x".repeat(1 << 16));
    let snapshot = snapshot(servers.into());
    let error = snapshot.ambiguous(&name, std::iter::empty());
    assert!(error.to_string().len() < 1_000, "{} bytes", error.to_string().len());
}
