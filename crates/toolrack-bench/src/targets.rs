//! The targets, and whether they are met.
//!
//! A target whose numbers are not all there did not run, and decides nothing.

mod cli;
mod gateway;
mod http;
mod manager;

use std::fmt;

use crate::clients::ClientName::{
    self, BareBlock, BareTokio, Rmcp, Toolrack, ToolrackGuarded, ToolrackRaw,
};
use crate::report::Metric;
use crate::results::{Entry, Results};
use crate::scenario::{CURRENT, MULTI, PINNED, Scenario, Setup, Subject};
use crate::table::{Table, number};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {}", number(*bound)),
            Self::AtMost(bound) => write!(f, "≤ {}", number(*bound)),
        }
    }
}

/// One target beside what was measured.
#[derive(Debug, PartialEq)]
pub(crate) struct Verdict {
    target: &'static str,
    bound: Bound,
    measured: Option<f64>,
    /// What a bare pipe or HTTP client reaches, with no MCP client at all. A bound beyond it cannot be met on this machine.
    at_limit: Option<f64>,
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self.measured {
            None => "not run",
            Some(value) if self.bound.is_met(value) => "ok",
            Some(_) => "MISSED",
        }
    }
}

pub(crate) fn verdicts(subject: Subject, results: &Results) -> Vec<Verdict> {
    let asked = Asked { results };
    match subject {
        Subject::Http => asked.about_http(),
        Subject::Manager => asked.about_rack(),
        Subject::Cli => asked.about_programs(),
        Subject::Gateway => asked.about_gateways(),
        Subject::Stdio => {
            let mut verdicts = asked.about_calls();
            verdicts.extend(asked.about_costs());
            verdicts.extend(asked.about_results());
            verdicts.extend(asked.about_tools());
            verdicts.extend(asked.about_lines());
            verdicts
        }
    }
}

pub(crate) fn all_met(verdicts: &[Verdict]) -> bool {
    verdicts.iter().all(|verdict| verdict.word() != "MISSED")
}

pub(crate) fn section(subject: Subject, verdicts: &[Verdict]) -> String {
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number);
    let bare = match subject {
        Subject::Stdio => Some("a bare tokio pipe"),
        Subject::Http => Some("a bare hyper-util client"),
        // Nothing bare manages servers, is a program or stands before a server.
        Subject::Manager | Subject::Cli | Subject::Gateway => None,
    };
    let rows = verdicts
        .iter()
        .map(|verdict| {
            let Verdict { target, bound, measured, at_limit } = verdict;
            let cells = [bound.to_string(), shown(*measured), verdict.word().to_owned()];
            let mut row = vec![(*target).to_owned()];
            row.extend(cells);
            row.extend(bare.map(|_| shown(*at_limit)));
            row
        })
        .collect();
    let headings = ["target", "bound", "measured", "verdict"].into_iter().chain(bare);
    let headings = headings.map(str::to_owned).collect();
    Table { title: "Targets".to_owned(), headings, rows }.render()
}

struct Asked<'a> {
    results: &'a Results,
}

