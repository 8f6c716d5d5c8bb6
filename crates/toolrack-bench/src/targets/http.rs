//! The targets over HTTP.

use super::{Asked, Bound, Verdict, over};
use crate::clients::ClientName::{self, BareHyper, BareTcp, Pmcp, Rmcp, Toolrack};
use crate::report::Metric;
use crate::scenario::{CURRENT, MULTI, Scenario, Setup};

impl Asked<'_> {
    /// Peers are compared with on the same runtime; the bare exchange has none.
    pub(super) fn about_http(&self) -> Vec<Verdict> {
        use Bound::{AtLeast, AtMost};
        use Scenario::{HttpJson, HttpJson64};
        let mut verdicts = Vec::new();
        for (setup, names) in [(MULTI, NAMES_MULTI), (CURRENT, NAMES_CURRENT)] {
            let calls = |client, peer| self.calls_over(client, peer, setup);
            let cpu = |client, scenario| self.cpu_over_rmcp(client, scenario, setup);
            let latency = |client| {
                let limit = self.of(BareTcp, HttpJson, CURRENT, Metric::P50Micros);
                over(self.of(client, HttpJson, setup, Metric::P50Micros), limit)
            };
            let [rmcp, pmcp, p50, cpu_64, cpu_1] = names;
            verdicts.extend([
                compared(rmcp, AtLeast(7.0), |client| calls(client, Rmcp)),
                compared(pmcp, AtLeast(1.8), |client| calls(client, Pmcp)),
                compared(p50, AtMost(1.35), latency),
                compared(cpu_64, AtMost(0.25), |client| cpu(client, HttpJson64)),
                compared(cpu_1, AtMost(0.25), |client| cpu(client, HttpJson)),
            ]);
        }
        verdicts
    }

    fn calls_over(&self, client: ClientName, peer: ClientName, setup: Setup) -> Option<f64> {
        let of = |client| self.of(client, Scenario::HttpJson64, setup, Metric::CallsPerSecond);
        over(of(client), of(peer))
    }

    fn cpu_over_rmcp(&self, client: ClientName, scenario: Scenario, setup: Setup) -> Option<f64> {
        let of = |client| self.of(client, scenario, setup, Metric::CpuMicrosPerCall);
        over(of(client), of(Rmcp))
    }
}

const NAMES_MULTI: [&str; 5] = [
    "64 in flight, JSON 100 B [multi]: × rmcp",
    "64 in flight, JSON 100 B [multi]: × pmcp",
    "sequential, JSON 100 B [multi]: p50 / bare TCP's",
    "64 in flight, JSON 100 B [multi]: CPU / rmcp's",
    "sequential, JSON 100 B [multi]: CPU / rmcp's",
];
const NAMES_CURRENT: [&str; 5] = [
    "64 in flight, JSON 100 B [current]: × rmcp",
    "64 in flight, JSON 100 B [current]: × pmcp",
    "sequential, JSON 100 B [current]: p50 / bare TCP's",
    "64 in flight, JSON 100 B [current]: CPU / rmcp's",
    "sequential, JSON 100 B [current]: CPU / rmcp's",
];

fn compared(target: &'static str, bound: Bound, of: impl Fn(ClientName) -> Option<f64>) -> Verdict {
    Verdict { target, bound, measured: of(Toolrack), at_limit: of(BareHyper) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_process::Outcome;
    use crate::report::Report;
    use crate::results::{Entry, Results};

    #[test]
    fn targets_are_judged_on_each_runtime() {
        use Metric::{CallsPerSecond, CpuMicrosPerCall, P50Micros};
        let mut results = Results::default();
        let mut add = |client, scenario, setup, metric, value| {
            let report = Report::from([(metric, value)]);
            results.add(Entry { scenario, setup, client }, Outcome::Measured(report));
        };
        add(Toolrack, Scenario::HttpJson64, MULTI, CallsPerSecond, 800.0);
        add(Rmcp, Scenario::HttpJson64, MULTI, CallsPerSecond, 100.0);
        add(Pmcp, Scenario::HttpJson64, MULTI, CallsPerSecond, 500.0);
        add(BareHyper, Scenario::HttpJson64, MULTI, CallsPerSecond, 900.0);
        add(Toolrack, Scenario::HttpJson, MULTI, P50Micros, 70.0);
        add(BareTcp, Scenario::HttpJson, CURRENT, P50Micros, 56.0);
        add(Toolrack, Scenario::HttpJson, CURRENT, CpuMicrosPerCall, 30.0);
        add(Rmcp, Scenario::HttpJson, CURRENT, CpuMicrosPerCall, 60.0);
        let verdicts = Asked { results: &results }.about_http();
        let shown: Vec<_> = verdicts
            .iter()
            .map(|verdict| (verdict.measured, verdict.at_limit, verdict.word()))
            .collect();
        let not_run = (None, None, "not run");
        let expected = [
            (Some(8.0), Some(9.0), "ok"),
            (Some(1.6), Some(1.8), "MISSED"),
            (Some(1.25), None, "ok"),
            not_run,
            not_run,
            not_run,
            not_run,
            not_run,
            not_run,
            (Some(0.5), None, "MISSED"),
        ];
        assert_eq!(shown, expected);
    }
}
