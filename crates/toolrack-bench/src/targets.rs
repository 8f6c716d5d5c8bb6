//! Performance targets, and whether a run meets them.
//!
//! A target without all of its figures was not run, and does not fail the benchmark.

use std::fmt;

use crate::clients::ClientName::{
    self, BareBlock, BareHyper, BareTcp, BareTokio, Direct, Gateway, Manager, ManagerRaw, Pmcp,
    Rmcp, Toolrack, ToolrackGuarded, ToolrackRaw,
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

impl Asked<'_> {
    /// Peers are compared with on the same runtime; the bare exchange has none.
    fn about_http(&self) -> Vec<Verdict> {
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
                compared_with_hyper(rmcp, AtLeast(7.0), |client| calls(client, Rmcp)),
                compared_with_hyper(pmcp, AtLeast(1.8), |client| calls(client, Pmcp)),
                compared_with_hyper(p50, AtMost(1.35), latency),
                compared_with_hyper(cpu_64, AtMost(0.25), |client| cpu(client, HttpJson64)),
                compared_with_hyper(cpu_1, AtMost(0.25), |client| cpu(client, HttpJson)),
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

fn compared_with_hyper(
    target: &'static str,
    bound: Bound,
    of: impl Fn(ClientName) -> Option<f64>,
) -> Verdict {
    Verdict { target, bound, measured: of(Toolrack), at_limit: of(BareHyper) }
}

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
    fn about_rack(&self) -> Vec<Verdict> {
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

impl Asked<'_> {
    fn about_programs(&self) -> Vec<Verdict> {
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

impl Asked<'_> {
    fn about_gateways(&self) -> Vec<Verdict> {
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
mod tests;
