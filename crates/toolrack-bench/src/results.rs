//! Results of all rounds, with medians per entry.

use crate::client_process::RunOutcome;
use crate::clients::{ClientName, Role};
use crate::report::{Metric, Report};
use crate::scenario::{Scenario, Setup};
use crate::stats::median;

/// One client in one scenario and setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) scenario: Scenario,
    pub(crate) setup: Setup,
    pub(crate) client: ClientName,
}

/// Outcome of one entry over all rounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum EntryResult {
    Measured(Vec<Report>),
    TimedOut,
    Failed(String),
}

#[derive(Debug, Default)]
pub(crate) struct Results {
    results: Vec<(Entry, EntryResult)>,
    /// Scenarios that cannot run on this machine, with the reason.
    pub(crate) skipped: Vec<(Scenario, &'static str)>,
}

impl Results {
    /// Adds the outcome of a round. A failure or timeout replaces all earlier rounds.
    pub(crate) fn add(&mut self, entry: Entry, outcome: RunOutcome) {
        let known = self.results.iter_mut().find(|(known, _)| *known == entry);
        match (known, outcome) {
            (Some((_, EntryResult::Measured(reports))), RunOutcome::Measured(report)) => {
                reports.push(report);
            }
            (Some((_, result)), outcome) => *result = EntryResult::from(outcome),
            (None, outcome) => self.results.push((entry, EntryResult::from(outcome))),
        }
    }

    /// Returns false after a failure or timeout.
    pub(crate) fn needs_more_rounds(&self, entry: Entry) -> bool {
        matches!(self.get(entry), None | Some(EntryResult::Measured(_)))
    }

    pub(crate) fn get(&self, entry: Entry) -> Option<&EntryResult> {
        self.results.iter().find(|(known, _)| *known == entry).map(|(_, result)| result)
    }

    pub(crate) fn values(&self, entry: Entry, metric: Metric) -> Vec<f64> {
        match self.get(entry) {
            Some(EntryResult::Measured(reports)) => {
                reports.iter().filter_map(|report| report.get(&metric).copied()).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn median(&self, entry: Entry, metric: Metric) -> Option<f64> {
        median(&self.values(entry, metric))
    }

    /// Best median of any peer in any of these setups.
    pub(crate) fn best_peer(
        &self,
        scenario: Scenario,
        setups: &[Setup],
        metric: Metric,
    ) -> Option<f64> {
        let medians: Vec<f64> = self
            .entries(scenario)
            .filter(|entry| entry.client.role() == Role::Peer && setups.contains(&entry.setup))
            .filter_map(|entry| self.median(entry, metric))
            .collect();
        metric.better().best(&medians)
    }

    pub(crate) fn entries(&self, scenario: Scenario) -> impl Iterator<Item = Entry> {
        self.results.iter().map(|(entry, _)| *entry).filter(move |entry| entry.scenario == scenario)
    }
}

impl From<RunOutcome> for EntryResult {
    fn from(outcome: RunOutcome) -> Self {
        match outcome {
            RunOutcome::Measured(report) => Self::Measured(vec![report]),
            RunOutcome::TimedOut => Self::TimedOut,
            RunOutcome::Failed(reason) => Self::Failed(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{CURRENT, MULTI};

    const RMCP: Entry =
        Entry { scenario: Scenario::InFlight64, setup: MULTI, client: ClientName::Rmcp };
    const TOWER: Entry =
        Entry { scenario: Scenario::InFlight64, setup: CURRENT, client: ClientName::Tower };

    fn calls(per_second: f64) -> RunOutcome {
        RunOutcome::Measured(Report::from([(Metric::CallsPerSecond, per_second)]))
    }

    #[test]
    fn median_is_over_the_rounds() {
        let mut results = Results::default();
        for per_second in [10.0, 30.0, 20.0] {
            results.add(RMCP, calls(per_second));
        }
        results.add(TOWER, calls(25.0));
        assert_eq!(results.median(RMCP, Metric::CallsPerSecond), Some(20.0));
        assert_eq!(results.median(RMCP, Metric::Millis), None);
        let best = |setups: &[Setup]| {
            results.best_peer(Scenario::InFlight64, setups, Metric::CallsPerSecond)
        };
        assert_eq!(best(&[MULTI, CURRENT]), Some(25.0));
        assert_eq!(best(&[MULTI]), Some(20.0));
    }

    #[test]
    fn timeout_discards_earlier_rounds() {
        let mut results = Results::default();
        results.add(RMCP, calls(10.0));
        assert!(results.needs_more_rounds(RMCP));
        results.add(RMCP, RunOutcome::TimedOut);
        assert!(!results.needs_more_rounds(RMCP));
        assert_eq!(results.get(RMCP), Some(&EntryResult::TimedOut));
        assert_eq!(results.median(RMCP, Metric::CallsPerSecond), None);
    }
}
