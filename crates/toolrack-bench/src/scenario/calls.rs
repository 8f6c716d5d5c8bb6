//! Scenarios on one server, generic over the client: calls, large results, lists and connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use toolrack_testkit::harness::now;

use super::measure::{self, PeakMemory, Stopwatch, micros_since, p99_of};
use super::{Load, MIB, RunSize, SMALL, Work};
use crate::clients::{BenchClient, Call};
use crate::metric::{self as m, Report};
use crate::server_process::ServerCommand;

/// Longer than any measured client waits for its server to exit.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Slow calls in flight while a fast one is timed.
const SLOW_CALLS: usize = 4;
/// Time after which the slow calls have been sent.
const SEND_DELAY: Duration = Duration::from_millis(20);
/// Duration of the fast calls; shorter than a slow call, so the slow ones are in flight all the time.
const SLOW_WINDOW: Duration = Duration::from_millis(300);
const SLOW_ROUNDS: usize = 3;

/// Work of one client process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) size: RunSize,
    /// Run length of a scenario measured by difference.
    pub(crate) n_calls: u32,
}

impl Job {
    /// The call that the scenario repeats.
    pub(crate) fn call(&self) -> anyhow::Result<Call> {
        match self.work {
            Work::LargeResult(mib) => Call::big(mib * MIB),
            Work::EscapedResult(mib) => Call::big_with_escapes(mib * MIB),
            Work::Http(_, _, text_bytes) if text_bytes != SMALL => Call::big(text_bytes),
            _ => Call::echo(),
        }
    }
}

/// Runs a scenario on stdio servers that the client starts.
pub(crate) async fn run_stdio<C: BenchClient>(
    job: &Job,
    connect: impl AsyncFn(&ServerCommand) -> anyhow::Result<C>,
) -> anyhow::Result<Report> {
    let n_tools = job.work.n_tools();
    let server = ServerCommand::with_tools(n_tools)?;
    let connect_and_list = async || {
        let client = Arc::new(connect(&server).await?);
        check_tool_count(client.initial_tools().await?, n_tools)?;
        Ok(client)
    };
    match job.work {
        Work::Connect => measure::connects(job.size.n_connects, connect_and_list, close).await,
        Work::ConnectInstructions => {
            for _ in 0..job.n_calls {
                close(connect_and_list().await?).await?;
            }
            Ok(Report::default())
        }
        Work::ToolListInstructions => {
            let client = connect_and_list().await?;
            for _ in 0..job.n_calls {
                check_tool_count(client.list_tools().await?, n_tools)?;
            }
            close(client).await?;
            Ok(Report::default())
        }
        Work::Idle => {
            // A connection that has listed tools and made a call, and is now idle.
            let connect_idle = async || {
                let client = connect_and_list().await?;
                client.call(&Call::echo()?).await?;
                Ok(client)
            };
            measure::idle_connections(job.size.n_connections, connect_idle, close).await
        }
        Work::ToolList => {
            // Some clients list the tools while they connect, so the idle baseline is a client of a server with one
            // tool.
            let small = Arc::new(connect(&ServerCommand::with_tools(1)?).await?);
            warm_up(&small).await?;
            close(small).await?;
            let peak_memory = PeakMemory::start()?;
            let client = connect_and_list().await?;
            let mut report = Report::default();
            peak_memory.add_to(&mut report)?;
            let times = measure::repeat_operation(job.size.n_operations, async || {
                check_tool_count(client.list_tools().await?, n_tools)
            });
            report.0.extend(times.await?.0);
            report.insert(m::RELIST_MB, peak_memory.over_idle()?);
            close(client).await?;
            Ok(report)
        }
        _ => run(job, connect(&server).await?).await,
    }
}

fn check_tool_count(n_tools: usize, expected: usize) -> anyhow::Result<()> {
    ensure!(n_tools == expected, "{n_tools} tools instead of {expected}");
    Ok(())
}

/// Runs a scenario of one connection, and closes it.
pub(crate) async fn run<C: BenchClient>(job: &Job, client: C) -> anyhow::Result<Report> {
    run_calls(job, client, &job.call()?).await
}

/// The same with another call.
pub(crate) async fn run_calls<C: BenchClient>(
    job: &Job,
    client: C,
    call: &Call,
) -> anyhow::Result<Report> {
    let client = Arc::new(client);
    let report = repeat_calls(job, &client, call).await?;
    close(client).await?;
    Ok(report)
}

