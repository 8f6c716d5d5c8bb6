//! Results of all rounds: medians per entry, and a table per scenario and number of cores.

use clap::ValueEnum as _;
use toolrack_testkit::harness::median;

use crate::clients::{ClientName, Role};
use crate::metric::{Metric, Outcome};
use crate::scenario::{Comparison, Cores, Runtime, Scenario, Setup, Subject, Work};
use crate::table::{NO_VALUE, Table, number, optional};

/// One client in one scenario and setup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry {
    pub(crate) scenario: &'static str,
    pub(crate) setup: Setup,
    pub(crate) client: ClientName,
}

#[derive(Debug, Default)]
pub(crate) struct Results {
    runs: Vec<(Entry, Outcome)>,
    /// Scenarios that cannot run on this machine, with the reason.
    pub(crate) skipped: Vec<(&'static str, &'static str)>,
}

impl Results {
    pub(crate) fn add(&mut self, entry: Entry, outcome: Outcome) {
        self.runs.push((entry, outcome));
    }

    /// Why an entry has no figures. One failure or timeout makes all its rounds worthless.
    pub(crate) fn failure(&self, entry: Entry) -> Option<String> {
        self.outcomes(entry).find_map(|outcome| match outcome {
            Outcome::Report(_) => None,
            Outcome::Failure(reason) => Some(format!("fails: {reason}")),
            Outcome::TimedOut => Some("timed out".to_owned()),
        })
    }

    fn outcomes(&self, entry: Entry) -> impl Iterator<Item = &Outcome> {
        self.runs.iter().filter(move |(other, _)| *other == entry).map(|(_, outcome)| outcome)
    }

    fn values(&self, entry: Entry, metric: Metric) -> Vec<f64> {
        if self.failure(entry).is_some() {
            return Vec::new();
        }
        let values = self.outcomes(entry).filter_map(|outcome| match outcome {
            Outcome::Report(report) => report.get(metric),
            _ => None,
        });
        values.collect()
    }

    pub(crate) fn median(&self, entry: Entry, metric: Metric) -> Option<f64> {
        median(&self.values(entry, metric))
    }

    /// Best median of any peer with this number of cores, on any runtime.
    pub(crate) fn best_peer(&self, scenario: &str, cores: Cores, metric: Metric) -> Option<f64> {
        let peers = self
            .entries(scenario)
            .into_iter()
            .filter(|entry| entry.client.role() == Role::Peer && entry.setup.cores == cores);
        metric.best(peers.filter_map(|entry| self.median(entry, metric)))
    }

    /// Entries of a scenario in the order of the tables.
    pub(crate) fn entries(&self, scenario: &str) -> Vec<Entry> {
        let of_scenario = self.runs.iter().filter(|(entry, _)| entry.scenario == scenario);
        let mut entries: Vec<Entry> = of_scenario.map(|(entry, _)| *entry).collect();
        entries.sort_by_key(|entry| (entry.client, entry.setup));
        entries.dedup();
        entries
    }

    /// All tables with results, and a line for each skipped scenario.
    pub(crate) fn tables(&self) -> Vec<String> {
        let mut sections = Vec::new();
        for scenario in Scenario::value_variants() {
            for cores in [Cores::One, Cores::All] {
                let mut entries = self.entries(scenario.name);
                entries.retain(|entry| entry.setup.cores == cores);
                if !entries.is_empty() {
                    sections.push(self.table(scenario, cores, &entries).render());
                }
            }
        }
        let skipped = self.skipped.iter();
        sections.extend(skipped.map(|(name, reason)| format!("{name}: SKIPPED: {reason}\n")));
        sections
    }

