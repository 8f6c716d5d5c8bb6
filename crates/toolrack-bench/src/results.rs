//! All that was measured, to be asked about.

use crate::client_process::Outcome;
use crate::clients::{ClientName, Role};
use crate::report::{Metric, Report};
use crate::scenario::{Scenario, Setup};
use crate::stats::median;

/// Who ran what where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) scenario: Scenario,
    pub(crate) setup: Setup,
    pub(crate) client: ClientName,
}

/// The outcomes of one entry over all rounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Finding {
    Measured(Vec<Report>),
    NeverFinished,
    Failed(String),
}

#[derive(Debug, Default)]
pub(crate) struct Results {
    findings: Vec<(Entry, Finding)>,
    /// Scenarios that could not run here, and why.
    pub(crate) skipped: Vec<(Scenario, &'static str)>,
}

impl Results {
    /// Adds the outcome of a round. One that failed or hung spoils the entry for good.
    pub(crate) fn add(&mut self, entry: Entry, outcome: Outcome) {
        let known = self.findings.iter_mut().find(|(finding, _)| *finding == entry);
        match (known, outcome) {
            (Some((_, Finding::Measured(reports))), Outcome::Measured(report)) => {
                reports.push(report);
            }
            (Some((_, finding)), outcome) => *finding = Finding::from(outcome),
            (None, outcome) => self.findings.push((entry, Finding::from(outcome))),
        }
    }

    /// Whether another round of this entry can change anything.
    pub(crate) fn is_open(&self, entry: Entry) -> bool {
        matches!(self.finding(entry), None | Some(Finding::Measured(_)))
    }

    pub(crate) fn finding(&self, entry: Entry) -> Option<&Finding> {
        self.findings.iter().find(|(finding, _)| *finding == entry).map(|(_, finding)| finding)
    }

    pub(crate) fn values(&self, entry: Entry, metric: Metric) -> Vec<f64> {
        match self.finding(entry) {
            Some(Finding::Measured(reports)) => {
                reports.iter().filter_map(|report| report.get(&metric).copied()).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn median(&self, entry: Entry, metric: Metric) -> Option<f64> {
        median(&self.values(entry, metric))
    }

    /// The best median that any peer reached in any of these setups.
    pub(crate) fn best_peer(
        &self,
        scenario: Scenario,
        setups: &[Setup],
        metric: Metric,
    ) -> Option<f64> {
        let medians: Vec<f64> = self
            .entries(scenario)
            .filter(|entries| {
                entries.client.role() == Role::Peer && setups.contains(&entries.setup)
            })
            .filter_map(|entry| self.median(entry, metric))
            .collect();
        metric.better().best(&medians)
    }

    pub(crate) fn entries(&self, scenario: Scenario) -> impl Iterator<Item = Entry> {
        self.findings
            .iter()
            .map(|(entry, _)| *entry)
            .filter(move |finding| finding.scenario == scenario)
    }
}

impl From<Outcome> for Finding {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Measured(report) => Self::Measured(vec![report]),
            Outcome::NeverFinished => Self::NeverFinished,
            Outcome::Failed(why) => Self::Failed(why),
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

    fn calls(per_second: f64) -> Outcome {
        Outcome::Measured(Report::from([(Metric::CallsPerSecond, per_second)]))
    }

    #[test]
    fn medians_are_taken_over_the_rounds() {
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
    fn one_hang_spoils_the_entry_for_good() {
        let mut results = Results::default();
        results.add(RMCP, calls(10.0));
        assert!(results.is_open(RMCP));
        results.add(RMCP, Outcome::NeverFinished);
        assert!(!results.is_open(RMCP));
        assert_eq!(results.finding(RMCP), Some(&Finding::NeverFinished));
        assert_eq!(results.median(RMCP, Metric::CallsPerSecond), None);
    }
}
