//! Measuring of repeated operations: latency, throughput, CPU time, memory and allocations. Independent of the client.

use std::time::Duration;

use anyhow::Context as _;

use crate::report::{Metric, Report};
use crate::stats::{median, quantile};
use crate::{alloc, resource_usage, system};

/// Calls before a measurement, so that lazy initialization is done.
const WARM_UPS: usize = 100;

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
    let started = system::now();
    let mut before = started;
    loop {
        call().await?;
        let after = system::now();
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
    add_latencies(stopwatch.per_call(micros.len()), &micros)
}

/// Adds the p50 and p99 of latencies in µs.
pub(crate) fn add_latencies(mut report: Report, micros: &[f64]) -> anyhow::Result<Report> {
    report.insert(Metric::P50Micros, median(micros).context("no call was made")?);
    report.insert(Metric::P99Micros, quantile(micros, 0.99).context("no call was made")?);
    Ok(report)
}

/// Median time and CPU time of a large operation.
pub(crate) async fn repeat_operation(
    n_operations: usize,
    mut operation: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    let mut millis = Vec::new();
    let mut cpu_millis = Vec::new();
    for _ in 0..n_operations {
        let stopwatch = Stopwatch::start();
        operation().await?;
        let (elapsed, cpu) = stopwatch.elapsed();
        millis.push(elapsed.as_secs_f64() * 1e3);
        cpu_millis.push(cpu.as_secs_f64() * 1e3);
    }
    Ok(Report::from([
        (Metric::Millis, median(&millis).context("no operation was run")?),
        (Metric::CpuMillis, median(&cpu_millis).context("no operation was run")?),
    ]))
}

/// Peak resident memory, compared with an idle baseline.
pub(crate) struct PeakMemory {
    idle: u64,
}

impl PeakMemory {
    pub(crate) fn start() -> anyhow::Result<Self> {
        resource_usage::reset_peak()?;
        Ok(Self { idle: resource_usage::Memory::of_current_process()?.resident })
    }

    /// Adds the peak since the start, absolute and above idle.
    pub(crate) fn add_to(&self, mut report: Report) -> anyhow::Result<Report> {
        report.insert(Metric::PeakMegabytes, megabytes(resource_usage::peak_resident()?));
        report.insert(Metric::OverIdleMegabytes, self.over_idle()?);
        Ok(report)
    }

    pub(crate) fn over_idle(&self) -> anyhow::Result<f64> {
        Ok(megabytes(resource_usage::peak_resident()?.saturating_sub(self.idle)))
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
        (Metric::Allocations, u64_to_f64(after.count - before.count)),
        (Metric::AllocatedBytes, u64_to_f64(after.bytes - before.bytes)),
    ]))
}

/// Report of connect times; each comes with its CPU time.
pub(crate) fn connect_report(times: &[(Duration, Duration)]) -> anyhow::Result<Report> {
    let millis: Vec<f64> = times.iter().map(|(elapsed, _)| elapsed.as_secs_f64() * 1e3).collect();
    let cpu: Vec<f64> = times.iter().map(|(_, cpu)| cpu.as_secs_f64() * 1e3).collect();
    Ok(Report::from([
        (Metric::Millis, median(&millis).context("no connection was made")?),
        (Metric::P99Millis, quantile(&millis, 0.99).context("no connection was made")?),
        (Metric::CpuMillis, median(&cpu).context("no connection was made")?),
    ]))
}

/// Memory that `n_connections` more idle connections added to this process since `before`.
pub(crate) fn idle_connection_report(
    before: resource_usage::Memory,
    n_connections: usize,
) -> anyhow::Result<Report> {
    let after = resource_usage::Memory::of_current_process()?;
    let per_connection =
        |after: u64, before: u64| u64_to_f64(after.saturating_sub(before)) / to_f64(n_connections);
    let mut report = Report::from([
        (Metric::ResidentKibPerConnection, per_connection(after.resident, before.resident)),
        (Metric::AnonymousKibPerConnection, per_connection(after.anonymous, before.anonymous)),
    ]);
    let guardians: Vec<f64> =
        resource_usage::guardian_private_memory()?.into_iter().map(u64_to_f64).collect();
    if let Some(private) = median(&guardians) {
        report.insert(Metric::PrivateKibPerGuardian, private);
    }
    Ok(report)
}

/// Measures elapsed time and CPU time of this process.
pub(crate) struct Stopwatch {
    started: std::time::Instant,
    cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { started: system::now(), cpu: resource_usage::cpu_time() }
    }

    pub(crate) fn elapsed(&self) -> (Duration, Duration) {
        (system::now() - self.started, resource_usage::cpu_time().saturating_sub(self.cpu))
    }

    pub(crate) fn per_call(&self, n_calls: usize) -> Report {
        let (elapsed, cpu) = self.elapsed();
        Report::from([
            (Metric::CallsPerSecond, to_f64(n_calls) / elapsed.as_secs_f64()),
            (Metric::CpuMicrosPerCall, cpu.as_secs_f64() * 1e6 / to_f64(n_calls)),
        ])
    }
}

fn megabytes(kib: u64) -> f64 {
    u64_to_f64(kib) * 1024.0 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "counts of this size are exact in an f64")]
fn u64_to_f64(value: u64) -> f64 {
    value as f64
}

pub(crate) fn to_f64(value: usize) -> f64 {
    u64_to_f64(value as u64)
}
