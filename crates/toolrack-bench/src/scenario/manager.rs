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
use toolrack_testkit::harness::now;

use super::calls::{Job, Latencies, checked, close as close_client, keep_in_flight, warm_up};
use super::measure::{
    self, SETTLE_DELAY, Stopwatch, count, median_of, micros_since, p99_of, to_f64,
};
use super::{Load, MIB, Work};
use crate::clients::manager::{builder, configs, connect_all, server_name};
use crate::clients::{BenchClient, Call, ClientName, ManagerClient, rust_sdks};
use crate::metric::{self as m, Report};
use crate::resource_usage::Memory;
use crate::server::responses;
use crate::server_process::ServerCommand;

/// Servers are closed concurrently, so this is for the slowest of them.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the start of many servers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) async fn run(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match (job.work, client) {
        (Work::Manager(load), ClientName::Manager) => calls::<false>(load, job).await,
        (Work::Manager(load), ClientName::ManagerRaw) => calls::<true>(load, job).await,
        (Work::ManagerTools, _) => all_tools(job.work.n_tools()).await,
        (Work::ManagerMemory, _) => memory(job.work.n_tools()).await,
        (Work::ManagerStart, ClientName::Rmcp) => {
            rust_sdks::start_many(&server(job)?, N_SERVERS, N_STARTS).await
        }
        (Work::ManagerStart, _) => start(&server(job)?).await,
        (Work::ManagerBadNeighbor, _) => bad_neighbor(job).await,
        (work, client) => bail!("{client:?} is not measured in {work:?}"),
    }
}

