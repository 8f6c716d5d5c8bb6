//! Manager scenarios: overhead of a call through the manager, cost of many servers, isolation from a bad neighbor.
//!
//! Calls through the manager alternate with the same calls on the manager's own client of that server. Both use the
//! same process, server and connection, in turns shorter than a typical disturbance of the machine, so the difference
//! is the manager.
//!
//! The bad neighbor takes a core wherever it runs, so it runs twice: as an unmanaged process, and managed. Only the
//! difference is caused by the manager.

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use toolrack_config::{McpServerConfig, StartMode};
use toolrack_manager::{McpManager, ToolWithServer};

use super::measure::{self, Spent, count};
use super::stdio::{self, Job, SETTLING, flood};
use super::{MIB, Scenario};
use crate::clients::toolrack_manager::{builder, configs, connect_all, server_name};
use crate::clients::{Call, Caller, ClientName, Contender as _, Rack, RackRaw, Rmcp};
use crate::report::{Metric, Report};
use crate::server::responses;
use crate::server_process::ServerCommand;
use crate::stats::{median, quantile};
use crate::{resource_usage, system};

/// Ending many servers may take as long as the slowest of them, and not longer.
const CLOSING: Duration = Duration::from_secs(10);
/// Starting many servers takes no longer.
const STARTING: Duration = Duration::from_secs(10);
const POLLING: Duration = Duration::from_millis(5);

pub(crate) async fn drive(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match (job.scenario, client) {
        (Scenario::RackSequential | Scenario::RackInFlight64, _) => calls(client, job).await,
        (Scenario::RackTools, ClientName::Manager) => all_tools(job).await,
        (Scenario::RackMemory, ClientName::Manager) => memory(job).await,
        (Scenario::RackStart, ClientName::Manager) => start(job).await,
        (Scenario::RackStart, ClientName::Rmcp) => start_rmcp(job).await,
        (Scenario::RackNeighbours, ClientName::Manager) => bad_neighbor(job).await,
        (scenario, client) => bail!("{client:?} is not measured in {scenario:?}"),
    }
}

async fn close(manager: McpManager) -> anyhow::Result<()> {
    Ok(timeout(CLOSING, manager.close()).await?)
}

/// Waits until so many servers are connected.
async fn connected(manager: &McpManager, n_servers: usize) -> anyhow::Result<()> {
    let all = async {
        while manager.servers().iter().filter(|server| server.is_connected()).count() < n_servers {
            sleep(POLLING).await;
        }
    };
    Ok(timeout(STARTING, all).await?)
}

const IN_FLIGHT: usize = 64;
/// How long one of the two is called before it is the other's turn.
const TURN: Duration = Duration::from_millis(20);
/// With many callers a turn has to outweigh their beginning and their end.
const TURN_IN_FLIGHT: Duration = Duration::from_millis(50);

async fn calls(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match client {
        ClientName::Manager => {
            let rack = Rack::connect(&job.server).await?;
            let report = in_turns(job, &rack, &rack.past()?).await?;
            stdio::close(rack).await?;
            Ok(report)
        }
        ClientName::ManagerRaw => {
            let rack = RackRaw::connect(&job.server).await?;
            let report = in_turns(job, &rack, &rack.past()?).await?;
            stdio::close(rack).await?;
            Ok(report)
        }
        other => bail!("{other:?} is no manager"),
    }
}

async fn in_turns<M: Caller, C: Caller>(
    job: &Job,
    manager: &M,
    client: &C,
) -> anyhow::Result<Report> {
    let (mut through, mut past) = (Side::default(), Side::default());
    if job.scenario == Scenario::RackInFlight64 {
        flood(client, IN_FLIGHT, TURN_IN_FLIGHT).await?;
        flood(manager, IN_FLIGHT, TURN_IN_FLIGHT).await?;
        for _ in 0..n_turns(job, TURN_IN_FLIGHT) {
            past.in_flight(client).await?;
            through.in_flight(manager).await?;
        }
        return in_flight_report(&through, &past);
    }
    let echo = Call::echo()?;
    measure::warm_up(async || client.call(&echo).await.map(drop)).await?;
    measure::warm_up(async || manager.call(&echo).await.map(drop)).await?;
    for _ in 0..n_turns(job, TURN) {
        past.sequential(client, &echo).await?;
        through.sequential(manager, &echo).await?;
    }
    sequential_report(&through, &past)
}

