//! Each scenario as a client goes through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::measure::{self, Footprint, Spent};
use super::{MIB, Scenario, Size};
use crate::clients::{Call, Caller, Contender};
use crate::report::{Metric, Report};
use crate::resource_usage;
use crate::server_process::ServerCommand;
use crate::stats::{median, quantile};

/// Ending a line may take the peer's own patience with its child, but not longer.
const CLOSING: Duration = Duration::from_secs(10);

/// Slow calls in flight while a fast one is timed.
const SLOW_CALLS: usize = 4;
/// After this the slow calls have been sent.
const SENDING: Duration = Duration::from_millis(20);
/// How long fast calls are timed beside the slow ones, which take longer than this.
const BESIDE_SLOW: Duration = Duration::from_millis(300);
const SLOW_ROUNDS: usize = 3;

/// After this an idle line has given back what it gives back.
pub(super) const SETTLING: Duration = Duration::from_millis(300);

/// What one client process is asked to do.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) scenario: Scenario,
    pub(crate) size: Size,
    /// The length of a run in a scenario that is measured by difference.
    pub(crate) n_calls: u32,
    pub(crate) server: ServerCommand,
}

pub(crate) async fn drive<C: Contender>(job: &Job) -> anyhow::Result<Report> {
    match job.scenario {
        Scenario::Connect => return connect::<C>(job).await,
        Scenario::IdleLines => return idle_lines::<C>(job).await,
        Scenario::Tools5000 => return tool_list::<C>(job).await,
        _ => {}
    }
    let client = C::connect(&job.server).await?;
    let report = on_one_line(job, &client).await?;
    close(client).await?;
    Ok(report)
}

async fn on_one_line<C: Contender>(job: &Job, client: &C) -> anyhow::Result<Report> {
    let window = job.size.window;
    let call = Call::echo()?;
    let echo = async || client.call(&call).await.map(drop);
    match job.scenario {
        Scenario::Sequential => measure::sequential(window, echo).await,
        Scenario::Instructions
        | Scenario::Allocations
        | Scenario::RackInstructions
        | Scenario::RackAllocations => measure::counted(job.n_calls, echo).await,
        Scenario::InFlight64 => in_flight(client, 64, window).await,
        Scenario::InFlight1024 => in_flight(client, 1024, window).await,
        Scenario::HeadOfLine => head_of_line(client, window).await,
        Scenario::Result1Escaped => big(job, client, Call::big_with_escapes(MIB)?, MIB).await,
        Scenario::Result8 => big(job, client, Call::big(8 * MIB)?, 8 * MIB).await,
        Scenario::Result16 => big(job, client, Call::big(16 * MIB)?, 16 * MIB).await,
        other => bail!("{other:?} is not about one line on stdio"),
    }
}

pub(super) async fn close<C: Caller>(client: C) -> anyhow::Result<()> {
    timeout(CLOSING, client.close()).await?
}

async fn in_flight<C: Contender>(
    client: &C,
    n_in_flight: usize,
    window: Duration,
) -> anyhow::Result<Report> {
    flood(client, n_in_flight, window / 5).await?;
    let spent = Spent::start();
    let n_calls = flood(client, n_in_flight, window).await?;
    Ok(spent.per_call(n_calls))
}

