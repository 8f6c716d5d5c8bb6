//! Scenarios on a stdio server, generic over the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::measure::{self, PeakMemory, Stopwatch};
use super::{MIB, RunSize, Scenario};
use crate::clients::{BenchClient, Call, StdioClient};
use crate::report::{Metric, Report};
use crate::resource_usage;
use crate::server_process::ServerCommand;
use crate::stats::{median, quantile};

/// Longer than any measured client waits for its server to exit.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Slow calls in flight while a fast one is timed.
const SLOW_CALLS: usize = 4;
/// Time after which the slow calls have been sent.
const SEND_DELAY: Duration = Duration::from_millis(20);
/// Duration of the fast calls; shorter than a slow call, so the slow ones are in flight all the time.
const SLOW_WINDOW: Duration = Duration::from_millis(300);
const SLOW_ROUNDS: usize = 3;

/// Time for idle connections to release temporary memory.
pub(super) const SETTLE_DELAY: Duration = Duration::from_millis(300);

/// Work of one client process.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) scenario: Scenario,
    pub(crate) size: RunSize,
    /// Run length of a scenario measured by difference.
    pub(crate) n_calls: u32,
    pub(crate) server: ServerCommand,
}

pub(crate) async fn run<C: StdioClient>(job: &Job) -> anyhow::Result<Report> {
    match job.scenario {
        Scenario::Connect => return connect::<C>(job).await,
        Scenario::IdleConnections => return idle_connections::<C>(job).await,
        Scenario::Tools5000 => return tool_list::<C>(job).await,
        _ => {}
    }
    let client = C::connect(&job.server).await?;
    let report = run_connected(job, &client).await?;
    close(client).await?;
    Ok(report)
}

async fn run_connected<C: StdioClient>(job: &Job, client: &C) -> anyhow::Result<Report> {
    let window = job.size.window;
    let call = Call::echo()?;
    let echo = async || client.call(&call).await.map(drop);
    match job.scenario {
        Scenario::Sequential => measure::sequential(window, echo).await,
        Scenario::Instructions
        | Scenario::Allocations
        | Scenario::ManagerInstructions
        | Scenario::ManagerAllocations => measure::fixed_calls(job.n_calls, echo).await,
        Scenario::InFlight64 => in_flight(client, 64, window).await,
        Scenario::InFlight1024 => in_flight(client, 1024, window).await,
        Scenario::HeadOfLine => head_of_line(client, window).await,
        Scenario::Result1Escaped => {
            large_result(job, client, Call::big_with_escapes(MIB)?, MIB).await
        }
        Scenario::Result8 => large_result(job, client, Call::big(8 * MIB)?, 8 * MIB).await,
        Scenario::Result16 => large_result(job, client, Call::big(16 * MIB)?, 16 * MIB).await,
        other => bail!("{other:?} is not a scenario of one stdio connection"),
    }
}

pub(super) async fn close<C: BenchClient>(client: C) -> anyhow::Result<()> {
    timeout(CLOSE_TIMEOUT, client.close()).await?
}

async fn in_flight<C: StdioClient>(
    client: &C,
    n_in_flight: usize,
    window: Duration,
) -> anyhow::Result<Report> {
    // Warm-up.
    keep_in_flight(client, n_in_flight, window / 5).await?;
    let stopwatch = Stopwatch::start();
    let n_calls = keep_in_flight(client, n_in_flight, window).await?;
    Ok(stopwatch.per_call(n_calls))
}

/// Keeps calls in flight, one task per call, and returns how many completed.
pub(super) async fn keep_in_flight<C: BenchClient>(
    client: &C,
    n_in_flight: usize,
    window: Duration,
) -> anyhow::Result<usize> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..n_in_flight {
        let client = client.clone();
        let stop = Arc::clone(&stop);
        tasks.spawn(async move {
            let call = Call::echo()?;
            let mut n_calls = 0;
            while !stop.load(Ordering::Relaxed) {
                client.call(&call).await?;
                n_calls += 1;
            }
            anyhow::Ok(n_calls)
        });
    }
    sleep(window).await;
    stop.store(true, Ordering::Relaxed);
    let mut n_calls = 0;
    while let Some(n) = tasks.join_next().await {
        n_calls += n??;
    }
    Ok(n_calls)
}

