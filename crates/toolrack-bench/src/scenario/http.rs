//! Scenarios on an HTTP server, generic over the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::measure::{self, Stopwatch};
use super::stdio::close;
use super::{MIB, RunSize, Scenario};
use crate::clients::{BenchClient, Call, HttpClient};
use crate::report::Report;
use crate::server::http::Framing;
use crate::server_process::HttpServer;
use crate::system;

/// Number of calls in flight with [`Load::InFlight`].
pub(crate) const IN_FLIGHT: usize = 64;
/// Text length of the small result.
const SMALL_BYTES: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Sequential,
    InFlight,
    /// A fixed number of calls, for measuring by difference.
    Counted,
}

/// Load, response framing and result size of an HTTP scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HttpWorkload {
    pub(crate) load: Load,
    pub(crate) framing: Framing,
    pub(crate) text_bytes: usize,
}

impl HttpWorkload {
    /// Returns `None` for scenarios of other subjects.
    pub(crate) fn for_scenario(scenario: Scenario) -> Option<Self> {
        use Framing::{Events, Json};
        use Load::{Counted, InFlight, Sequential};
        let (load, framing, text_bytes) = match scenario {
            Scenario::HttpJson => (Sequential, Json, SMALL_BYTES),
            Scenario::HttpEvents => (Sequential, Events, SMALL_BYTES),
            Scenario::HttpJson64 => (InFlight, Json, SMALL_BYTES),
            Scenario::HttpEvents64 => (InFlight, Events, SMALL_BYTES),
            Scenario::HttpJsonMib => (Sequential, Json, MIB),
            Scenario::HttpEventsMib => (Sequential, Events, MIB),
            Scenario::HttpJsonMib64 => (InFlight, Json, MIB),
            Scenario::HttpEventsMib64 => (InFlight, Events, MIB),
            Scenario::HttpInstructions | Scenario::HttpAllocations => (Counted, Json, SMALL_BYTES),
            _ => return None,
        };
        Some(Self { load, framing, text_bytes })
    }
}

/// Work of one client process.
#[derive(Debug)]
pub(crate) struct HttpJob {
    pub(crate) workload: HttpWorkload,
    pub(crate) size: RunSize,
    /// Run length of a scenario measured by difference.
    pub(crate) n_calls: u32,
    pub(crate) server: HttpServer,
}

impl HttpJob {
    pub(crate) fn call(&self) -> anyhow::Result<Call> {
        match self.workload.text_bytes {
            SMALL_BYTES => Call::echo(),
            text_bytes => Call::big(text_bytes),
        }
    }
}

pub(crate) async fn run<C: HttpClient>(job: &HttpJob) -> anyhow::Result<Report> {
    let client = C::connect(&job.server).await?;
    let prepared = job.call()?;
    let call = async || call_and_check(&client, &prepared, job.workload.text_bytes).await;
    let report = match job.workload.load {
        Load::Sequential => measure::sequential(job.size.window, call).await?,
        Load::Counted => measure::fixed_calls(job.n_calls, call).await?,
        Load::InFlight => in_flight(job, &client).await?,
    };
    close(client).await?;
    Ok(report)
}

async fn call_and_check<C: BenchClient>(
    client: &C,
    call: &Call,
    text_bytes: usize,
) -> anyhow::Result<()> {
    let received = client.call(call).await?;
    ensure!(received == text_bytes, "{received} B of text instead of {text_bytes}");
    Ok(())
}

async fn in_flight<C: BenchClient>(job: &HttpJob, client: &C) -> anyhow::Result<Report> {
    keep_in_flight(job, client, job.size.window / 5).await?;
    let stopwatch = Stopwatch::start();
    let micros = keep_in_flight(job, client, job.size.window).await?;
    measure::add_latencies(stopwatch.per_call(micros.len()), &micros)
}

/// Keeps calls in flight, one task per call, and returns the latencies in µs.
async fn keep_in_flight<C: BenchClient>(
    job: &HttpJob,
    client: &C,
    window: Duration,
) -> anyhow::Result<Vec<f64>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let (client, stop) = (client.clone(), Arc::clone(&stop));
        let (call, text_bytes) = (job.call()?, job.workload.text_bytes);
        tasks.spawn(async move {
            let mut micros = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let before = system::now();
                call_and_check(&client, &call, text_bytes).await?;
                micros.push((system::now() - before).as_secs_f64() * 1e6);
            }
            anyhow::Ok(micros)
        });
    }
    sleep(window).await;
    stop.store(true, Ordering::Relaxed);
    let mut micros = Vec::new();
    while let Some(latencies) = tasks.join_next().await {
        micros.extend(latencies??);
    }
    Ok(micros)
}