/// Keeps calls in flight, a task for each, and says how many were answered.
pub(super) async fn flood<C: Caller>(
    client: &C,
    n_in_flight: usize,
    window: Duration,
) -> anyhow::Result<usize> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..n_in_flight {
        let client = client.clone();
        let stop = Arc::clone(&stop);
        callers.spawn(async move {
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
    while let Some(caller) = callers.join_next().await {
        n_calls += caller??;
    }
    Ok(n_calls)
}

async fn head_of_line<C: Contender>(client: &C, window: Duration) -> anyhow::Result<Report> {
    let call = Call::echo()?;
    let echo = async || client.call(&call).await.map(drop);
    measure::warm_up(echo).await?;
    let alone = measure::latencies(window, echo).await?;
    let mut beside_slow = Vec::new();
    for _ in 0..SLOW_ROUNDS {
        let mut slow = JoinSet::new();
        for _ in 0..SLOW_CALLS {
            let client = client.clone();
            slow.spawn(async move { client.call(&Call::slow()?).await });
        }
        sleep(SENDING).await;
        beside_slow.extend(measure::latencies(BESIDE_SLOW, echo).await?);
        while let Some(answered) = slow.join_next().await {
            answered??;
        }
    }
    let mut report = Report::new();
    if let (Some(alone), Some(loaded), Some(loaded_p99)) =
        (median(&alone), median(&beside_slow), quantile(&beside_slow, 0.99))
    {
        report.insert(Metric::AloneMicros, alone);
        report.insert(Metric::LoadedMicros, loaded);
        report.insert(Metric::LoadedP99Micros, loaded_p99);
        report.insert(Metric::LoadedOverAlone, loaded / alone);
    }
    Ok(report)
}

async fn big<C: Contender>(
    job: &Job,
    client: &C,
    call: Call,
    text_bytes: usize,
) -> anyhow::Result<Report> {
    let echo = Call::echo()?;
    measure::warm_up(async || client.call(&echo).await.map(drop)).await?;
    let footprint = Footprint::start()?;
    let report = measure::operations(job.size.n_operations, async || {
        let received = client.call(&call).await?;
        ensure!(received == text_bytes, "{received} B of text instead of {text_bytes}");
        Ok(())
    })
    .await?;
    footprint.added_to(report)
}

/// Some clients list the tools when they connect. So what is idle is a client of a small server, and the
/// memory is that of connecting to the large one and having its list once. The time is that of asking.
async fn tool_list<C: Contender>(job: &Job) -> anyhow::Result<Report> {
    let small = C::connect(&ServerCommand::with_tools(1)?).await?;
    let echo = Call::echo()?;
    measure::warm_up(async || small.call(&echo).await.map(drop)).await?;
    close(small).await?;
    let footprint = Footprint::start()?;
    let client = C::connect(&job.server).await?;
    as_many_as_expected(job, client.known_tools().await?)?;
    let mut report = footprint.added_to(Report::new())?;
    let times = measure::operations(job.size.n_operations, async || {
        as_many_as_expected(job, client.list_tools().await?)
    });
    report.extend(times.await?);
    report.insert(Metric::AgainOverIdleMegabytes, footprint.over_idle()?);
    close(client).await?;
    Ok(report)
}

fn as_many_as_expected(job: &Job, n_tools: usize) -> anyhow::Result<()> {
    let expected = job.scenario.n_tools();
    ensure!(n_tools == expected, "{n_tools} tools instead of {expected}");
    Ok(())
}

async fn connect<C: Contender>(job: &Job) -> anyhow::Result<Report> {
    let mut times = Vec::new();
    // The first one pays for what is lazy, and is not counted.
    for n in 0..=job.size.n_connects {
        let spent = Spent::start();
        let client = C::connect(&job.server).await?;
        as_many_as_expected(job, client.known_tools().await?)?;
        if n > 0 {
            times.push(spent.so_far());
        }
        close(client).await?;
    }
    measure::connects(&times)
}

async fn idle_lines<C: Contender>(job: &Job) -> anyhow::Result<Report> {
    let first = idle_line::<C>(job).await?;
    sleep(SETTLING).await;
    let before = resource_usage::Memory::of_this_process()?;
    let mut lines = Vec::new();
    for _ in 0..job.size.n_lines {
        lines.push(idle_line::<C>(job).await?);
    }
    sleep(SETTLING).await;
    let report = measure::idle_lines(before, job.size.n_lines)?;
    close(first).await?;
    for line in lines {
        close(line).await?;
    }
    Ok(report)
}

/// A line that has listed and called, and now does nothing.
async fn idle_line<C: Contender>(job: &Job) -> anyhow::Result<C> {
    let client = C::connect(&job.server).await?;
    as_many_as_expected(job, client.known_tools().await?)?;
    client.call(&Call::echo()?).await?;
    Ok(client)
}