/// Each of the two gets the whole window.
fn n_turns(job: &Job, turn: Duration) -> u128 {
    job.size.window.as_nanos() / turn.as_nanos()
}

/// What one of the two has done in its turns.
#[derive(Debug, Default)]
struct Side {
    micros: Vec<f64>,
    calls_per_second: Vec<f64>,
    cpu_micros_per_call: Vec<f64>,
}

impl Side {
    async fn sequential<C: Caller>(&mut self, caller: &C, call: &Call) -> anyhow::Result<()> {
        let spent = Spent::start();
        let micros = measure::latencies(TURN, async || caller.call(call).await.map(drop)).await?;
        self.add(&spent.per_call(micros.len()));
        self.micros.extend(micros);
        Ok(())
    }

    async fn in_flight<C: Caller>(&mut self, caller: &C) -> anyhow::Result<()> {
        let spent = Spent::start();
        let n_calls = flood(caller, IN_FLIGHT, TURN_IN_FLIGHT).await?;
        self.add(&spent.per_call(n_calls));
        Ok(())
    }

    fn add(&mut self, turn: &Report) {
        self.calls_per_second.extend(turn.get(&Metric::CallsPerSecond));
        self.cpu_micros_per_call.extend(turn.get(&Metric::CpuMicrosPerCall));
    }

    fn p50(&self) -> anyhow::Result<f64> {
        median(&self.micros).context("no call was made")
    }

    fn calls(&self) -> anyhow::Result<f64> {
        median(&self.calls_per_second).context("no call was made")
    }

    fn cpu(&self) -> anyhow::Result<f64> {
        median(&self.cpu_micros_per_call).context("no call was made")
    }
}

fn sequential_report(through: &Side, past: &Side) -> anyhow::Result<Report> {
    let mut report = cpu_report(through, past)?;
    report.insert(Metric::P50Micros, through.p50()?);
    report.insert(Metric::ClientP50Micros, past.p50()?);
    report.insert(Metric::P50OverClient, through.p50()? / past.p50()?);
    Ok(report)
}

fn in_flight_report(through: &Side, past: &Side) -> anyhow::Result<Report> {
    let mut report = cpu_report(through, past)?;
    report.insert(Metric::CallsPerSecond, through.calls()?);
    report.insert(Metric::ClientCallsPerSecond, past.calls()?);
    report.insert(Metric::TimeOverClient, past.calls()? / through.calls()?);
    Ok(report)
}

fn cpu_report(through: &Side, past: &Side) -> anyhow::Result<Report> {
    Ok(Report::from([
        (Metric::CpuMicrosPerCall, through.cpu()?),
        (Metric::ClientCpuMicrosPerCall, past.cpu()?),
        (Metric::CpuOverClient, through.cpu()? / past.cpu()?),
    ]))
}

const N_SERVERS: usize = 100;
/// Servers that are there before memory is looked at, so that what there is once for all has been paid for.
const N_FIRST: usize = 20;
/// How often the list is taken.
const N_LISTS: usize = 1_000;
/// Starts of all servers, of which the first pays for what is lazy and is not counted.
const N_STARTS: usize = 3;

async fn all_tools(job: &Job) -> anyhow::Result<Report> {
    let catalog = tempfile::tempdir()?;
    let configs = configs(&job.server, 0..N_SERVERS)?;
    let manager = builder().catalog(catalog.path()).build(configs.clone());
    connect_all(&manager).await?;
    let n_tools = N_SERVERS * job.scenario.n_tools();
    let (mut taken, mut read) = (Vec::new(), Vec::new());
    for _ in 0..N_LISTS {
        let before = system::now();
        let tools = manager.all_tools();
        taken.push((system::now() - before).as_secs_f64() * 1e6);
        let bytes: usize = tools.iter().map(seen_bytes).sum();
        read.push((system::now() - before).as_secs_f64() * 1e6);
        ensure!(tools.len() == n_tools && bytes > n_tools, "{} tools", tools.len());
    }
    close(manager).await?;
    let mut report = Report::new();
    if let (Some(p50), Some(p99), Some(read)) =
        (median(&taken), quantile(&taken, 0.99), median(&read))
    {
        report.insert(Metric::AllToolsMicros, p50);
        report.insert(Metric::AllToolsP99Micros, p99);
        report.insert(Metric::ReadToolsMicros, read);
    }
    let lazy = |value| McpServerConfig { start: StartMode::Lazy, ..value };
    let lazy: Vec<McpServerConfig> = configs.into_iter().map(lazy).collect();
    let before = system::now();
    let manager = builder().catalog(catalog.path()).build(lazy);
    manager.connect_all().await?;
    let n_recalled = manager.all_tools().len();
    report.insert(Metric::RecallMillis, (system::now() - before).as_secs_f64() * 1e3);
    ensure!(n_recalled == n_tools, "{n_recalled} tools are remembered");
    close(manager).await?;
    Ok(report)
}

