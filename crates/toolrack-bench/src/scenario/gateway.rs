//! Gateway scenarios: calls through a gateway compared with direct calls, and memory with many servers and sessions.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Work;
use super::calls::{Job, run_calls};
use super::measure::{SETTLE_DELAY, count, to_f64};
use crate::clients::bare_hyper::Session;
use crate::clients::cli_programs::{built_path, installed_path};
use crate::clients::{BenchClient as _, Call, ClientName, Toolrack};
use crate::metric::{self as m, Report};
use crate::resource_usage;
use crate::server_process::{ServerCommand, ServerProcess};

const PYTHON: &str = "tests/servers/python/fastmcp/venv/bin/python";
const PROXY: &str = "tests/bench/proxy.py";

const N_SERVERS: usize = 100;
const N_SESSIONS: usize = 1_000;
/// Sessions that are opened concurrently.
const MAX_OPENING: usize = 16;
/// Python takes long to start.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) async fn run(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    let work = job.work;
    if work == Work::GatewayMemory {
        return memory().await;
    }
    let command = match client {
        ClientName::Direct => ServerCommand::with_tools(10)?,
        ClientName::Gateway => toolrack_gateway(1, work)?,
        ClientName::FastMcp => fastmcp_proxy(work)?,
        other => bail!("{other:?} is not a gateway"),
    };
    let mut call = Call::echo()?;
    if client == ClientName::Gateway {
        // Our gateway prefixes tool names with the server name.
        call.tool = "bench-0_echo";
    }
    let report = if client == ClientName::Direct || is_stdio(work) {
        let client = Toolrack::<false>::start(&command).await?;
        wait_for_tools(&client).await?;
        run_calls(job, client, &call).await?
    } else {
        let process = ServerProcess::start(&command)?;
        let url = wait_listening(&process).await?;
        let client = Toolrack::<false>::connect_http(&url).await?;
        wait_for_tools(&client).await?;
        let report = run_calls(job, client, &call).await;
        process.stop()?;
        report?
    };
    Ok(report)
}

/// Waits until the gateway has connected to its server.
async fn wait_for_tools(client: &Toolrack<false>) -> anyhow::Result<()> {
    let are_listed = async {
        while client.list_tools().await? == 0 {
            sleep(POLL_INTERVAL).await;
        }
        anyhow::Ok(())
    };
    timeout(LISTEN_TIMEOUT, are_listed).await.context("the gateway lists no tools")?
}

/// Whether the gateway and its clients use stdio.
fn is_stdio(work: Work) -> bool {
    matches!(work, Work::GatewayStdio(_))
}

/// Command of our gateway with servers `bench-0`, `bench-1` and so on.
fn toolrack_gateway(n_servers: usize, work: Work) -> anyhow::Result<ServerCommand> {
    let server = ServerCommand::with_tools(10)?;
    let mut args = Vec::new();
    if !is_stdio(work) {
        args.extend(["--http", "127.0.0.1:0"].map(str::to_owned));
    }
    for n in 0..n_servers {
        args.extend(["--server".to_owned(), format!("bench-{n}"), server.program_text()?]);
        args.extend(server.args.iter().cloned());
    }
    Ok(ServerCommand { program: built_path("toolrack-endpoint", "gateway")?, args })
}

fn fastmcp_proxy(work: Work) -> anyhow::Result<ServerCommand> {
    let server = ServerCommand::with_tools(10)?;
    let transport = if is_stdio(work) { "stdio" } else { "http" };
    let proxy = installed_path(Path::new(PROXY))?.display().to_string();
    let mut args = vec![proxy, transport.to_owned(), server.program_text()?];
    args.extend(server.args);
    Ok(ServerCommand { program: installed_path(Path::new(PYTHON))?, args })
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
    let process = ServerProcess::start(&toolrack_gateway(N_SERVERS, Work::GatewayMemory)?)?;
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
    Ok(Report::from([
        (m::SERVERS_MIB, to_f64(before) / 1024.0),
        (m::SESSIONS_MIB, to_f64(after) / 1024.0),
        (m::KIB_PER_SESSION, to_f64(after.saturating_sub(before)) / count(N_SESSIONS)),
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