async fn repeat_calls<C: BenchClient>(
    job: &Job,
    client: &Arc<C>,
    call: &Call,
) -> anyhow::Result<Report> {
    let window = job.size.window;
    let call_and_check = async || checked(client, call).await;
    match (job.work, job.work.load()) {
        (_, Some(Load::Sequential)) => measure::sequential(window, call_and_check).await,
        (_, Some(Load::Instructions | Load::Allocations)) => {
            measure::fixed_calls(job.n_calls, call_and_check).await
        }
        (work, Some(Load::InFlight(n_in_flight))) => {
            let latencies =
                if matches!(work, Work::Http(..)) { Latencies::Timed } else { Latencies::Untimed };
            in_flight(client, call, (n_in_flight, latencies), window).await
        }
        (Work::HeadOfLine, _) => head_of_line(client, call, window).await,
        (Work::LargeResult(_) | Work::EscapedResult(_), _) => {
            warm_up(client).await?;
            let peak_memory = PeakMemory::start()?;
            let mut report =
                measure::repeat_operation(job.size.n_operations, call_and_check).await?;
            peak_memory.add_to(&mut report)?;
            Ok(report)
        }
        (other, _) => bail!("{other:?} is not a scenario of one connection"),
    }
}

/// Makes a call and checks the length of its result.
pub(crate) async fn checked<C: BenchClient>(client: &Arc<C>, call: &Call) -> anyhow::Result<()> {
    let received = client.call(call).await?;
    ensure!(received == call.text_bytes, "{received} B of text instead of {}", call.text_bytes);
    Ok(())
}

pub(crate) async fn close<C: BenchClient>(client: Arc<C>) -> anyhow::Result<()> {
    let client = Arc::into_inner(client).context("a call is still in flight")?;
    timeout(CLOSE_TIMEOUT, client.close()).await?
}

pub(crate) async fn warm_up<C: BenchClient>(client: &Arc<C>) -> anyhow::Result<()> {
    let echo = Call::echo()?;
    measure::warm_up(async || checked(client, &echo).await).await
}

/// Whether each call in flight is timed, which takes a share of a fast call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Latencies {
    Timed,
    Untimed,
}

async fn in_flight<C: BenchClient>(
    client: &Arc<C>,
    call: &Call,
    load: (usize, Latencies),
    window: Duration,
) -> anyhow::Result<Report> {
    // Warm-up.
    keep_in_flight(client, call, load, window / 5).await?;
    let stopwatch = Stopwatch::start();
    let (n_calls, micros) = keep_in_flight(client, call, load, window).await?;
    let mut report = stopwatch.per_call(n_calls);
    if load.1 == Latencies::Timed {
        measure::add_latencies(&mut report, &micros)?;
    }
    Ok(report)
}

/// Keeps calls in flight, one task per call. Returns how many completed, and their latencies in µs if they are timed.
pub(crate) async fn keep_in_flight<C: BenchClient>(
    client: &Arc<C>,
    call: &Call,
    (n_in_flight, latencies): (usize, Latencies),
    window: Duration,
) -> anyhow::Result<(usize, Vec<f64>)> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..n_in_flight {
        let (client, call, stop) = (Arc::clone(client), call.clone(), Arc::clone(&stop));
        tasks.spawn(async move {
            let (mut n_calls, mut micros) = (0, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                let before = (latencies == Latencies::Timed).then(now);
                checked(&client, &call).await?;
                n_calls += 1;
                micros.extend(before.map(micros_since));
            }
            anyhow::Ok((n_calls, micros))
        });
    }
    sleep(window).await;
    stop.store(true, Ordering::Relaxed);
    let (mut n_calls, mut micros) = (0, Vec::new());
    while let Some(task) = tasks.join_next().await {
        let (n, times) = task??;
        n_calls += n;
        micros.extend(times);
    }
    Ok((n_calls, micros))
}

async fn head_of_line<C: BenchClient>(
    client: &Arc<C>,
    echo: &Call,
    window: Duration,
) -> anyhow::Result<Report> {
    let fast = async || checked(client, echo).await;
    measure::warm_up(fast).await?;
    let alone = measure::latencies(window, fast).await?;
    let mut beside_slow = Vec::new();
    for _ in 0..SLOW_ROUNDS {
        let mut slow_calls = JoinSet::new();
        for _ in 0..SLOW_CALLS {
            let client = Arc::clone(client);
            slow_calls.spawn(async move { client.call(&Call::slow()?).await });
        }
        sleep(SEND_DELAY).await;
        beside_slow.extend(measure::latencies(SLOW_WINDOW, fast).await?);
        while let Some(result) = slow_calls.join_next().await {
            result??;
        }
    }
    let (alone, p50) = (measure::median_of(&alone)?, measure::median_of(&beside_slow)?);
    Ok(Report::from([
        (m::ALONE_P50, alone),
        (m::BESIDE_SLOW_P50, p50),
        (m::BESIDE_SLOW_P99, p99_of(&beside_slow)?),
        (m::BESIDE_SLOW_OVER_ALONE, p50 / alone),
    ]))
}