    fn table(&self, scenario: &Scenario, cores: Cores, entries: &[Entry]) -> Table {
        let (metrics, comparisons) = scenario.work.columns();
        let has_runtime = |runtime| entries.iter().any(|entry| entry.setup.runtime == runtime);
        let names_runtime = has_runtime(Runtime::Current) && has_runtime(Runtime::Multi);
        let mut headings = vec!["client".to_owned()];
        headings.extend(metrics.iter().map(|metric| metric.heading.to_owned()));
        headings.extend(comparisons.iter().map(|comparison| comparison.heading(scenario.work)));
        let row = |entry: &Entry| {
            let mut row = vec![match entry.setup.runtime {
                _ if !names_runtime || !entry.client.has_runtime() => {
                    entry.client.label().to_owned()
                }
                Runtime::Current => format!("{} [current]", entry.client.label()),
                Runtime::Multi => format!("{} [multi]", entry.client.label()),
            }];
            if let Some(failure) = self.failure(*entry) {
                row.push(failure);
                row.resize(headings.len(), String::new());
                return row;
            }
            row.extend(metrics.iter().map(|metric| self.value_cell(*entry, *metric)));
            row.extend(
                comparisons
                    .iter()
                    .map(|comparison| optional(self.compare(scenario.work, *entry, *comparison))),
            );
            row
        };
        let rows = entries.iter().map(row).collect();
        let title = match cores {
            Cores::One => format!("{}; client and server on one core", scenario.title),
            Cores::All => scenario.title.to_owned(),
        };
        Table { title, headings, rows }
    }

    /// The median, with the best round in brackets if there were several.
    fn value_cell(&self, entry: Entry, metric: Metric) -> String {
        let values = self.values(entry, metric);
        match (median(&values), metric.best(values.iter().copied())) {
            (Some(median), Some(best)) if values.len() > 1 => {
                format!("{} [{}]", number(median), number(best))
            }
            (Some(median), _) => number(median),
            _ => NO_VALUE.to_owned(),
        }
    }

    fn compare(&self, work: Work, entry: Entry, comparison: Comparison) -> Option<f64> {
        let metric = *work.columns().0.first()?;
        // The limit has no Tokio runtime and is measured with the current-thread setup.
        let limit = |metric| {
            let setup = Setup { runtime: Runtime::Current, ..entry.setup };
            self.median(Entry { setup, client: work.subject().limit(), ..entry }, metric)
        };
        let value = |metric| self.median(entry, metric);
        match comparison {
            Comparison::ToLimit if metric.is_higher_better() => {
                Some(100.0 * value(metric)? / limit(metric)?)
            }
            Comparison::ToLimit => Some(value(metric)? / limit(metric)?),
            Comparison::Added(metric) => Some(value(metric)? - limit(metric)?),
            Comparison::TimesRmcp => {
                let rmcp = self.median(Entry { client: ClientName::Rmcp, ..entry }, metric)?;
                Some(metric.advantage(value(metric)?, rmcp))
            }
            Comparison::TimesBestPeer => {
                let peer = self.best_peer(entry.scenario, entry.setup.cores, metric)?;
                Some(metric.advantage(value(metric)?, peer))
            }
        }
    }
}

impl Comparison {
    fn heading(self, work: Work) -> String {
        let is_higher_better = work.columns().0.first().is_some_and(Metric::is_higher_better);
        match self {
            Self::ToLimit if is_higher_better => "% of limit".to_owned(),
            Self::ToLimit => "/ limit".to_owned(),
            Self::TimesRmcp => "× rmcp".to_owned(),
            Self::TimesBestPeer => "× best peer".to_owned(),
            Self::Added(metric) => format!("added {}", metric.heading),
        }
    }
}

