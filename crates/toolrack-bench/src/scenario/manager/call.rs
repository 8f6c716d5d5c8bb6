//! A call through the manager beside the same call on the client that the manager has of that server.
//!
//! Both use the same server, the same line and the same process, in turns that are shorter than what disturbs
//! a machine: what is left between them is the manager.

use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::clients::{Call, Caller, ClientName, Contender as _, Rack, RackRaw};
use crate::report::{Metric, Report};
use crate::scenario::Scenario;
use crate::scenario::measure::{self, Spent};
use crate::scenario::stdio::{self, Job, flood};
use crate::stats::median;

const IN_FLIGHT: usize = 64;
/// How long one of the two is called before it is the other's turn.
const TURN: Duration = Duration::from_millis(20);
/// With many callers a turn has to outweigh their beginning and their end.
const TURN_IN_FLIGHT: Duration = Duration::from_millis(50);

pub(super) async fn drive(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match client {
        ClientName::Manager => {
            let rack = Rack::connect(&job.server).await?;
            let report = in_turns(job, &rack, &rack.past()?).await?;
            stdio::close(rack).await?;
            Ok(report)
        }
        ClientName::ManagerRaw => {
            let rack = RackRaw::connect(&job.server).await?;
            let report = in_turns(job, &rack, &rack.past()?).await?;
            stdio::close(rack).await?;
            Ok(report)
        }
        other => bail!("{other:?} is no manager"),
    }
}

async fn in_turns<M: Caller, C: Caller>(
    job: &Job,
    manager: &M,
    client: &C,
) -> anyhow::Result<Report> {
    let (mut through, mut past) = (Side::default(), Side::default());
    if job.scenario == Scenario::RackInFlight64 {
        flood(client, IN_FLIGHT, TURN_IN_FLIGHT).await?;
        flood(manager, IN_FLIGHT, TURN_IN_FLIGHT).await?;
        for _ in 0..n_turns(job, TURN_IN_FLIGHT) {
            past.in_flight(client).await?;
            through.in_flight(manager).await?;
        }
        return in_flight_report(&through, &past);
    }
    let echo = Call::echo()?;
    measure::warm_up(async || client.call(&echo).await.map(drop)).await?;
    measure::warm_up(async || manager.call(&echo).await.map(drop)).await?;
    for _ in 0..n_turns(job, TURN) {
        past.sequential(client, &echo).await?;
        through.sequential(manager, &echo).await?;
    }
    sequential_report(&through, &past)
}

/// Each of the two gets the whole window.
fn n_turns(job: &Job, turn: Duration) -> u128 {
    job.size.window.as_nanos() / turn.as_nanos()
}

/// What one of the two has done in its turns.
#[derive(Debug, Default)]
struct Side {
    micros: Vec<f64>,
    calls_per_second: Vec<f64>,
    cpu_micros_per_call: Vec<f64>,
}

impl Side {
    async fn sequential<C: Caller>(&mut self, caller: &C, call: &Call) -> anyhow::Result<()> {
        let spent = Spent::start();
        let micros = measure::latencies(TURN, async || caller.call(call).await.map(drop)).await?;
        self.add(&spent.per_call(micros.len()));
        self.micros.extend(micros);
        Ok(())
    }

    async fn in_flight<C: Caller>(&mut self, caller: &C) -> anyhow::Result<()> {
        let spent = Spent::start();
        let n_calls = flood(caller, IN_FLIGHT, TURN_IN_FLIGHT).await?;
        self.add(&spent.per_call(n_calls));
        Ok(())
    }

    fn add(&mut self, turn: &Report) {
        self.calls_per_second.extend(turn.get(&Metric::CallsPerSecond));
        self.cpu_micros_per_call.extend(turn.get(&Metric::CpuMicrosPerCall));
    }

    fn p50(&self) -> anyhow::Result<f64> {
        median(&self.micros).context("no call was made")
    }

    fn calls(&self) -> anyhow::Result<f64> {
        median(&self.calls_per_second).context("no call was made")
    }

    fn cpu(&self) -> anyhow::Result<f64> {
        median(&self.cpu_micros_per_call).context("no call was made")
    }
}

fn sequential_report(through: &Side, past: &Side) -> anyhow::Result<Report> {
    let mut report = cpu_report(through, past)?;
    report.insert(Metric::P50Micros, through.p50()?);
    report.insert(Metric::ClientP50Micros, past.p50()?);
    report.insert(Metric::P50OverClient, through.p50()? / past.p50()?);
    Ok(report)
}

fn in_flight_report(through: &Side, past: &Side) -> anyhow::Result<Report> {
    let mut report = cpu_report(through, past)?;
    report.insert(Metric::CallsPerSecond, through.calls()?);
    report.insert(Metric::ClientCallsPerSecond, past.calls()?);
    report.insert(Metric::TimeOverClient, past.calls()? / through.calls()?);
    Ok(report)
}

fn cpu_report(through: &Side, past: &Side) -> anyhow::Result<Report> {
    Ok(Report::from([
        (Metric::CpuMicrosPerCall, through.cpu()?),
        (Metric::ClientCpuMicrosPerCall, past.cpu()?),
        (Metric::CpuOverClient, through.cpu()? / past.cpu()?),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_sides_are_compared_by_their_medians() {
        let side = |micros: &[f64], calls: f64, cpu: f64| Side {
            micros: micros.to_vec(),
            calls_per_second: vec![calls],
            cpu_micros_per_call: vec![cpu, cpu],
        };
        let (through, past) = (side(&[9.0, 11.0, 99.0], 80.0, 6.0), side(&[10.0], 100.0, 4.0));
        let report = sequential_report(&through, &past).unwrap();
        assert_eq!(report.get(&Metric::P50OverClient), Some(&1.1));
        assert_eq!(report.get(&Metric::CpuOverClient), Some(&1.5));
        let report = in_flight_report(&through, &past).unwrap();
        assert_eq!(report.get(&Metric::TimeOverClient), Some(&1.25));
        assert!(sequential_report(&Side::default(), &past).is_err());
    }
}
