//! Measuring of repeated operations: latency, throughput, CPU time, memory and allocations. Independent of the client.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::time::sleep;
use toolrack_testkit::harness::{self, median, now, quantile};

use crate::metric::{self as m, Report};
use crate::resource_usage::Memory;
use crate::{alloc, resource_usage};

/// Calls before a measurement, so that lazy initialization is done.
const WARM_UPS: usize = 100;

/// Time for idle connections to release temporary memory.
pub(crate) const SETTLE_DELAY: Duration = Duration::from_millis(300);

const NOTHING: &str = "nothing was measured";

pub(crate) fn median_of(values: &[f64]) -> anyhow::Result<f64> {
    median(values).context(NOTHING)
}

pub(crate) fn p99_of(values: &[f64]) -> anyhow::Result<f64> {
    quantile(values, 0.99).context(NOTHING)
}

pub(crate) fn micros_since(before: Instant) -> f64 {
    (now() - before).as_secs_f64() * 1e6
}

pub(crate) async fn warm_up(
    mut call: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for _ in 0..WARM_UPS {
        call().await?;
    }
    Ok(())
}

/// Latencies in µs of sequential calls; starts no call after `window` and makes at least one.
pub(crate) async fn latencies(
    window: Duration,
    mut call: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    let mut micros = Vec::new();
    let started = now();
    let mut before = started;
    loop {
        call().await?;
        let after = now();
        micros.push((after - before).as_secs_f64() * 1e6);
        before = after;
        if after - started >= window {
            return Ok(micros);
        }
    }
}

pub(crate) async fn sequential(
    window: Duration,
    mut call: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    warm_up(&mut call).await?;
    let stopwatch = Stopwatch::start();
    let micros = latencies(window, call).await?;
    let mut report = stopwatch.per_call(micros.len());
    add_latencies(&mut report, &micros)?;
    Ok(report)
}

/// Adds the p50 and p99 of latencies in µs.
pub(crate) fn add_latencies(report: &mut Report, micros: &[f64]) -> anyhow::Result<()> {
    report.insert(m::P50, median_of(micros)?);
    report.insert(m::P99, p99_of(micros)?);
    Ok(())
}

/// Median time and CPU time of a large operation.
pub(crate) async fn repeat_operation(
    n_operations: usize,
    mut operation: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    let (mut millis, mut cpu_millis) = (Vec::new(), Vec::new());
    for _ in 0..n_operations {
        let stopwatch = Stopwatch::start();
        operation().await?;
        stopwatch.stop(&mut millis, &mut cpu_millis);
    }
    Ok(Report::from([(m::MILLIS, median_of(&millis)?), (m::CPU_MILLIS, median_of(&cpu_millis)?)]))
}

/// Times of `n_connects` connections, one after the other.
pub(crate) async fn connects<T>(
    n_connects: usize,
    mut connect: impl AsyncFnMut() -> anyhow::Result<T>,
    mut close: impl AsyncFnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    let (mut millis, mut cpu_millis) = (Vec::new(), Vec::new());
    // The first connect includes lazy initialization and is not counted.
    close(connect().await?).await?;
    for _ in 0..n_connects {
        let stopwatch = Stopwatch::start();
        let connection = connect().await?;
        stopwatch.stop(&mut millis, &mut cpu_millis);
        close(connection).await?;
    }
    Ok(Report::from([
        (m::MILLIS, median_of(&millis)?),
        (m::P99_MILLIS, p99_of(&millis)?),
        (m::CPU_MILLIS, median_of(&cpu_millis)?),
    ]))
}

/// Memory of `n_connections` idle connections beyond a first one, which includes one-time allocations.
pub(crate) async fn idle_connections<T>(
    n_connections: usize,
    mut connect: impl AsyncFnMut() -> anyhow::Result<T>,
    mut close: impl AsyncFnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    let mut connections = vec![connect().await?];
    sleep(SETTLE_DELAY).await;
    let before = Memory::of_current_process()?;
    for _ in 0..n_connections {
        connections.push(connect().await?);
    }
    sleep(SETTLE_DELAY).await;
    let report = memory_per_connection(before, n_connections)?;
    for connection in connections {
        close(connection).await?;
    }
    Ok(report)
}