impl Asked<'_> {
    fn about_calls(&self) -> Vec<Verdict> {
        use Bound::AtLeast;
        use Scenario::{InFlight64, InFlight1024, Sequential};
        let (p50, calls) = (Metric::P50Micros, Metric::CallsPerSecond);
        vec![
            compared("sequential, one core: × rmcp (p50)", AtLeast(3.3), |client| {
                self.times_rmcp(client, Sequential, PINNED, p50)
            }),
            compared("sequential, one core: × best peer (p50)", AtLeast(2.2), |client| {
                self.times_best_peer(client, Sequential, PINNED, p50)
            }),
            compared("64 in flight [multi]: × rmcp", AtLeast(6.0), |client| {
                self.times_rmcp(client, InFlight64, MULTI, calls)
            }),
            compared(
                "64 in flight [multi]: × best peer on either runtime",
                AtLeast(2.2),
                |client| self.times_best_peer(client, InFlight64, MULTI, calls),
            ),
            compared(
                "64 in flight [current]: × best peer on either runtime",
                AtLeast(2.2),
                |client| self.times_best_peer(client, InFlight64, CURRENT, calls),
            ),
            compared("1,024 in flight [multi]: × rmcp", AtLeast(10.0), |client| {
                self.times_rmcp(client, InFlight1024, MULTI, calls)
            }),
            compared("1,024 in flight [current]: × rmcp", AtLeast(10.0), |client| {
                self.times_rmcp(client, InFlight1024, CURRENT, calls)
            }),
        ]
    }

    fn about_costs(&self) -> Vec<Verdict> {
        use Bound::AtMost;
        use Scenario::{Allocations, HeadOfLine, Instructions};
        let loaded = self.of(Toolrack, HeadOfLine, PINNED, Metric::LoadedOverAlone);
        let instructions = self.of(ToolrackRaw, Instructions, CURRENT, Metric::Instructions);
        let allocations = self.of(ToolrackRaw, Allocations, CURRENT, Metric::Allocations);
        vec![
            verdict("head of line: beside slow calls / alone", AtMost(2.0), loaded),
            verdict("instructions per call, raw result", AtMost(8_000.0), instructions),
            verdict("allocations per call, raw result", AtMost(4.0), allocations),
        ]
    }

    /// Text that the caller owns is a copy of what came, which a bare reader does not make; so both ways
    /// of taking a result are held to the bounds, and the table says which of them keeps within.
    fn about_results(&self) -> Vec<Verdict> {
        use Bound::AtMost;
        use Scenario::{Result8, Result16};
        let time = |client, scenario| {
            let limit = self.of(BareBlock, scenario, CURRENT, Metric::Millis);
            over(self.of(client, scenario, CURRENT, Metric::Millis), limit)
        };
        let memory = |client, scenario, payload_bytes| {
            let megabytes = self.of(client, scenario, CURRENT, Metric::OverIdleMegabytes);
            over(megabytes, Some(payload_bytes / 1e6))
        };
        let cpu = over(
            self.of(Toolrack, Result8, CURRENT, Metric::CpuMillis),
            self.of(Rmcp, Result8, CURRENT, Metric::CpuMillis),
        );
        let (small, large) = (8.0 * MIB_AS_FLOAT, 16.0 * MIB_AS_FLOAT);
        let at_most = |target, bound, measured| verdict(target, AtMost(bound), measured);
        vec![
            at_most("8 MiB result: time / bare reader's", 1.3, time(Toolrack, Result8)),
            at_most("8 MiB result, raw: time / bare reader's", 1.3, time(ToolrackRaw, Result8)),
            at_most("16 MiB result: time / bare reader's", 1.3, time(Toolrack, Result16)),
            at_most("16 MiB result, raw: time / bare reader's", 1.3, time(ToolrackRaw, Result16)),
            at_most("8 MiB result: CPU / rmcp's", 0.5, cpu),
            at_most("8 MiB result: memory / payload", 1.3, memory(Toolrack, Result8, small)),
            at_most(
                "8 MiB result, raw: memory / payload",
                1.3,
                memory(ToolrackRaw, Result8, small),
            ),
            at_most("16 MiB result: memory / payload", 1.3, memory(Toolrack, Result16, large)),
            at_most(
                "16 MiB result, raw: memory / payload",
                1.3,
                memory(ToolrackRaw, Result16, large),
            ),
        ]
    }

    fn about_tools(&self) -> Vec<Verdict> {
        use Bound::{AtLeast, AtMost};
        use Scenario::Tools5000;
        let over_idle = self.of(Toolrack, Tools5000, CURRENT, Metric::OverIdleMegabytes);
        vec![
            compared("5,000 tools: × rmcp", AtLeast(4.0), |client| {
                self.times_rmcp(client, Tools5000, CURRENT, Metric::Millis)
            }),
            verdict("5,000 tools: MB over idle", AtMost(25.0), over_idle),
        ]
    }

    fn about_lines(&self) -> Vec<Verdict> {
        use Bound::AtMost;
        use Scenario::{Connect, IdleLines};
        let rmcp = self.of(Rmcp, Connect, CURRENT, Metric::Millis);
        let under_guardian = self.of(ToolrackGuarded, Connect, CURRENT, Metric::Millis);
        let private = self.of(ToolrackGuarded, IdleLines, CURRENT, Metric::PrivateKibPerGoBetween);
        vec![
            compared("connect without guardian: time / rmcp's", AtMost(1.0), |client| {
                over(self.of(client, Connect, CURRENT, Metric::Millis), rmcp)
            }),
            verdict(
                "connect with guardian: ms more than rmcp",
                AtMost(2.0),
                under_guardian.zip(rmcp).map(|(ours, theirs)| ours - theirs),
            ),
            compared("idle line: KiB of resident memory", AtMost(16.0), |client| {
                self.of(client, IdleLines, CURRENT, Metric::ResidentKibPerLine)
            }),
            verdict("guardian: KiB of private memory", AtMost(1024.0), private),
        ]
    }

    fn of(
        &self,
        client: ClientName,
        scenario: Scenario,
        setup: Setup,
        metric: Metric,
    ) -> Option<f64> {
        self.results.median(Entry { scenario, setup, client }, metric)
    }

    fn times_rmcp(
        &self,
        client: ClientName,
        scenario: Scenario,
        setup: Setup,
        metric: Metric,
    ) -> Option<f64> {
        let value = self.of(client, scenario, setup, metric)?;
        let rmcp = self.of(Rmcp, scenario, setup, metric)?;
        Some(metric.better().advantage(value, rmcp))
    }

    /// Beside the best that any peer reached on as many cores, on whichever runtime suits it.
    fn times_best_peer(
        &self,
        client: ClientName,
        scenario: Scenario,
        setup: Setup,
        metric: Metric,
    ) -> Option<f64> {
        let same_cores: Vec<Setup> = [PINNED, MULTI, CURRENT]
            .into_iter()
            .filter(|value| value.cores == setup.cores)
            .collect();
        let value = self.of(client, scenario, setup, metric)?;
        let peer = self.results.best_peer(scenario, &same_cores, metric)?;
        Some(metric.better().advantage(value, peer))
    }
}