/// What an agent shows to its model.
fn seen_bytes(listed: &ToolWithServer) -> usize {
    let tool = listed.tool();
    let description = tool.description.as_ref().map_or(0, String::len);
    listed.name().len() + description + tool.input_schema.get().len()
}

/// Each server has its guardian. The first ones pay for what there is once for all.
async fn memory(job: &Job) -> anyhow::Result<Report> {
    let manager = builder().build(configs(&job.server, 0..N_FIRST)?);
    connect_all(&manager).await?;
    sleep(SETTLING).await;
    let before = resource_usage::Memory::of_this_process()?;
    manager.reconcile(&[], &configs(&job.server, N_FIRST..N_FIRST + N_SERVERS)?).await?;
    connected(&manager, N_FIRST + N_SERVERS).await?;
    sleep(SETTLING).await;
    let mut report = measure::idle_lines(before, N_SERVERS)?;
    close(manager).await?;
    let list = count(responses::tool_list(job.scenario.n_tools()).len()) / 1024.0;
    report.insert(Metric::ListKibPerServer, list);
    if let Some(resident) = report.get(&Metric::ResidentKibPerLine).copied() {
        report.insert(Metric::BeyondListKibPerServer, resident - list);
    }
    Ok(report)
}

/// Each server has its guardian, and its tools are listed.
async fn start(job: &Job) -> anyhow::Result<Report> {
    let mut times = Vec::new();
    for n in 0..=N_STARTS {
        let configs = configs(&job.server, 0..N_SERVERS)?;
        let spent = Spent::start();
        let manager = builder().build(configs);
        connect_all(&manager).await?;
        if n > 0 {
            times.push(spent.so_far());
        }
        close(manager).await?;
    }
    measure::connects(&times)
}

/// Nobody stands between client and server, and nothing is listed.
async fn start_rmcp(job: &Job) -> anyhow::Result<Report> {
    let mut times = Vec::new();
    for n in 0..=N_STARTS {
        let spent = Spent::start();
        let mut starting = JoinSet::new();
        for _ in 0..N_SERVERS {
            let server = job.server.clone();
            starting.spawn(async move { Rmcp::connect(&server).await });
        }
        let mut clients = Vec::new();
        while let Some(client) = starting.join_next().await {
            clients.push(client??);
        }
        if n > 0 {
            times.push(spent.so_far());
        }
        for client in clients {
            stdio::close(client).await?;
        }
    }
    measure::connects(&times)
}

/// The number of the bad server; the healthy one is the first.
const BAD: usize = 1;
/// After this the bad server is in full swing.
const ROUSING: Duration = Duration::from_millis(200);

async fn bad_neighbor(job: &Job) -> anyhow::Result<Report> {
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
    report.insert(Metric::FailedCalls, count(calls.n_failed));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_sides_are_compared_by_their_medians() {
        let side = |micros: &[f64], calls: f64, cpu: f64| Side {
            micros: micros.to_vec(),
            calls_per_second: vec![calls],
            cpu_micros_per_call: vec![cpu, cpu],
        };
        let (through, past) = (side(&[9.0, 11.0, 99.0], 80.0, 6.0), side(&[10.0], 100.0, 4.0));
        let report = sequential_report(&through, &past).unwrap();
        assert_eq!(report.get(&Metric::P50OverClient), Some(&1.1));
        assert_eq!(report.get(&Metric::CpuOverClient), Some(&1.5));
        let report = in_flight_report(&through, &past).unwrap();
        assert_eq!(report.get(&Metric::TimeOverClient), Some(&1.25));
        assert!(sequential_report(&Side::default(), &past).is_err());
    }
}
