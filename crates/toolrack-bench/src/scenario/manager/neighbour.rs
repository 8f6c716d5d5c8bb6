//! Calls on a healthy server: in quiet, beside a bad server elsewhere on the machine, and beside it in the rack.
//!
//! The bad server takes a core wherever it runs. Only what it does in the rack and not outside is ours.

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;
use toolrack_manager::McpManager;

use super::close;
use crate::clients::toolrack_manager::{Rack, builder, configs, connect_all, server_name};
use crate::clients::{Call, Caller as _, ServerCommand};
use crate::report::{Metric, Report};
use crate::scenario::stdio::Job;
use crate::scenario::{MIB, measure};
use crate::stats::{median, quantile};

/// The number of the bad server; the healthy one is the first.
const BAD: usize = 1;
/// After this the bad server is in full swing.
const ROUSING: Duration = Duration::from_millis(200);

pub(super) async fn drive(job: &Job) -> anyhow::Result<Report> {
    let rack = Rack(Arc::new(builder().build(configs(&job.server, 0..BAD + 1)?)));
    connect_all(&rack.0).await?;
    let mut calls = Calls { echo: Call::echo()?, window: 2 * job.size.window, n_failed: 0 };
    calls.warm_up(&rack).await?;
    let quiet = calls.latencies(&rack).await?;

    let elsewhere = BadNeighbour::start(&job.server)?;
    sleep(ROUSING).await;
    let outside = calls.latencies(&rack).await?;
    drop(elsewhere);

    let mut unanswered = JoinSet::new();
    rouse(&rack.0, &mut unanswered)?;
    sleep(ROUSING).await;
    let inside = calls.latencies(&rack).await?;
    ensure!(unanswered.try_join_next().is_none(), "the bad server has come to an end");
    unanswered.shutdown().await;

    let manager = Arc::into_inner(rack.0).context("somebody still calls")?;
    close(manager).await?;
    let mut report = Report::new();
    for (p50, p99, micros) in [
        (Metric::P50Micros, Metric::P99Micros, &quiet),
        (Metric::OutsideP50Micros, Metric::OutsideP99Micros, &outside),
        (Metric::InsideP50Micros, Metric::InsideP99Micros, &inside),
    ] {
        report.insert(p50, median(micros).context("no call was made")?);
        report.insert(p99, quantile(micros, 0.99).context("no call was made")?);
    }
    let p99 = |micros: &[f64]| quantile(micros, 0.99).context("no call was made");
    report.insert(Metric::InsideOverQuiet, p99(&inside)? / p99(&quiet)?);
    report.insert(Metric::InsideOverOutside, p99(&inside)? / p99(&outside)?);
    report.insert(Metric::FailedCalls, measure::count(calls.n_failed));
    Ok(report)
}

/// Makes the bad server of the rack bad, and leaves it more to read than its pipe holds.
fn rouse(manager: &Arc<McpManager>, unanswered: &mut JoinSet<()>) -> anyhow::Result<()> {
    let flood = Call::flood()?;
    let unread = json!({ "text": "x".repeat(MIB) });
    for arguments in [flood.arguments, unread] {
        let manager = Arc::clone(manager);
        unanswered.spawn(async move {
            let answered = manager.call_tool(&server_name(BAD), flood.tool, &arguments).await;
            // Whichever way it ends, it has ended, and that is looked for.
            drop(answered);
        });
    }
    Ok(())
}

/// Calls on the healthy server, in all phases.
struct Calls {
    echo: Call,
    window: Duration,
    n_failed: usize,
}

impl Calls {
    async fn warm_up(&self, rack: &Rack) -> anyhow::Result<()> {
        measure::warm_up(async || rack.call(&self.echo).await.map(drop)).await
    }

    /// How long each call takes in µs. A failure is counted, and is no reason to end.
    async fn latencies(&mut self, rack: &Rack) -> anyhow::Result<Vec<f64>> {
        let Self { echo, window, n_failed } = self;
        measure::latencies(*window, async || {
            if rack.call(echo).await.is_err() {
                *n_failed += 1;
            }
            Ok(())
        })
        .await
    }
}

/// The bad server as somebody else's process: nobody reads what it writes.
struct BadNeighbour(Child);

impl BadNeighbour {
    fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let mut command = server.std();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let flood = Call::flood()?;
        let params = json!({ "name": flood.tool, "arguments": flood.arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let asked = child.stdin.take().context("no stdin").and_then(|mut stdin| {
            // It ends with its input as long as it reads it, which is until it has read this.
            Ok(writeln!(stdin, "{call}")?)
        });
        let neighbour = Self(child);
        asked.map(|()| neighbour)
    }
}

impl Drop for BadNeighbour {
    fn drop(&mut self) {
        // One that has ended by itself needs no signal, and the bench clears away what is left.
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}
