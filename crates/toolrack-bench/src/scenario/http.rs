//! What is measured over HTTP, and each scenario as a client goes through it.

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

/// Calls in flight, where there are several.
pub(crate) const IN_FLIGHT: usize = 64;
/// The text of the small result.
const SMALL_BYTES: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Sequential,
    InFlight,
    /// A run of a given length, to be compared with another one.
    Counted,
}

/// What a scenario over HTTP consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HttpWorkload {
    pub(crate) load: Load,
    pub(crate) framing: Framing,
    pub(crate) text_bytes: usize,
}

impl HttpWorkload {
    /// The workload of a scenario, if that is about HTTP.
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

/// What one client process is asked to do.
#[derive(Debug)]
pub(crate) struct HttpJob {
    pub(crate) workload: HttpWorkload,
    pub(crate) size: RunSize,
    /// The length of a run in a scenario that is measured by difference.
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

/// Keeps calls in flight, a task for each, and says how long each took in µs.
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
