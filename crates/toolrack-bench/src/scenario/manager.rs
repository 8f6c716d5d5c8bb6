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

use super::measure::{self, Stopwatch, to_f64};
use super::stdio::{self, Job, SETTLE_DELAY, keep_in_flight};
use super::{MIB, Scenario};
use crate::clients::manager::{builder, configs, connect_all, server_name};
use crate::clients::{
    BenchClient, Call, ClientName, ManagerClient, ManagerClientRaw, Rmcp, StdioClient as _,
};
use crate::report::{Metric, Report};
use crate::server::responses;
use crate::server_process::ServerCommand;
use crate::stats::{median, quantile};
use crate::{resource_usage, system};

/// Servers are closed concurrently, so this is for the slowest of them.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the start of many servers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) async fn run(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match (job.scenario, client) {
        (Scenario::ManagerSequential | Scenario::ManagerInFlight64, _) => calls(client, job).await,
        (Scenario::ManagerTools, ClientName::Manager) => all_tools(job).await,
        (Scenario::ManagerMemory, ClientName::Manager) => memory(job).await,
        (Scenario::ManagerStart, ClientName::Manager) => start(job).await,
        (Scenario::ManagerStart, ClientName::Rmcp) => start_rmcp(job).await,
        (Scenario::ManagerBadNeighbor, ClientName::Manager) => bad_neighbor(job).await,
        (scenario, client) => bail!("{client:?} is not measured in {scenario:?}"),
    }
}

async fn close(manager: McpManager) -> anyhow::Result<()> {
    Ok(timeout(CLOSE_TIMEOUT, manager.close()).await?)
}

/// Waits until `n_servers` are connected.
async fn wait_connected(manager: &McpManager, n_servers: usize) -> anyhow::Result<()> {
    let all_connected = async {
        while manager.servers().iter().filter(|server| server.is_connected()).count() < n_servers {
            sleep(POLL_INTERVAL).await;
        }
    };
    Ok(timeout(CONNECT_TIMEOUT, all_connected).await?)
}

const IN_FLIGHT: usize = 64;
/// Duration of the calls on one side before the other side has its turn.
const TURN: Duration = Duration::from_millis(20);
/// Longer, because with many tasks the start and the end of a turn take their time.
const TURN_IN_FLIGHT: Duration = Duration::from_millis(50);

async fn calls(name: ClientName, job: &Job) -> anyhow::Result<Report> {
    match name {
        ClientName::Manager => {
            let client = ManagerClient::connect(&job.server).await?;
            let report = alternate(job, &client, &client.underlying_client()?).await?;
            stdio::close(client).await?;
            Ok(report)
        }
        ClientName::ManagerRaw => {
            let client = ManagerClientRaw::connect(&job.server).await?;
            let report = alternate(job, &client, &client.underlying_client()?).await?;
            stdio::close(client).await?;
            Ok(report)
        }
        other => bail!("{other:?} is not a manager"),
    }
}

/// Measures both sides in short alternating turns, so that disturbances of the machine affect both alike.
async fn alternate<M: BenchClient, C: BenchClient>(
    job: &Job,
    manager: &M,
    client: &C,
) -> anyhow::Result<Report> {
    let (mut through_manager, mut direct) = (Side::default(), Side::default());
    if job.scenario == Scenario::ManagerInFlight64 {
        keep_in_flight(client, IN_FLIGHT, TURN_IN_FLIGHT).await?;
        keep_in_flight(manager, IN_FLIGHT, TURN_IN_FLIGHT).await?;
        for _ in 0..n_turns(job, TURN_IN_FLIGHT) {
            direct.in_flight(client).await?;
            through_manager.in_flight(manager).await?;
        }
        return in_flight_report(&through_manager, &direct);
    }
    let echo = Call::echo()?;
    measure::warm_up(async || client.call(&echo).await.map(drop)).await?;
    measure::warm_up(async || manager.call(&echo).await.map(drop)).await?;
    for _ in 0..n_turns(job, TURN) {
        direct.sequential(client, &echo).await?;
        through_manager.sequential(manager, &echo).await?;
    }
    sequential_report(&through_manager, &direct)
}

