//! Gateway scenarios: calls through a gateway compared with direct calls, and memory with many servers and sessions.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::measure::{self, Stopwatch, to_f64};
use super::stdio::{SETTLE_DELAY, close, keep_in_flight};
use super::{RunSize, Scenario};
use crate::clients::bare_hyper::Session;
use crate::clients::gateways::{self, GatewayClient, GatewayTransport};
use crate::clients::{BenchClient as _, Call, ClientName};
use crate::report::{Metric, Report};
use crate::resource_usage;
use crate::server_process::{ServerCommand, ServerProcess};

const IN_FLIGHT: usize = 64;
const N_SERVERS: usize = 100;
const N_SESSIONS: usize = 1_000;
/// Sessions that are opened concurrently.
const MAX_OPENING: usize = 16;
/// Python takes long to start.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) async fn run(
    name: ClientName,
    scenario: Scenario,
    size: RunSize,
) -> anyhow::Result<Report> {
    let transport = match scenario {
        Scenario::GatewayHttp | Scenario::GatewayHttp64 => GatewayTransport::Http,
        Scenario::GatewayStdio | Scenario::GatewayStdio64 => GatewayTransport::Stdio,
        Scenario::GatewayMemory => return memory().await,
        other => bail!("{other:?} is not a gateway scenario"),
    };
    if name == ClientName::Direct {
        let client = GatewayClient::start(name, ServerCommand::with_tools(10)?).await?;
        return calls(client, scenario, size).await;
    }
    let command = gateways::with_one_server(name, transport)?;
    if transport == GatewayTransport::Stdio {
        return calls(GatewayClient::start(name, command).await?, scenario, size).await;
    }
    let process = ServerProcess::start(&command)?;
    let url = wait_listening(&process).await?;
    let report = calls(GatewayClient::connect_http(name, &url).await?, scenario, size).await;
    process.stop()?;
    report
}

async fn calls(client: GatewayClient, scenario: Scenario, size: RunSize) -> anyhow::Result<Report> {
    let report = match scenario {
        Scenario::GatewayHttp64 | Scenario::GatewayStdio64 => {
            keep_in_flight(&client, IN_FLIGHT, size.window / 5).await?;
            let stopwatch = Stopwatch::start();
            let n_calls = keep_in_flight(&client, IN_FLIGHT, size.window).await?;
            stopwatch.per_call(n_calls)
        }
        _ => {
            let echo = Call::echo()?;
            measure::sequential(size.window, async || call_and_check(&client, &echo).await).await?
        }
    };
    close(client).await?;
    Ok(report)
}

async fn call_and_check(client: &GatewayClient, call: &Call) -> anyhow::Result<()> {
    let received = client.call(call).await?;
    ensure!(received == 100, "{received} B of text instead of 100");
    Ok(())
}

/// Returns the URL that the gateway printed, once it accepts connections.
async fn wait_listening(process: &ServerProcess) -> anyhow::Result<String> {
    let url =
        process.first_line.strip_prefix("listening ").context("the gateway printed no address")?;
    let address = url.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    let address = address.context("the gateway printed no address")?;
    let reachable = async {
        while TcpStream::connect(address).is_err() {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(LISTEN_TIMEOUT, reachable).await.context("the gateway does not accept connections")?;
    Ok(url.to_owned())
}

/// Resident memory of the gateway process, without guardians and servers.
///
/// Every session has listed the tools and keeps its stream open.
async fn memory() -> anyhow::Result<Report> {
    resource_usage::raise_open_file_limit()?;
    let process = ServerProcess::start(&gateways::with_servers(N_SERVERS)?)?;
    let url = wait_listening(&process).await?;
    // The first session includes one-time allocations.
    let mut sessions = vec![Session::open(&url).await?];
    sleep(SETTLE_DELAY).await;
    let before = resource_usage::resident_of(process.id())?;
    sessions.extend(open_sessions(&url, N_SESSIONS - 1).await?);
    sleep(SETTLE_DELAY).await;
    let after = resource_usage::resident_of(process.id())?;
    let n_open = sessions.iter().filter(|session| session.is_open()).count();
    ensure!(n_open == N_SESSIONS, "{n_open} of {N_SESSIONS} sessions are open");
    drop(sessions);
    process.stop()?;
    let kib_to_f64 = |kib: u64| to_f64(usize::try_from(kib).unwrap_or(usize::MAX));
    Ok(Report::from([
        (Metric::ServersMib, kib_to_f64(before) / 1024.0),
        (Metric::SessionsMib, kib_to_f64(after) / 1024.0),
        (Metric::KibPerSession, kib_to_f64(after.saturating_sub(before)) / to_f64(N_SESSIONS)),
    ]))
}

async fn open_sessions(url: &str, n_sessions: usize) -> anyhow::Result<Vec<Session>> {
    let (mut opening, mut open) = (JoinSet::new(), Vec::new());
    for _ in 0..n_sessions {
        if opening.len() >= MAX_OPENING {
            open.push(opening.join_next().await.context("no session is being opened")???);
        }
        let url = url.to_owned();
        opening.spawn(async move { Session::open(&url).await });
    }
    while let Some(session) = opening.join_next().await {
        open.push(session??);
    }
    Ok(open)
}