async fn head_of_line<C: StdioClient>(client: &C, window: Duration) -> anyhow::Result<Report> {
    let call = Call::echo()?;
    let echo = async || client.call(&call).await.map(drop);
    measure::warm_up(echo).await?;
    let alone = measure::latencies(window, echo).await?;
    let mut beside_slow = Vec::new();
    for _ in 0..SLOW_ROUNDS {
        let mut slow_calls = JoinSet::new();
        for _ in 0..SLOW_CALLS {
            let client = client.clone();
            slow_calls.spawn(async move { client.call(&Call::slow()?).await });
        }
        sleep(SEND_DELAY).await;
        beside_slow.extend(measure::latencies(SLOW_WINDOW, echo).await?);
        while let Some(result) = slow_calls.join_next().await {
            result??;
        }
    }
    let mut report = Report::new();
    if let (Some(alone), Some(p50), Some(p99)) =
        (median(&alone), median(&beside_slow), quantile(&beside_slow, 0.99))
    {
        report.insert(Metric::AloneMicros, alone);
        report.insert(Metric::BesideSlowMicros, p50);
        report.insert(Metric::BesideSlowP99Micros, p99);
        report.insert(Metric::BesideSlowOverAlone, p50 / alone);
    }
    Ok(report)
}

async fn large_result<C: StdioClient>(
    job: &Job,
    client: &C,
    call: Call,
    text_bytes: usize,
) -> anyhow::Result<Report> {
    let echo = Call::echo()?;
    measure::warm_up(async || client.call(&echo).await.map(drop)).await?;
    let peak_memory = PeakMemory::start()?;
    let report = measure::repeat_operation(job.size.n_operations, async || {
        let received = client.call(&call).await?;
        ensure!(received == text_bytes, "{received} B of text instead of {text_bytes}");
        Ok(())
    })
    .await?;
    peak_memory.add_to(report)
}

/// Time of `tools/list`, and memory of connecting and holding the list once.
///
/// Some clients list the tools while they connect, so the idle baseline is a client of a server with one tool.
async fn tool_list<C: StdioClient>(job: &Job) -> anyhow::Result<Report> {
    let small = C::connect(&ServerCommand::with_tools(1)?).await?;
    let echo = Call::echo()?;
    measure::warm_up(async || small.call(&echo).await.map(drop)).await?;
    close(small).await?;
    let peak_memory = PeakMemory::start()?;
    let client = C::connect(&job.server).await?;
    check_tool_count(job, client.initial_tools().await?)?;
    let mut report = peak_memory.add_to(Report::new())?;
    let times = measure::repeat_operation(job.size.n_operations, async || {
        check_tool_count(job, client.list_tools().await?)
    });
    report.extend(times.await?);
    report.insert(Metric::RelistOverIdleMegabytes, peak_memory.over_idle()?);
    close(client).await?;
    Ok(report)
}

fn check_tool_count(job: &Job, n_tools: usize) -> anyhow::Result<()> {
    let expected = job.scenario.n_tools();
    ensure!(n_tools == expected, "{n_tools} tools instead of {expected}");
    Ok(())
}

async fn connect<C: StdioClient>(job: &Job) -> anyhow::Result<Report> {
    let mut times = Vec::new();
    // The first connect includes lazy initialization and is not counted.
    for n in 0..=job.size.n_connects {
        let stopwatch = Stopwatch::start();
        let client = C::connect(&job.server).await?;
        check_tool_count(job, client.initial_tools().await?)?;
        if n > 0 {
            times.push(stopwatch.elapsed());
        }
        close(client).await?;
    }
    measure::connect_report(&times)
}

async fn idle_connections<C: StdioClient>(job: &Job) -> anyhow::Result<Report> {
    let first = connect_idle::<C>(job).await?;
    sleep(SETTLE_DELAY).await;
    let before = resource_usage::Memory::of_current_process()?;
    let mut clients = Vec::new();
    for _ in 0..job.size.n_connections {
        clients.push(connect_idle::<C>(job).await?);
    }
    sleep(SETTLE_DELAY).await;
    let report = measure::idle_connection_report(before, job.size.n_connections)?;
    close(first).await?;
    for client in clients {
        close(client).await?;
    }
    Ok(report)
}

/// A connection that has listed tools and made a call, and is now idle.
async fn connect_idle<C: StdioClient>(job: &Job) -> anyhow::Result<C> {
    let client = C::connect(&job.server).await?;
    check_tool_count(job, client.initial_tools().await?)?;
    client.call(&Call::echo()?).await?;
    Ok(client)
}