fn server(job: &Job) -> anyhow::Result<ServerCommand> {
    ServerCommand::with_tools(job.work.n_tools())
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

/// Duration of the calls on one side before the other side has its turn.
const TURN: Duration = Duration::from_millis(20);
/// Longer, because with many tasks the start and the end of a turn take their time.
const TURN_IN_FLIGHT: Duration = Duration::from_millis(50);

/// Measures both sides in short alternating turns, so that disturbances of the machine affect both alike.
async fn calls<const RAW: bool>(load: Load, job: &Job) -> anyhow::Result<Report> {
    let manager = Arc::new(ManagerClient::<RAW>::start(&server(job)?).await?);
    let client = Arc::new(manager.underlying_client()?);
    let echo = Call::echo()?;
    let (mut through_manager, mut direct) = (Side::default(), Side::default());
    warm_up(&client).await?;
    warm_up(&manager).await?;
    let turn = if load == Load::Sequential { TURN } else { TURN_IN_FLIGHT };
    // Each side gets the whole window. The first turn is a warm-up too.
    for n in 0..=job.size.window.as_nanos() / turn.as_nanos() {
        if n == 1 {
            (through_manager, direct) = (Side::default(), Side::default());
        }
        direct.turn(&client, &echo, load, turn).await?;
        through_manager.turn(&manager, &echo, load, turn).await?;
    }
    close_client(manager).await?;
    report(load, &through_manager, &direct)
}

/// Figures of one side: through the manager, or directly on its client.
#[derive(Debug, Default)]
struct Side {
    micros: Vec<f64>,
    calls_per_second: Vec<f64>,
    cpu_micros_per_call: Vec<f64>,
}

impl Side {
    async fn turn<C: BenchClient>(
        &mut self,
        client: &Arc<C>,
        call: &Call,
        load: Load,
        turn: Duration,
    ) -> anyhow::Result<()> {
        let stopwatch = Stopwatch::start();
        let n_calls = if let Load::InFlight(n_in_flight) = load {
            keep_in_flight(client, call, (n_in_flight, Latencies::Untimed), turn).await?.0
        } else {
            let micros = measure::latencies(turn, async || checked(client, call).await).await?;
            self.micros.extend(&micros);
            micros.len()
        };
        let figures = stopwatch.per_call(n_calls);
        self.calls_per_second.extend(figures.get(m::CALLS_PER_SECOND));
        self.cpu_micros_per_call.extend(figures.get(m::CPU_PER_CALL));
        Ok(())
    }
}

fn report(load: Load, through_manager: &Side, direct: &Side) -> anyhow::Result<Report> {
    let cpu = median_of(&through_manager.cpu_micros_per_call)?;
    let direct_cpu = median_of(&direct.cpu_micros_per_call)?;
    let mut report = Report::from([
        (m::CPU_PER_CALL, cpu),
        (m::CLIENT_CPU, direct_cpu),
        (m::CPU_OVER_CLIENT, cpu / direct_cpu),
    ]);
    if load == Load::Sequential {
        let (p50, direct) = (median_of(&through_manager.micros)?, median_of(&direct.micros)?);
        report.insert(m::P50, p50);
        report.insert(m::CLIENT_P50, direct);
        report.insert(m::P50_OVER_CLIENT, p50 / direct);
    } else {
        let calls = median_of(&through_manager.calls_per_second)?;
        let direct = median_of(&direct.calls_per_second)?;
        report.insert(m::CALLS_PER_SECOND, calls);
        report.insert(m::CLIENT_CALLS, direct);
        report.insert(m::TIME_OVER_CLIENT, direct / calls);
    }
    Ok(report)
}

const N_SERVERS: usize = 100;
/// Servers connected before the baseline, so that one-time allocations are not counted.
const N_WARM_UP_SERVERS: usize = 20;
/// Repetitions of `all_tools`.
const N_LISTS: usize = 1_000;
/// Counted starts of all servers; one more comes first, for lazy initialization.
const N_STARTS: usize = 3;

/// Time of `all_tools` on connected servers, and of a start with lazy servers from the tool cache.
async fn all_tools(tools_per_server: usize) -> anyhow::Result<Report> {
    let cache_dir = tempfile::tempdir()?;
    let configs = configs(&ServerCommand::with_tools(tools_per_server)?, 0..N_SERVERS)?;
    let manager = builder().tool_cache(cache_dir.path()).build(configs.clone());
    connect_all(&manager).await?;
    let n_tools = N_SERVERS * tools_per_server;
    let (mut list_micros, mut read_micros) = (Vec::new(), Vec::new());
    for _ in 0..N_LISTS {
        let before = now();
        let tools = manager.all_tools();
        list_micros.push(micros_since(before));
        let bytes: usize = tools.iter().map(bytes_for_model).sum();
        read_micros.push(micros_since(before));
        ensure!(tools.len() == n_tools && bytes > n_tools, "{} tools", tools.len());
    }
    close(manager).await?;
    let to_lazy = |config| McpServerConfig { start: StartMode::Lazy, ..config };
    let lazy: Vec<McpServerConfig> = configs.into_iter().map(to_lazy).collect();
    let before = now();
    let manager = builder().tool_cache(cache_dir.path()).build(lazy);
    manager.connect_all().await?;
    let n_cached = manager.all_tools().len();
    let cached_millis = micros_since(before) / 1e3;
    ensure!(n_cached == n_tools, "{n_cached} tools in the cache");
    close(manager).await?;
    Ok(Report::from([
        (m::ALL_TOOLS_P50, median_of(&list_micros)?),
        (m::ALL_TOOLS_P99, p99_of(&list_micros)?),
        (m::READ_TOOLS_P50, median_of(&read_micros)?),
        (m::CACHED_TOOLS_MILLIS, cached_millis),
    ]))
}

/// Bytes that an agent passes to its model.
fn bytes_for_model(listed: &ToolWithServer) -> usize {
    let tool = listed.tool();
    let description = tool.description.as_ref().map_or(0, String::len);
    listed.name().len() + description + tool.input_schema.get().len()
}

/// Memory per server, each under its guardian.
async fn memory(n_tools: usize) -> anyhow::Result<Report> {
    let server = ServerCommand::with_tools(n_tools)?;
    let manager = builder().build(configs(&server, 0..N_WARM_UP_SERVERS)?);
    connect_all(&manager).await?;
    sleep(SETTLE_DELAY).await;
    let before = Memory::of_current_process()?;
    let n_servers = N_WARM_UP_SERVERS + N_SERVERS;
    manager.reconcile(&[], &configs(&server, N_WARM_UP_SERVERS..n_servers)?).await?;
    wait_connected(&manager, n_servers).await?;
    sleep(SETTLE_DELAY).await;
    let mut report = measure::memory_per_connection(before, N_SERVERS)?;
    close(manager).await?;
    let list_kib = count(responses::tool_list(n_tools).len()) / 1024.0;
    report.insert(m::LIST_KIB, list_kib);
    let resident = report.get(m::RESIDENT_KIB).context("no memory was measured")?;
    report.insert(m::BEYOND_LIST_KIB, resident - list_kib);
    Ok(report)
}

/// Time until the manager has connected all servers, each under a guardian, and listed their tools.
async fn start(server: &ServerCommand) -> anyhow::Result<Report> {
    let connect = async || {
        let manager = builder().build(configs(server, 0..N_SERVERS)?);
        connect_all(&manager).await?;
        Ok(manager)
    };
    measure::connects(N_STARTS, connect, close).await
}

/// Index of the bad server; the healthy one has index 0.
const BAD_SERVER: usize = 1;
/// Time after which the bad server floods and spins.
const BAD_START_DELAY: Duration = Duration::from_millis(200);

async fn bad_neighbor(job: &Job) -> anyhow::Result<Report> {
    let server = server(job)?;
    let manager = builder().build(configs(&server, 0..BAD_SERVER + 1)?);
    let client = Arc::new(ManagerClient::<false>(manager));
    connect_all(&client.0).await?;
    let (echo, mut n_failed) = (Call::echo()?, 0_u64);
    // Failed calls are counted and do not stop the measurement.
    let mut latencies = async || {
        let call = async || {
            n_failed += u64::from(client.call(&echo).await.is_err());
            Ok(())
        };
        measure::latencies(2 * job.size.window, call).await
    };
    warm_up(&client).await?;
    let quiet = latencies().await?;

    let unmanaged_server = UnmanagedBadServer::start(&server)?;
    sleep(BAD_START_DELAY).await;
    let with_unmanaged = latencies().await?;
    drop(unmanaged_server);

    let mut bad_calls = JoinSet::new();
    make_bad(&client, &mut bad_calls)?;
    sleep(BAD_START_DELAY).await;
    let with_managed = latencies().await?;
    ensure!(bad_calls.try_join_next().is_none(), "the bad server exited");
    bad_calls.shutdown().await;

    close_client(client).await?;
    let managed_p99 = p99_of(&with_managed)?;
    Ok(Report::from([
        (m::P50, median_of(&quiet)?),
        (m::P99, p99_of(&quiet)?),
        (m::UNMANAGED_P50, median_of(&with_unmanaged)?),
        (m::UNMANAGED_P99, p99_of(&with_unmanaged)?),
        (m::MANAGED_P50, median_of(&with_managed)?),
        (m::MANAGED_P99, managed_p99),
        (m::MANAGED_OVER_QUIET, managed_p99 / p99_of(&quiet)?),
        (m::MANAGED_OVER_UNMANAGED, managed_p99 / p99_of(&with_unmanaged)?),
        (m::FAILED_CALLS, to_f64(n_failed)),
    ]))
}

/// Makes the managed bad server flood, and sends it more than its pipe holds while it does not read.
fn make_bad(client: &Arc<ManagerClient<false>>, bad_calls: &mut JoinSet<()>) -> anyhow::Result<()> {
    let flood = Call::flood()?;
    let unread = json!({ "text": "x".repeat(MIB) });
    for arguments in [flood.arguments, unread] {
        let client = Arc::clone(client);
        bad_calls.spawn(async move {
            let result = client.0.call_tool(&server_name(BAD_SERVER), flood.tool, &arguments).await;
            // Any result means that the bad server stopped; the scenario checks for completed tasks.
            drop(result);
        });
    }
    Ok(())
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
        let sequential = report(Load::Sequential, &through_manager, &direct).unwrap();
        assert_eq!(sequential.get(m::P50_OVER_CLIENT), Some(1.1));
        assert_eq!(sequential.get(m::CPU_OVER_CLIENT), Some(1.5));
        let in_flight = report(Load::InFlight(64), &through_manager, &direct).unwrap();
        assert_eq!(in_flight.get(m::TIME_OVER_CLIENT), Some(1.25));
        assert!(report(Load::Sequential, &Side::default(), &direct).is_err());
    }
}