impl Subject {
    /// The same bytes without any client.
    fn limit(self) -> ClientName {
        match self {
            Self::Stdio | Self::Manager | Self::Cli => ClientName::BareBlock,
            Self::Http => ClientName::BareTcp,
            Self::Gateway => ClientName::Direct,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{CALLS_PER_SECOND, MILLIS, Report};
    use crate::scenario::{CURRENT, MULTI};

    fn calls(per_second: f64) -> Outcome {
        Outcome::Report(Report::from([(CALLS_PER_SECOND, per_second)]))
    }

    fn entry(client: ClientName, setup: Setup) -> Entry {
        Entry { scenario: "in-flight-64", setup, client }
    }

    #[test]
    fn median_is_over_the_rounds() {
        let mut results = Results::default();
        let rmcp = entry(ClientName::Rmcp, MULTI);
        for per_second in [10.0, 30.0, 20.0] {
            results.add(rmcp, calls(per_second));
        }
        results.add(entry(ClientName::Tower, CURRENT), calls(25.0));
        assert_eq!(results.median(rmcp, CALLS_PER_SECOND), Some(20.0));
        assert_eq!(results.median(rmcp, MILLIS), None);
        let best = |cores| results.best_peer("in-flight-64", cores, CALLS_PER_SECOND);
        assert_eq!((best(Cores::All), best(Cores::One)), (Some(25.0), None));
    }

    #[test]
    fn timeout_discards_earlier_rounds() {
        let mut results = Results::default();
        let rmcp = entry(ClientName::Rmcp, MULTI);
        results.add(rmcp, calls(10.0));
        assert_eq!(results.failure(rmcp), None);
        results.add(rmcp, Outcome::TimedOut);
        assert_eq!(results.failure(rmcp).as_deref(), Some("timed out"));
        assert_eq!(results.median(rmcp, CALLS_PER_SECOND), None);
    }

    #[test]
    fn clients_are_compared_with_limit_and_peers() {
        let mut results = Results::default();
        results.add(entry(ClientName::Tower, MULTI), Outcome::TimedOut);
        results.add(entry(ClientName::Pmcp, MULTI), Outcome::Failure("no text".to_owned()));
        results.add(entry(ClientName::Rmcp, MULTI), calls(100.0));
        results.add(entry(ClientName::Rmcp, MULTI), calls(110.0));
        results.add(entry(ClientName::Rmcp, CURRENT), calls(210.0));
        results.add(entry(ClientName::BareBlock, CURRENT), calls(1050.0));
        let expected = "\
## 64 calls in flight, 100 B

| client               |         calls/s | CPU µs/call | % of limit | × rmcp | × best peer |
|----------------------|----------------:|------------:|-----------:|-------:|------------:|
| limit: blocking pipe |           1,050 |           – |      100.0 |   5.00 |        5.00 |
| rmcp 3.8.0 [current] |           210.0 |           – |      20.00 |   1.00 |        1.00 |
| rmcp 3.8.0 [multi]   |   105.0 [110.0] |           – |      10.00 |   1.00 |        0.50 |
| pmcp 2.23.0 [multi]  |  fails: no text |             |            |        |             |
| tower-mcp 0.25.0 [multi] |  timed out |             |            |        |             |
";
        let collapse_spaces = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cells_only = |text: &str| {
            let rows = text.lines().filter(|line| !line.starts_with("|--"));
            collapse_spaces(&rows.collect::<Vec<_>>().join("\n"))
        };
        assert_eq!(cells_only(&results.tables().join("\n")), cells_only(expected));
    }

    #[test]
    fn added_time_has_a_column() {
        let mut results = Results::default();
        let entry = |client| Entry { scenario: "cli-demo", setup: CURRENT, client };
        let exited = |millis| Outcome::Report(Report::from([(MILLIS, millis)]));
        results.add(entry(ClientName::Toolrack), exited(12.5));
        results.add(entry(ClientName::BareBlock), exited(4.0));
        let table = results.tables().join("");
        let cells = |line: &str| -> Vec<String> {
            line.split('|').map(|part| part.trim().to_owned()).collect()
        };
        let rows: Vec<Vec<String>> = table.lines().map(cells).collect();
        let column = rows[2].iter().position(|heading| heading == "added ms").unwrap();
        assert_eq!((rows[4][column].as_str(), rows[5][column].as_str()), ("0.00", "8.50"));
    }

    #[test]
    fn skipped_scenario_is_listed() {
        let mut results = Results::default();
        results.skipped.push(("instructions", "valgrind is not installed"));
        let expected = vec!["instructions: SKIPPED: valgrind is not installed\n".to_owned()];
        assert_eq!(results.tables(), expected);
    }
}
