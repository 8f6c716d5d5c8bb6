//! Calls through a gateway beside calls on the server itself, and the memory of a gateway with many of both.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::measure::{self, Spent, count};
use super::stdio::{SETTLING, close, flood};
use super::{Scenario, Size};
use crate::clients::bare_hyper::Session;
use crate::clients::gateways::{self, Behind, Front};
use crate::clients::{Call, Caller as _, ClientName};
use crate::report::{Metric, Report};
use crate::resource_usage;
use crate::server_process::{RemoteProcess, ServerCommand};

const IN_FLIGHT: usize = 64;
const N_SERVERS: usize = 100;
const N_SESSIONS: usize = 1_000;
/// Sessions that are opened at the same time.
const AT_ONCE: usize = 16;
/// An interpreter takes its time before it listens.
const LISTENING: Duration = Duration::from_secs(30);
const POLLING: Duration = Duration::from_millis(20);

pub(crate) async fn drive(
    client: ClientName,
    scenario: Scenario,
    size: Size,
) -> anyhow::Result<Report> {
    let front = match scenario {
        Scenario::GatewayHttp | Scenario::GatewayHttp64 => Front::Http,
        Scenario::GatewayStdio | Scenario::GatewayStdio64 => Front::Stdio,
        Scenario::GatewayMemory => return memory().await,
        other => bail!("{other:?} is not about gateways"),
    };
    if client == ClientName::Direct {
        let caller = Behind::start(client, ServerCommand::with_tools(10)?).await?;
        return calls(caller, scenario, size).await;
    }
    let command = gateways::before_one(client, front)?;
    if front == Front::Stdio {
        return calls(Behind::start(client, command).await?, scenario, size).await;
    }
    let process = RemoteProcess::start(&command)?;
    let url = listening(&process).await?;
    let report = calls(Behind::reach(client, &url).await?, scenario, size).await;
    process.end()?;
    report
}

async fn calls(caller: Behind, scenario: Scenario, size: Size) -> anyhow::Result<Report> {
    let report = match scenario {
        Scenario::GatewayHttp64 | Scenario::GatewayStdio64 => {
            flood(&caller, IN_FLIGHT, size.window / 5).await?;
            let spent = Spent::start();
            let n_calls = flood(&caller, IN_FLIGHT, size.window).await?;
            spent.per_call(n_calls)
        }
        _ => {
            let echo = Call::echo()?;
            measure::sequential(size.window, async || checked(&caller, &echo).await).await?
        }
    };
    close(caller).await?;
    Ok(report)
}

async fn checked(caller: &Behind, call: &Call) -> anyhow::Result<()> {
    let received = caller.call(call).await?;
    ensure!(received == 100, "{received} B of text instead of 100");
    Ok(())
}

/// The address that a gateway has said, once somebody answers there.
async fn listening(process: &RemoteProcess) -> anyhow::Result<String> {
    let url = process.said.strip_prefix("listening ").context("the gateway said no address")?;
    let address = url.strip_prefix("http://").and_then(|rest| rest.split('/').next());
    let address = address.context("the gateway said no address")?;
    let answered = async {
        while TcpStream::connect(address).is_err() {
            sleep(POLLING).await;
        }
    };
    timeout(LISTENING, answered).await.context("nobody listens")?;
    Ok(url.to_owned())
}

/// Of our process only: guardians and servers are others. Every session has listed the tools, and its stream is open.
async fn memory() -> anyhow::Result<Report> {
    resource_usage::allow_many_files()?;
    let process = RemoteProcess::start(&gateways::before_many(N_SERVERS)?)?;
    let url = listening(&process).await?;
    // One session pays for what there is once for all.
    let mut sessions = vec![Session::open(&url).await?];
    sleep(SETTLING).await;
    let before = resource_usage::resident_of(process.id())?;
    sessions.extend(opened(&url, N_SESSIONS - 1).await?);
    sleep(SETTLING).await;
    let after = resource_usage::resident_of(process.id())?;
    let n_open = sessions.iter().filter(|session| session.is_open()).count();
    ensure!(n_open == N_SESSIONS, "{n_open} of {N_SESSIONS} sessions are open");
    drop(sessions);
    process.end()?;
    let float = |kib: u64| count(usize::try_from(kib).unwrap_or(usize::MAX));
    Ok(Report::from([
        (Metric::ServersMib, float(before) / 1024.0),
        (Metric::SessionsMib, float(after) / 1024.0),
        (Metric::KibPerSession, float(after.saturating_sub(before)) / count(N_SESSIONS)),
    ]))
}

async fn opened(url: &str, n_sessions: usize) -> anyhow::Result<Vec<Session>> {
    let (mut opening, mut open) = (JoinSet::new(), Vec::new());
    for _ in 0..n_sessions {
        if opening.len() >= AT_ONCE {
            open.push(opening.join_next().await.context("nothing opens")???);
        }
        let url = url.to_owned();
        opening.spawn(async move { Session::open(&url).await });
    }
    while let Some(session) = opening.join_next().await {
        open.push(session??);
    }
    Ok(open)
}