/// Each side gets the whole window.
fn n_turns(job: &Job, turn: Duration) -> u128 {
    job.size.window.as_nanos() / turn.as_nanos()
}

/// Figures of one side: through the manager, or directly on its client.
#[derive(Debug, Default)]
struct Side {
    micros: Vec<f64>,
    calls_per_second: Vec<f64>,
    cpu_micros_per_call: Vec<f64>,
}

impl Side {
    async fn sequential<C: BenchClient>(&mut self, client: &C, call: &Call) -> anyhow::Result<()> {
        let stopwatch = Stopwatch::start();
        let micros = measure::latencies(TURN, async || client.call(call).await.map(drop)).await?;
        self.add(&stopwatch.per_call(micros.len()));
        self.micros.extend(micros);
        Ok(())
    }

    async fn in_flight<C: BenchClient>(&mut self, client: &C) -> anyhow::Result<()> {
        let stopwatch = Stopwatch::start();
        let n_calls = keep_in_flight(client, IN_FLIGHT, TURN_IN_FLIGHT).await?;
        self.add(&stopwatch.per_call(n_calls));
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

fn sequential_report(through_manager: &Side, direct: &Side) -> anyhow::Result<Report> {
    let mut report = cpu_report(through_manager, direct)?;
    report.insert(Metric::P50Micros, through_manager.p50()?);
    report.insert(Metric::ClientP50Micros, direct.p50()?);
    report.insert(Metric::P50OverClient, through_manager.p50()? / direct.p50()?);
    Ok(report)
}

fn in_flight_report(through_manager: &Side, direct: &Side) -> anyhow::Result<Report> {
    let mut report = cpu_report(through_manager, direct)?;
    report.insert(Metric::CallsPerSecond, through_manager.calls()?);
    report.insert(Metric::ClientCallsPerSecond, direct.calls()?);
    report.insert(Metric::TimeOverClient, direct.calls()? / through_manager.calls()?);
    Ok(report)
}

fn cpu_report(through_manager: &Side, direct: &Side) -> anyhow::Result<Report> {
    Ok(Report::from([
        (Metric::CpuMicrosPerCall, through_manager.cpu()?),
        (Metric::ClientCpuMicrosPerCall, direct.cpu()?),
        (Metric::CpuOverClient, through_manager.cpu()? / direct.cpu()?),
    ]))
}

const N_SERVERS: usize = 100;
/// Servers connected before the baseline, so that one-time allocations are not counted.
const N_WARM_UP_SERVERS: usize = 20;
/// Repetitions of `all_tools`.
const N_LISTS: usize = 1_000;
/// Counted starts of all servers; one more comes first, for lazy initialization.
const N_STARTS: usize = 3;

/// Time of `all_tools` on connected servers, and of a start with lazy servers from the tool cache.
async fn all_tools(job: &Job) -> anyhow::Result<Report> {
    let cache_dir = tempfile::tempdir()?;
    let configs = configs(&job.server, 0..N_SERVERS)?;
    let manager = builder().tool_cache(cache_dir.path()).build(configs.clone());
    connect_all(&manager).await?;
    let n_tools = N_SERVERS * job.scenario.n_tools();
    let (mut list_micros, mut read_micros) = (Vec::new(), Vec::new());
    for _ in 0..N_LISTS {
        let before = system::now();
        let tools = manager.all_tools();
        list_micros.push((system::now() - before).as_secs_f64() * 1e6);
        let bytes: usize = tools.iter().map(bytes_for_model).sum();
        read_micros.push((system::now() - before).as_secs_f64() * 1e6);
        ensure!(tools.len() == n_tools && bytes > n_tools, "{} tools", tools.len());
    }
    close(manager).await?;
    let mut report = Report::new();
    if let (Some(p50), Some(p99), Some(read)) =
        (median(&list_micros), quantile(&list_micros, 0.99), median(&read_micros))
    {
        report.insert(Metric::AllToolsMicros, p50);
        report.insert(Metric::AllToolsP99Micros, p99);
        report.insert(Metric::ReadToolsMicros, read);
    }
    let to_lazy = |config| McpServerConfig { start: StartMode::Lazy, ..config };
    let lazy: Vec<McpServerConfig> = configs.into_iter().map(to_lazy).collect();
    let before = system::now();
    let manager = builder().tool_cache(cache_dir.path()).build(lazy);
    manager.connect_all().await?;
    let n_cached = manager.all_tools().len();
    report.insert(Metric::CachedToolsMillis, (system::now() - before).as_secs_f64() * 1e3);
    ensure!(n_cached == n_tools, "{n_cached} tools in the cache");
    close(manager).await?;
    Ok(report)
}

/// Bytes that an agent passes to its model.
fn bytes_for_model(listed: &ToolWithServer) -> usize {
    let tool = listed.tool();
    let description = tool.description.as_ref().map_or(0, String::len);
    listed.name().len() + description + tool.input_schema.get().len()
}

/// Memory per server, each under its guardian.
async fn memory(job: &Job) -> anyhow::Result<Report> {
    let manager = builder().build(configs(&job.server, 0..N_WARM_UP_SERVERS)?);
    connect_all(&manager).await?;
    sleep(SETTLE_DELAY).await;
    let before = resource_usage::Memory::of_current_process()?;
    manager
        .reconcile(&[], &configs(&job.server, N_WARM_UP_SERVERS..N_WARM_UP_SERVERS + N_SERVERS)?)
        .await?;
    wait_connected(&manager, N_WARM_UP_SERVERS + N_SERVERS).await?;
    sleep(SETTLE_DELAY).await;
    let mut report = measure::idle_connection_report(before, N_SERVERS)?;
    close(manager).await?;
    let list_kib = to_f64(responses::tool_list(job.scenario.n_tools()).len()) / 1024.0;
    report.insert(Metric::ListKibPerServer, list_kib);
    if let Some(resident) = report.get(&Metric::ResidentKibPerConnection).copied() {
        report.insert(Metric::BeyondListKibPerServer, resident - list_kib);
    }
    Ok(report)
}

/// Time until the manager has connected all servers, each under a guardian, and listed their tools.
async fn start(job: &Job) -> anyhow::Result<Report> {
    let mut times = Vec::new();
    for n in 0..=N_STARTS {
        let configs = configs(&job.server, 0..N_SERVERS)?;
        let stopwatch = Stopwatch::start();
        let manager = builder().build(configs);
        connect_all(&manager).await?;
        if n > 0 {
            times.push(stopwatch.elapsed());
        }
        close(manager).await?;
    }
    measure::connect_report(&times)
}

/// The same with `rmcp`, which uses no guardians and does not list tools here.
async fn start_rmcp(job: &Job) -> anyhow::Result<Report> {
    let mut times = Vec::new();
    for n in 0..=N_STARTS {
        let stopwatch = Stopwatch::start();
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
            times.push(stopwatch.elapsed());
        }
        for client in clients {
            stdio::close(client).await?;
        }
    }
    measure::connect_report(&times)
}

/// Index of the bad server; the healthy one has index 0.
const BAD_SERVER: usize = 1;
/// Time after which the bad server floods and spins.
const BAD_START_DELAY: Duration = Duration::from_millis(200);

async fn bad_neighbor(job: &Job) -> anyhow::Result<Report> {
    let client = ManagerClient(Arc::new(builder().build(configs(&job.server, 0..BAD_SERVER + 1)?)));
    connect_all(&client.0).await?;
    let mut calls = Calls { echo: Call::echo()?, window: 2 * job.size.window, n_failed: 0 };
    calls.warm_up(&client).await?;
    let quiet = calls.latencies(&client).await?;

    let unmanaged_server = UnmanagedBadServer::start(&job.server)?;
    sleep(BAD_START_DELAY).await;
    let with_unmanaged = calls.latencies(&client).await?;
    drop(unmanaged_server);

    let mut bad_calls = JoinSet::new();
    make_bad(&client.0, &mut bad_calls)?;
    sleep(BAD_START_DELAY).await;
    let with_managed = calls.latencies(&client).await?;
    ensure!(bad_calls.try_join_next().is_none(), "the bad server exited");
    bad_calls.shutdown().await;

    let manager = Arc::into_inner(client.0).context("a call is still in flight")?;
    close(manager).await?;
    let mut report = Report::new();
    for (p50, p99, micros) in [
        (Metric::P50Micros, Metric::P99Micros, &quiet),
        (Metric::UnmanagedP50Micros, Metric::UnmanagedP99Micros, &with_unmanaged),
        (Metric::ManagedP50Micros, Metric::ManagedP99Micros, &with_managed),
    ] {
        report.insert(p50, median(micros).context("no call was made")?);
        report.insert(p99, quantile(micros, 0.99).context("no call was made")?);
    }
    let p99 = |micros: &[f64]| quantile(micros, 0.99).context("no call was made");
    report.insert(Metric::ManagedOverQuiet, p99(&with_managed)? / p99(&quiet)?);
    report.insert(Metric::ManagedOverUnmanaged, p99(&with_managed)? / p99(&with_unmanaged)?);
    report.insert(Metric::FailedCalls, to_f64(calls.n_failed));
    Ok(report)
}

/// Makes the managed bad server flood, and sends it more than its pipe holds while it does not read.
fn make_bad(manager: &Arc<McpManager>, bad_calls: &mut JoinSet<()>) -> anyhow::Result<()> {
    let flood = Call::flood()?;
    let unread = json!({ "text": "x".repeat(MIB) });
    for arguments in [flood.arguments, unread] {
        let manager = Arc::clone(manager);
        bad_calls.spawn(async move {
            let result = manager.call_tool(&server_name(BAD_SERVER), flood.tool, &arguments).await;
            // Any result means that the bad server stopped; the scenario checks for completed tasks.
            drop(result);
        });
    }
    Ok(())
}

/// Calls on the healthy server.
struct Calls {
    echo: Call,
    window: Duration,
    n_failed: usize,
}

impl Calls {
    async fn warm_up(&self, client: &ManagerClient) -> anyhow::Result<()> {
        measure::warm_up(async || client.call(&self.echo).await.map(drop)).await
    }