/// Memory that `n_connections` more idle connections added to this process since `before`.
pub(crate) fn memory_per_connection(
    before: Memory,
    n_connections: usize,
) -> anyhow::Result<Report> {
    let after = Memory::of_current_process()?;
    let per_connection =
        |after: u64, before: u64| to_f64(after.saturating_sub(before)) / count(n_connections);
    let mut report = Report::from([
        (m::RESIDENT_KIB, per_connection(after.resident, before.resident)),
        (m::ANONYMOUS_KIB, per_connection(after.anonymous, before.anonymous)),
    ]);
    let guardians: Vec<f64> =
        resource_usage::guardian_private_memory()?.into_iter().map(to_f64).collect();
    if let Some(private) = median(&guardians) {
        report.insert(m::GUARDIAN_KIB, private);
    }
    Ok(report)
}

/// Peak resident memory, compared with an idle baseline.
pub(crate) struct PeakMemory {
    idle: u64,
}

impl PeakMemory {
    pub(crate) fn start() -> anyhow::Result<Self> {
        harness::reset_peak_memory(std::process::id())
            .context("cannot reset the peak of resident memory")?;
        Ok(Self { idle: Memory::of_current_process()?.resident })
    }

    /// Adds the peak since the start, absolute and above idle.
    pub(crate) fn add_to(&self, report: &mut Report) -> anyhow::Result<()> {
        report.insert(m::PEAK_MB, megabytes(resource_usage::peak_resident_of(std::process::id())?));
        report.insert(m::OVER_IDLE_MB, self.over_idle()?);
        Ok(())
    }

    pub(crate) fn over_idle(&self) -> anyhow::Result<f64> {
        let peak = resource_usage::peak_resident_of(std::process::id())?;
        Ok(megabytes(peak.saturating_sub(self.idle)))
    }
}

/// Allocations of `n_calls`. The difference of two runs leaves only the cost of calls.
pub(crate) async fn fixed_calls(
    n_calls: u32,
    mut call: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    warm_up(&mut call).await?;
    let before = alloc::counted();
    for _ in 0..n_calls {
        call().await?;
    }
    let after = alloc::counted();
    Ok(Report::from([
        (m::ALLOCATIONS, to_f64(after.count - before.count)),
        (m::ALLOCATED_BYTES, to_f64(after.bytes - before.bytes)),
    ]))
}

/// Measures elapsed time and CPU time of this process.
pub(crate) struct Stopwatch {
    started: Instant,
    cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { started: now(), cpu: resource_usage::cpu_time() }
    }

    fn elapsed(&self) -> (f64, f64) {
        let cpu = resource_usage::cpu_time().saturating_sub(self.cpu);
        ((now() - self.started).as_secs_f64(), cpu.as_secs_f64())
    }

    fn stop(&self, millis: &mut Vec<f64>, cpu_millis: &mut Vec<f64>) {
        let (elapsed, cpu) = self.elapsed();
        millis.push(elapsed * 1e3);
        cpu_millis.push(cpu * 1e3);
    }

    pub(crate) fn per_call(&self, n_calls: usize) -> Report {
        let (elapsed, cpu) = self.elapsed();
        Report::from([
            (m::CALLS_PER_SECOND, count(n_calls) / elapsed),
            (m::CPU_PER_CALL, cpu * 1e6 / count(n_calls)),
        ])
    }
}

fn megabytes(kib: u64) -> f64 {
    to_f64(kib) * 1024.0 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "counts of this size are exact in an f64")]
pub(crate) fn to_f64(value: u64) -> f64 {
    value as f64
}

pub(crate) fn count(value: usize) -> f64 {
    to_f64(value as u64)
}
