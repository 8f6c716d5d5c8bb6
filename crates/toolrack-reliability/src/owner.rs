//! Owner process, which G01 kills: a client with three servers that resist shutdown.
//!
//! It reports progress on stdout, takes single-word commands on stdin, and exits at the end of stdin.

use std::io::{self, BufRead as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use toolrack_testkit::harness::print_line;
use toolrack_transport::Transport as _;

use crate::peer::{Peer, ServerScript};

/// Fault plans: the tree of a package runner, an escaped process that ignores all signals, a server that ignores
/// SIGTERM.
const PLANS: [&str; 3] = ["tree", "escape=1; ignore=term,eof", "ignore=term"];

/// Concurrent callers per server.
const CALLERS: usize = 2;

/// Pause of a caller between two calls, so that several owners fit on one machine.
const PAUSE: Duration = Duration::from_millis(2);

const START_LIMIT: Duration = Duration::from_secs(20);
const CALL_LIMIT: Duration = Duration::from_secs(5);

/// Printed when every server has answered.
pub(crate) const READY: &str = "ready";

/// Printed with the number of processes that the orphan cleanup ended.
pub(crate) const SWEPT: &str = "swept";

/// Command: call every server. The response has one of the words below for each.
pub(crate) const ASK: &str = "ask";

/// The server answers, and every call so far succeeded.
pub(crate) const FINE: &str = "fine";

/// The transport is closed.
pub(crate) const GONE: &str = "gone";

/// The transport is open, and calls failed.
const BAD: &str = "bad";

/// Whether an owner first sweeps the processes of its predecessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sweep {
    First,
    Never,
}

struct Client {
    peer: Peer,
    n_failed: AtomicU64,
}

/// Runs until it is killed or its stdin ends.
pub(crate) fn run(marker: &str, sweep: Sweep) -> anyhow::Result<ExitCode> {
    if sweep == Sweep::First {
        print_line(format!("{SWEPT} {}", toolrack_stdio::kill_orphans()));
    }
    let runtime = crate::runtime()?;
    let clients = runtime.block_on(start(marker))?;
    print_line(READY);
    let mut callers = JoinSet::new();
    for client in clients.iter().flat_map(|client| [client; CALLERS]) {
        callers.spawn_on(keep_busy(Arc::clone(client)), runtime.handle());
    }
    for word in io::stdin().lock().lines() {
        if word? == ASK {
            print_line(runtime.block_on(statuses(&clients)).join(" "));
        }
    }
    runtime.block_on(async {
        for client in &clients {
            client.peer.transport.close().await;
        }
    });
    Ok(ExitCode::SUCCESS)
}

async fn start(marker: &str) -> anyhow::Result<Vec<Arc<Client>>> {
    let mut starting = Vec::new();
    for plan in PLANS {
        let script = ServerScript::new(marker, &["--plan", plan])?;
        starting.push(async move { script.connect(START_LIMIT).await });
    }
    let mut clients = Vec::new();
    for (index, connected) in join_all(starting).await.into_iter().enumerate() {
        let peer = connected.with_context(|| format!("server {index}"))?;
        clients.push(Arc::new(Client { peer, n_failed: AtomicU64::new(0) }));
    }
    Ok(clients)
}

async fn keep_busy(client: Arc<Client>) {
    while call(&client).await != GONE {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn statuses(clients: &[Arc<Client>]) -> Vec<&'static str> {
    let mut words = Vec::new();
    for client in clients {
        let word = call(client).await;
        let failed_before = client.n_failed.load(Ordering::Relaxed) > 0;
        words.push(if word == FINE && failed_before { BAD } else { word });
    }
    words
}

async fn call(client: &Client) -> &'static str {
    let outcome = client.peer.echo("busy", "0", CALL_LIMIT).await;
    match outcome {
        Ok(_) => FINE,
        Err(_) if !client.peer.transport.is_running() => GONE,
        Err(_) => {
            client.n_failed.fetch_add(1, Ordering::Relaxed);
            BAD
        }
    }
}