    /// Latencies in µs. Failed calls are counted and do not stop the measurement.
    async fn latencies(&mut self, client: &ManagerClient) -> anyhow::Result<Vec<f64>> {
        let Self { echo, window, n_failed } = self;
        measure::latencies(*window, async || {
            if client.call(echo).await.is_err() {
                *n_failed += 1;
            }
            Ok(())
        })
        .await
    }
}

/// The bad server as an unmanaged process; its output goes to `/dev/null`.
struct UnmanagedBadServer(Child);

impl UnmanagedBadServer {
    fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let mut command = server.std();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let flood = Call::flood()?;
        let params = json!({ "name": flood.tool, "arguments": flood.arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let written = child.stdin.take().context("no stdin").and_then(|mut stdin| {
            // Dropping stdin does not stop the server: it stops reading after this call.
            Ok(writeln!(stdin, "{call}")?)
        });
        let server = Self(child);
        written.map(|()| server)
    }
}

impl Drop for UnmanagedBadServer {
    fn drop(&mut self) {
        // The process may have exited already; the benchmark reaps leftovers after the run.
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_compared_by_median() {
        let side = |micros: &[f64], calls: f64, cpu: f64| Side {
            micros: micros.to_vec(),
            calls_per_second: vec![calls],
            cpu_micros_per_call: vec![cpu, cpu],
        };
        let (through_manager, direct) =
            (side(&[9.0, 11.0, 99.0], 80.0, 6.0), side(&[10.0], 100.0, 4.0));
        let report = sequential_report(&through_manager, &direct).unwrap();
        assert_eq!(report.get(&Metric::P50OverClient), Some(&1.1));
        assert_eq!(report.get(&Metric::CpuOverClient), Some(&1.5));
        let report = in_flight_report(&through_manager, &direct).unwrap();
        assert_eq!(report.get(&Metric::TimeOverClient), Some(&1.25));
        assert!(sequential_report(&Side::default(), &direct).is_err());
    }
}
