//! The targets of the program `toolrack`.

use super::{Asked, Bound, Verdict, verdict};
use crate::clients::ClientName::{BareBlock, Toolrack};
use crate::report::Metric;
use crate::scenario::{CURRENT, Scenario};

impl Asked<'_> {
    pub(super) fn about_programs(&self) -> Vec<Verdict> {
        use Bound::{AtLeast, AtMost};
        use Scenario::{CliDemo, CliHelp, CliNode, CliSize, CliWarm};
        let of = |scenario, metric| self.of(Toolrack, scenario, CURRENT, metric);
        let added = |scenario, metric| {
            let alone = self.of(BareBlock, scenario, CURRENT, metric);
            of(scenario, metric).zip(alone).map(|(ours, alone)| ours - alone)
        };
        let (answer, end) = (Metric::AnswerMillis, Metric::Millis);
        let times_peer =
            |scenario| self.times_best_peer(Toolrack, scenario, CURRENT, Metric::Millis);
        vec![
            verdict("answer, server on Node: ms added", AtMost(40.0), added(CliNode, answer)),
            verdict("answer, small server: ms added", AtMost(40.0), added(CliDemo, answer)),
            verdict("call, server on Node: ms added", AtMost(40.0), added(CliNode, end)),
            verdict("call, small server: ms added", AtMost(40.0), added(CliDemo, end)),
            verdict("call, server on Node: × best peer", AtLeast(1.0), times_peer(CliNode)),
            verdict("call, small server: × best peer", AtLeast(1.0), times_peer(CliDemo)),
            verdict("call: peak MiB", AtMost(20.0), of(CliNode, Metric::PeakMib)),
            verdict("warm call by way of the daemon: ms", AtMost(15.0), of(CliWarm, end)),
            verdict("help: ms", AtMost(10.0), of(CliHelp, Metric::Millis)),
            verdict("size, stripped: MiB", AtMost(25.0), of(CliSize, Metric::StrippedMib)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_process::Outcome;
    use crate::clients::ClientName::Mcporter;
    use crate::report::Report;
    use crate::results::{Entry, Results};

    #[test]
    fn the_program_is_judged_by_what_it_adds_to_its_server() {
        let mut results = Results::default();
        let mut add = |client, scenario, metric, value| {
            let report = Report::from([(metric, value)]);
            results.add(Entry { scenario, setup: CURRENT, client }, Outcome::Measured(report));
        };
        add(Toolrack, Scenario::CliNode, Metric::Millis, 460.0);
        add(BareBlock, Scenario::CliNode, Metric::Millis, 410.0);
        add(Mcporter, Scenario::CliNode, Metric::Millis, 1_380.0);
        add(Toolrack, Scenario::CliWarm, Metric::Millis, 16.0);
        add(Toolrack, Scenario::CliHelp, Metric::Millis, 3.0);
        add(Toolrack, Scenario::CliSize, Metric::StrippedMib, 26.0);
        let verdicts = Asked { results: &results }.about_programs();
        let run: Vec<_> = verdicts.iter().filter(|verdict| verdict.measured.is_some()).collect();
        let shown: Vec<_> = run.iter().map(|run| (run.target, run.measured, run.word())).collect();
        let expected = [
            ("call, server on Node: ms added", Some(50.0), "MISSED"),
            ("call, server on Node: × best peer", Some(3.0), "ok"),
            ("warm call by way of the daemon: ms", Some(16.0), "MISSED"),
            ("help: ms", Some(3.0), "ok"),
            ("size, stripped: MiB", Some(26.0), "MISSED"),
        ];
        assert_eq!(shown, expected);
    }
}