const MIB_AS_FLOAT: f64 = 1_048_576.0;

fn verdict(target: &'static str, bound: Bound, measured: Option<f64>) -> Verdict {
    Verdict { target, bound, measured, at_limit: None }
}

/// A verdict on what can be said of our client and of a bare pipe alike.
fn compared(target: &'static str, bound: Bound, of: impl Fn(ClientName) -> Option<f64>) -> Verdict {
    Verdict { target, bound, measured: of(Toolrack), at_limit: of(BareTokio) }
}

fn over(value: Option<f64>, reference: Option<f64>) -> Option<f64> {
    Some(value? / reference?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_process::Outcome;
    use crate::report::Report;

    fn measured(values: &[(ClientName, Scenario, Setup, Metric, f64)]) -> Results {
        let mut results = Results::default();
        for (client, scenario, setup, metric, value) in values.iter().copied() {
            let report = Report::from([(metric, value)]);
            results.add(Entry { scenario, setup, client }, Outcome::Measured(report));
        }
        results
    }

    #[track_caller]
    fn check(verdicts: &[Verdict], target: &str, measured: Option<f64>, word: &str) {
        let found =
            verdicts.iter().find(|verdict| verdict.target == target).expect("no such target");
        assert_eq!((found.measured, found.word()), (measured, word), "{target}");
    }

    #[test]
    fn calls_are_judged_by_their_advantage() {
        use Metric::{CallsPerSecond, P50Micros};
        use Scenario::{InFlight64, Sequential};
        let results = measured(&[
            (Toolrack, Sequential, PINNED, P50Micros, 4.0),
            (Rmcp, Sequential, PINNED, P50Micros, 16.0),
            (BareTokio, Sequential, PINNED, P50Micros, 3.2),
            (Toolrack, InFlight64, MULTI, CallsPerSecond, 500.0),
            (Rmcp, InFlight64, MULTI, CallsPerSecond, 100.0),
            (ClientName::Turbomcp, InFlight64, CURRENT, CallsPerSecond, 1000.0),
        ]);
        let verdicts = Asked { results: &results }.about_calls();
        check(&verdicts, "sequential, one core: × rmcp (p50)", Some(4.0), "ok");
        check(&verdicts, "64 in flight [multi]: × rmcp", Some(5.0), "MISSED");
        let either = "64 in flight [multi]: × best peer on either runtime";
        check(&verdicts, either, Some(0.5), "MISSED");
        check(&verdicts, "1,024 in flight [multi]: × rmcp", None, "not run");
        assert!(!all_met(&verdicts));
        let at_limit: Vec<Option<f64>> =
            verdicts.iter().take(2).map(|verdict| verdict.at_limit).collect();
        assert_eq!(at_limit, [Some(5.0), Some(5.0)]);
    }

    #[test]
    fn sizes_are_judged_beside_the_bare_reader_and_the_payload() {
        use Scenario::{Result8, Result16};
        let results = measured(&[
            (ToolrackRaw, Result16, CURRENT, Metric::Millis, 24.0),
            (BareBlock, Result16, CURRENT, Metric::Millis, 20.0),
            (Toolrack, Result8, CURRENT, Metric::CpuMillis, 4.0),
            (Rmcp, Result8, CURRENT, Metric::CpuMillis, 16.0),
        ]);
        let verdicts = Asked { results: &results }.about_results();
        check(&verdicts, "16 MiB result, raw: time / bare reader's", Some(1.2), "ok");
        check(&verdicts, "8 MiB result: CPU / rmcp's", Some(0.25), "ok");
        check(&verdicts, "8 MiB result, raw: memory / payload", None, "not run");
        assert!(all_met(&verdicts));
    }

    #[test]
    fn memory_is_judged_in_multiples_of_the_payload() {
        let over_idle = 8.0 * 1.048_576 * 2.0;
        let results = measured(&[(
            ToolrackRaw,
            Scenario::Result8,
            CURRENT,
            Metric::OverIdleMegabytes,
            over_idle,
        )]);
        let verdicts = Asked { results: &results }.about_results();
        check(&verdicts, "8 MiB result, raw: memory / payload", Some(2.0), "MISSED");
    }

    #[test]
    fn a_guardian_may_cost_two_milliseconds() {
        use Scenario::Connect;
        let results = measured(&[
            (Toolrack, Connect, CURRENT, Metric::Millis, 1.0),
            (Rmcp, Connect, CURRENT, Metric::Millis, 2.0),
            (ToolrackGuarded, Connect, CURRENT, Metric::Millis, 4.5),
        ]);
        let verdicts = Asked { results: &results }.about_lines();
        check(&verdicts, "connect without guardian: time / rmcp's", Some(0.5), "ok");
        check(&verdicts, "connect with guardian: ms more than rmcp", Some(2.5), "MISSED");
        check(&verdicts, "guardian: KiB of private memory", None, "not run");
    }
}
