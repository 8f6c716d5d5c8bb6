//! The targets of the manager.

use super::{Asked, Bound, Verdict, over, verdict};
use crate::clients::ClientName::{Manager, ManagerRaw, Rmcp};
use crate::report::Metric;
use crate::scenario::{CURRENT, MULTI, PINNED, Scenario, Setup};

/// What the manager may add to a call of its client.
const CALL: Bound = Bound::AtMost(1.15);

const NAMES: [&str; 4] = [
    "sequential, one core: p50 / client's",
    "sequential [multi]: p50 / client's",
    "64 in flight [multi]: time / client's",
    "64 in flight [current]: CPU / client's",
];
const NAMES_RAW: [&str; 4] = [
    "sequential, one core, raw result: p50 / client's",
    "sequential [multi], raw result: p50 / client's",
    "64 in flight [multi], raw result: time / client's",
    "64 in flight [current], raw result: CPU / client's",
];

impl Asked<'_> {
    pub(super) fn about_rack(&self) -> Vec<Verdict> {
        use Bound::AtMost;
        use Scenario::{RackMemory, RackNeighbours, RackTools};
        let mut verdicts = self.about_calls_of_rack();
        let of = |scenario, setup, metric| self.of(Manager, scenario, setup, metric);
        let list = of(RackTools, CURRENT, Metric::AllToolsP99Micros).map(|micros| micros / 1e3);
        let memory = of(RackMemory, CURRENT, Metric::BeyondListKibPerServer);
        let troubled = |setup| of(RackNeighbours, setup, Metric::InsideOverOutside);
        let failed = |setup| of(RackNeighbours, setup, Metric::FailedCalls);
        verdicts.extend([
            verdict("all_tools, 100 × 50: p99 in ms", AtMost(1.0), list),
            verdict("idle server: KiB beyond its tool list", AtMost(40.0), memory),
            verdict("100 servers [multi]: time / rmcp's", AtMost(4.0), self.start(MULTI)),
            verdict("100 servers [current]: time / rmcp's", AtMost(4.0), self.start(CURRENT)),
            verdict("bad neighbour [multi]: p99 / outside", AtMost(2.0), troubled(MULTI)),
            verdict("bad neighbour [current]: p99 / outside", AtMost(2.0), troubled(CURRENT)),
            verdict("bad neighbour [multi]: failed calls", AtMost(0.0), failed(MULTI)),
            verdict("bad neighbour [current]: failed calls", AtMost(0.0), failed(CURRENT)),
        ]);
        verdicts
    }

    /// On one core a latency is work, and on two it is mostly waking the other one; with calls in flight on one
    /// thread the CPU time of our process is work, and the rate depends on the server's core too.
    fn about_calls_of_rack(&self) -> Vec<Verdict> {
        use Metric::{CpuOverClient, P50OverClient, TimeOverClient};
        use Scenario::{RackInFlight64, RackSequential};
        let mut verdicts = Vec::new();
        for (client, names) in [(Manager, NAMES), (ManagerRaw, NAMES_RAW)] {
            let [one_core, multi, in_flight_multi, in_flight] = names;
            let of = |scenario, setup, metric| self.of(client, scenario, setup, metric);
            verdicts.extend([
                verdict(one_core, CALL, of(RackSequential, PINNED, P50OverClient)),
                verdict(multi, CALL, of(RackSequential, MULTI, P50OverClient)),
                verdict(in_flight_multi, CALL, of(RackInFlight64, MULTI, TimeOverClient)),
                verdict(in_flight, CALL, of(RackInFlight64, CURRENT, CpuOverClient)),
            ]);
        }
        verdicts
    }

    fn start(&self, setup: Setup) -> Option<f64> {
        let time = |client| self.of(client, Scenario::RackStart, setup, Metric::Millis);
        over(time(Manager), time(Rmcp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_process::Outcome;
    use crate::report::Report;
    use crate::results::{Entry, Results};

    #[test]
    fn the_manager_is_judged_beside_its_own_client_and_rmcp() {
        let mut results = Results::default();
        let mut add = |client, scenario, setup, metric, value| {
            let report = Report::from([(metric, value)]);
            results.add(Entry { scenario, setup, client }, Outcome::Measured(report));
        };
        add(Manager, Scenario::RackSequential, PINNED, Metric::P50OverClient, 1.1);
        add(ManagerRaw, Scenario::RackSequential, PINNED, Metric::P50OverClient, 1.2);
        add(Manager, Scenario::RackTools, CURRENT, Metric::AllToolsP99Micros, 500.0);
        add(Manager, Scenario::RackMemory, CURRENT, Metric::BeyondListKibPerServer, 41.0);
        add(Manager, Scenario::RackStart, MULTI, Metric::Millis, 300.0);
        add(Rmcp, Scenario::RackStart, MULTI, Metric::Millis, 100.0);
        add(Manager, Scenario::RackNeighbours, CURRENT, Metric::FailedCalls, 1.0);
        let verdicts = Asked { results: &results }.about_rack();
        let run: Vec<_> = verdicts.iter().filter(|verdict| verdict.measured.is_some()).collect();
        let shown: Vec<_> = run.iter().map(|run| (run.target, run.measured, run.word())).collect();
        let expected = [
            ("sequential, one core: p50 / client's", Some(1.1), "ok"),
            ("sequential, one core, raw result: p50 / client's", Some(1.2), "MISSED"),
            ("all_tools, 100 × 50: p99 in ms", Some(0.5), "ok"),
            ("idle server: KiB beyond its tool list", Some(41.0), "MISSED"),
            ("100 servers [multi]: time / rmcp's", Some(3.0), "ok"),
            ("bad neighbour [current]: failed calls", Some(1.0), "MISSED"),
        ];
        assert_eq!(shown, expected);
    }
}
