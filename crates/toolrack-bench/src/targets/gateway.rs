//! The targets of the gateway.

use super::{Asked, Bound, Verdict, verdict};
use crate::clients::ClientName::{Direct, Gateway};
use crate::report::Metric;
use crate::scenario::{CURRENT, Scenario};

impl Asked<'_> {
    pub(super) fn about_gateways(&self) -> Vec<Verdict> {
        use Bound::{AtLeast, AtMost};
        use Scenario::{GatewayHttp, GatewayHttp64, GatewayMemory, GatewayStdio, GatewayStdio64};
        let times_peer =
            |scenario| self.times_best_peer(Gateway, scenario, CURRENT, Metric::CallsPerSecond);
        let added = |scenario| {
            let p50 = |client| self.of(client, scenario, CURRENT, Metric::P50Micros);
            p50(Gateway).zip(p50(Direct)).map(|(through, direct)| through - direct)
        };
        let memory = self.of(Gateway, GatewayMemory, CURRENT, Metric::SessionsMib);
        vec![
            verdict("64 in flight, HTTP: × peer", AtLeast(5.0), times_peer(GatewayHttp64)),
            verdict("64 in flight, stdio: × peer", AtLeast(5.0), times_peer(GatewayStdio64)),
            verdict("sequential, HTTP: µs added (p50)", AtMost(200.0), added(GatewayHttp)),
            verdict("sequential, stdio: µs added (p50)", AtMost(200.0), added(GatewayStdio)),
            verdict("100 servers and 1,000 sessions: MiB", AtMost(150.0), memory),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_process::Outcome;
    use crate::clients::ClientName::FastMcp;
    use crate::report::Report;
    use crate::results::{Entry, Results};

    #[test]
    fn the_gateway_is_judged_beside_the_server_and_the_peer() {
        let mut results = Results::default();
        let mut add = |client, scenario, metric, value| {
            let report = Report::from([(metric, value)]);
            results.add(Entry { scenario, setup: CURRENT, client }, Outcome::Measured(report));
        };
        add(Gateway, Scenario::GatewayHttp64, Metric::CallsPerSecond, 900.0);
        add(FastMcp, Scenario::GatewayHttp64, Metric::CallsPerSecond, 100.0);
        add(Gateway, Scenario::GatewayStdio, Metric::P50Micros, 250.0);
        add(Direct, Scenario::GatewayStdio, Metric::P50Micros, 20.0);
        add(Gateway, Scenario::GatewayMemory, Metric::SessionsMib, 90.0);
        let verdicts = Asked { results: &results }.about_gateways();
        let run: Vec<_> = verdicts.iter().filter(|verdict| verdict.measured.is_some()).collect();
        let shown: Vec<_> = run.iter().map(|run| (run.target, run.measured, run.word())).collect();
        let expected = [
            ("64 in flight, HTTP: × peer", Some(9.0), "ok"),
            ("sequential, stdio: µs added (p50)", Some(230.0), "MISSED"),
            ("100 servers and 1,000 sessions: MiB", Some(90.0), "ok"),
        ];
        assert_eq!(shown, expected);
    }
}
