//! Performance targets, and whether a measurement meets them.
//!
//! A target with missing figures was not run; it does not fail the benchmark.

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

/// A target and its measured figure.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    name: &'static str,
    bound: Bound,
    measured: Option<f64>,
    /// Figure of a bare pipe or HTTP client without MCP. A bound beyond it cannot be met on this machine.
    at_limit: Option<f64>,
}

impl Target {
    fn status(&self) -> &'static str {
        match self.measured {
            None => "not run",
            Some(value) if self.bound.is_met(value) => "ok",
            Some(_) => "MISSED",
        }
    }
}

/// Evaluates the targets of a subject.
pub(crate) fn evaluate(subject: Subject, results: &Results) -> Vec<Target> {
    let figures = Figures { results };
    match subject {
        Subject::Http => figures.http_targets(),
        Subject::Manager => figures.manager_targets(),
        Subject::Cli => figures.cli_targets(),
        Subject::Gateway => figures.gateway_targets(),
        Subject::Stdio => {
            let mut targets = figures.call_targets();
            targets.extend(figures.cost_targets());
            targets.extend(figures.large_result_targets());
            targets.extend(figures.tool_list_targets());
            targets.extend(figures.connection_targets());
            targets
        }
    }
}

pub(crate) fn all_met(targets: &[Target]) -> bool {
    targets.iter().all(|target| target.status() != "MISSED")
}

/// The table of targets.
pub(crate) fn render(subject: Subject, targets: &[Target]) -> String {
    let cell = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number);
    let bare = match subject {
        Subject::Stdio => Some("bare Tokio pipe"),
        Subject::Http => Some("bare hyper-util client"),
        // These subjects have no bare counterpart.
        Subject::Manager | Subject::Cli | Subject::Gateway => None,
    };
    let rows = targets
        .iter()
        .map(|target| {
            let Target { name, bound, measured, at_limit } = target;
            let cells = [bound.to_string(), cell(*measured), target.status().to_owned()];
            let mut row = vec![(*name).to_owned()];
            row.extend(cells);
            row.extend(bare.map(|_| cell(*at_limit)));
            row
        })
        .collect();
    let headings = ["target", "bound", "measured", "status"].into_iter().chain(bare);
    let headings = headings.map(str::to_owned).collect();
    Table { title: "Targets".to_owned(), headings, rows }.render()
}

/// Computes targets from the results.
struct Figures<'a> {
    results: &'a Results,
}

impl Figures<'_> {
    fn call_targets(&self) -> Vec<Target> {
        use Bound::AtLeast;
        use Scenario::{InFlight64, InFlight1024, Sequential};
        let (p50, calls) = (Metric::P50Micros, Metric::CallsPerSecond);
        vec![
            compare_with_pipe("sequential, one core: × rmcp (p50)", AtLeast(3.3), |client| {
                self.advantage_over_rmcp(client, Sequential, PINNED, p50)
            }),
            compare_with_pipe("sequential, one core: × best peer (p50)", AtLeast(2.2), |client| {
                self.advantage_over_best_peer(client, Sequential, PINNED, p50)
            }),
            compare_with_pipe("64 in flight [multi]: × rmcp", AtLeast(6.0), |client| {
                self.advantage_over_rmcp(client, InFlight64, MULTI, calls)
            }),
            compare_with_pipe(
                "64 in flight [multi]: × best peer on either runtime",
                AtLeast(2.2),
                |client| self.advantage_over_best_peer(client, InFlight64, MULTI, calls),
            ),
            compare_with_pipe(
                "64 in flight [current]: × best peer on either runtime",
                AtLeast(2.2),
                |client| self.advantage_over_best_peer(client, InFlight64, CURRENT, calls),
            ),
            compare_with_pipe("1,024 in flight [multi]: × rmcp", AtLeast(10.0), |client| {
                self.advantage_over_rmcp(client, InFlight1024, MULTI, calls)
            }),
            compare_with_pipe("1,024 in flight [current]: × rmcp", AtLeast(10.0), |client| {
                self.advantage_over_rmcp(client, InFlight1024, CURRENT, calls)
            }),
        ]
    }

    fn cost_targets(&self) -> Vec<Target> {
        use Bound::AtMost;
        use Scenario::{Allocations, HeadOfLine, Instructions};
        let beside_slow = self.median(Toolrack, HeadOfLine, PINNED, Metric::BesideSlowOverAlone);
        let instructions = self.median(ToolrackRaw, Instructions, CURRENT, Metric::Instructions);
        let allocations = self.median(ToolrackRaw, Allocations, CURRENT, Metric::Allocations);
        vec![
            target("head-of-line blocking: beside slow calls / alone", AtMost(2.0), beside_slow),
            target("instructions per call, raw result", AtMost(8_000.0), instructions),
            target("allocations per call, raw result", AtMost(4.0), allocations),
        ]
    }

    /// An owned text is a copy, which a bare reader does not make; so decoded and raw results are both compared
    /// with the bounds.
    fn large_result_targets(&self) -> Vec<Target> {
        use Bound::AtMost;
        use Scenario::{Result8, Result16};
        let time = |client, scenario| {
            let limit = self.median(BareBlock, scenario, CURRENT, Metric::Millis);
            ratio(self.median(client, scenario, CURRENT, Metric::Millis), limit)
        };
        let memory = |client, scenario, payload_bytes| {
            let megabytes = self.median(client, scenario, CURRENT, Metric::OverIdleMegabytes);
            ratio(megabytes, Some(payload_bytes / 1e6))
        };
        let cpu = ratio(
            self.median(Toolrack, Result8, CURRENT, Metric::CpuMillis),
            self.median(Rmcp, Result8, CURRENT, Metric::CpuMillis),
        );
        let (small, large) = (8.0 * MIB_AS_FLOAT, 16.0 * MIB_AS_FLOAT);
        let at_most = |name, bound, measured| target(name, AtMost(bound), measured);
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

    fn tool_list_targets(&self) -> Vec<Target> {
        use Bound::{AtLeast, AtMost};
        use Scenario::Tools5000;
        let over_idle = self.median(Toolrack, Tools5000, CURRENT, Metric::OverIdleMegabytes);
        vec![
            compare_with_pipe("5,000 tools: × rmcp", AtLeast(4.0), |client| {
                self.advantage_over_rmcp(client, Tools5000, CURRENT, Metric::Millis)
            }),
            target("5,000 tools: MB over idle", AtMost(25.0), over_idle),
        ]
    }

    fn connection_targets(&self) -> Vec<Target> {
        use Bound::AtMost;
        use Scenario::{Connect, IdleConnections};
        let rmcp = self.median(Rmcp, Connect, CURRENT, Metric::Millis);
        let under_guardian = self.median(ToolrackGuarded, Connect, CURRENT, Metric::Millis);
        let private =
            self.median(ToolrackGuarded, IdleConnections, CURRENT, Metric::PrivateKibPerGuardian);
        vec![
            compare_with_pipe("connect without guardian: time / rmcp's", AtMost(1.0), |client| {
                ratio(self.median(client, Connect, CURRENT, Metric::Millis), rmcp)
            }),
            target(
                "connect with guardian: ms more than rmcp",
                AtMost(2.0),
                under_guardian.zip(rmcp).map(|(ours, theirs)| ours - theirs),
            ),
            compare_with_pipe("idle connection: KiB of resident memory", AtMost(16.0), |client| {
                self.median(client, IdleConnections, CURRENT, Metric::ResidentKibPerConnection)
            }),
            target("guardian: KiB of private memory", AtMost(1024.0), private),
        ]
    }

    fn median(
        &self,
        client: ClientName,
        scenario: Scenario,
        setup: Setup,
        metric: Metric,
    ) -> Option<f64> {
        self.results.median(Entry { scenario, setup, client }, metric)
    }

    fn advantage_over_rmcp(
        &self,
        client: ClientName,
        scenario: Scenario,
        setup: Setup,
        metric: Metric,
    ) -> Option<f64> {
        let value = self.median(client, scenario, setup, metric)?;
        let rmcp = self.median(Rmcp, scenario, setup, metric)?;
        Some(metric.better().advantage(value, rmcp))
    }

    /// Advantage over the best peer with the same number of cores, on any runtime.
    fn advantage_over_best_peer(
        &self,
        client: ClientName,
        scenario: Scenario,
        setup: Setup,
        metric: Metric,
    ) -> Option<f64> {
        let same_cores: Vec<Setup> = [PINNED, MULTI, CURRENT]
            .into_iter()
            .filter(|candidate| candidate.cores == setup.cores)
            .collect();
        let value = self.median(client, scenario, setup, metric)?;
        let peer = self.results.best_peer(scenario, &same_cores, metric)?;
        Some(metric.better().advantage(value, peer))
    }
}

const MIB_AS_FLOAT: f64 = 1_048_576.0;

fn target(name: &'static str, bound: Bound, measured: Option<f64>) -> Target {
    Target { name, bound, measured, at_limit: None }
}

/// A target that applies to our client and to a bare pipe.
fn compare_with_pipe(
    name: &'static str,
    bound: Bound,
    figure: impl Fn(ClientName) -> Option<f64>,
) -> Target {
    Target { name, bound, measured: figure(Toolrack), at_limit: figure(BareTokio) }
}

fn ratio(value: Option<f64>, reference: Option<f64>) -> Option<f64> {
    Some(value? / reference?)
}

impl Figures<'_> {
    /// Peers are compared on the same runtime; the bare TCP client has no runtime.
    fn http_targets(&self) -> Vec<Target> {
        use Bound::{AtLeast, AtMost};
        use Scenario::{HttpJson, HttpJson64};
        let mut targets = Vec::new();
        for (setup, names) in [(MULTI, HTTP_NAMES_MULTI), (CURRENT, HTTP_NAMES_CURRENT)] {
            let calls = |client, peer| self.calls_over(client, peer, setup);
            let cpu = |client, scenario| self.cpu_over_rmcp(client, scenario, setup);
            let latency = |client| {
                let limit = self.median(BareTcp, HttpJson, CURRENT, Metric::P50Micros);
                ratio(self.median(client, HttpJson, setup, Metric::P50Micros), limit)
            };
            let [rmcp, pmcp, p50, cpu_64, cpu_1] = names;
            targets.extend([
                compare_with_hyper(rmcp, AtLeast(7.0), |client| calls(client, Rmcp)),
                compare_with_hyper(pmcp, AtLeast(1.8), |client| calls(client, Pmcp)),
                compare_with_hyper(p50, AtMost(1.35), latency),
                compare_with_hyper(cpu_64, AtMost(0.25), |client| cpu(client, HttpJson64)),
                compare_with_hyper(cpu_1, AtMost(0.25), |client| cpu(client, HttpJson)),
            ]);
        }
        targets
    }

    fn calls_over(&self, client: ClientName, peer: ClientName, setup: Setup) -> Option<f64> {
        let figure =
            |client| self.median(client, Scenario::HttpJson64, setup, Metric::CallsPerSecond);
        ratio(figure(client), figure(peer))
    }

    fn cpu_over_rmcp(&self, client: ClientName, scenario: Scenario, setup: Setup) -> Option<f64> {
        let figure = |client| self.median(client, scenario, setup, Metric::CpuMicrosPerCall);
        ratio(figure(client), figure(Rmcp))
    }
}

const HTTP_NAMES_MULTI: [&str; 5] = [
    "64 in flight, JSON 100 B [multi]: × rmcp",
    "64 in flight, JSON 100 B [multi]: × pmcp",
    "sequential, JSON 100 B [multi]: p50 / bare TCP's",
    "64 in flight, JSON 100 B [multi]: CPU / rmcp's",
    "sequential, JSON 100 B [multi]: CPU / rmcp's",
];
const HTTP_NAMES_CURRENT: [&str; 5] = [
    "64 in flight, JSON 100 B [current]: × rmcp",
    "64 in flight, JSON 100 B [current]: × pmcp",
    "sequential, JSON 100 B [current]: p50 / bare TCP's",
    "64 in flight, JSON 100 B [current]: CPU / rmcp's",
    "sequential, JSON 100 B [current]: CPU / rmcp's",
];

fn compare_with_hyper(
    name: &'static str,
    bound: Bound,
    figure: impl Fn(ClientName) -> Option<f64>,
) -> Target {
    Target { name, bound, measured: figure(Toolrack), at_limit: figure(BareHyper) }
}

/// Allowed overhead of the manager over its client.
const MANAGER_OVERHEAD: Bound = Bound::AtMost(1.15);

const MANAGER_NAMES: [&str; 4] = [
    "sequential, one core: p50 / client's",
    "sequential [multi]: p50 / client's",
    "64 in flight [multi]: time / client's",
    "64 in flight [current]: CPU / client's",
];
const MANAGER_NAMES_RAW: [&str; 4] = [
    "sequential, one core, raw result: p50 / client's",
    "sequential [multi], raw result: p50 / client's",
    "64 in flight [multi], raw result: time / client's",
    "64 in flight [current], raw result: CPU / client's",
];

impl Figures<'_> {
    fn manager_targets(&self) -> Vec<Target> {
        use Bound::AtMost;
        use Scenario::{ManagerBadNeighbor, ManagerMemory, ManagerTools};
        let mut targets = self.manager_call_targets();
        let figure = |scenario, setup, metric| self.median(Manager, scenario, setup, metric);
        let list =
            figure(ManagerTools, CURRENT, Metric::AllToolsP99Micros).map(|micros| micros / 1e3);
        let memory = figure(ManagerMemory, CURRENT, Metric::BeyondListKibPerServer);
        let p99 = |setup| figure(ManagerBadNeighbor, setup, Metric::ManagedOverUnmanaged);
        let failed = |setup| figure(ManagerBadNeighbor, setup, Metric::FailedCalls);
        targets.extend([
            target("all_tools, 100 × 50: p99 in ms", AtMost(1.0), list),
            target("idle server: KiB beyond its tool list", AtMost(40.0), memory),
            target(
                "start of 100 servers [multi]: time / rmcp's",
                AtMost(4.0),
                self.start_ratio(MULTI),
            ),
            target(
                "start of 100 servers [current]: time / rmcp's",
                AtMost(4.0),
                self.start_ratio(CURRENT),
            ),
            target("bad neighbor [multi]: p99 managed / unmanaged", AtMost(2.0), p99(MULTI)),
            target("bad neighbor [current]: p99 managed / unmanaged", AtMost(2.0), p99(CURRENT)),
            target("bad neighbor [multi]: failed calls", AtMost(0.0), failed(MULTI)),
            target("bad neighbor [current]: failed calls", AtMost(0.0), failed(CURRENT)),
        ]);
        targets
    }

    /// Overhead of calls. On one core, latency is work; on two cores it is mostly waking the other core. In flight on
    /// one thread, CPU time is work, while the throughput also depends on the server's core.
    fn manager_call_targets(&self) -> Vec<Target> {
        use Metric::{CpuOverClient, P50OverClient, TimeOverClient};
        use Scenario::{ManagerInFlight64, ManagerSequential};
        let mut targets = Vec::new();
        for (client, names) in [(Manager, MANAGER_NAMES), (ManagerRaw, MANAGER_NAMES_RAW)] {
            let [one_core, multi, in_flight_multi, in_flight] = names;
            let figure = |scenario, setup, metric| self.median(client, scenario, setup, metric);
            targets.extend([
                target(
                    one_core,
                    MANAGER_OVERHEAD,
                    figure(ManagerSequential, PINNED, P50OverClient),
                ),
                target(multi, MANAGER_OVERHEAD, figure(ManagerSequential, MULTI, P50OverClient)),
                target(
                    in_flight_multi,
                    MANAGER_OVERHEAD,
                    figure(ManagerInFlight64, MULTI, TimeOverClient),
                ),
                target(
                    in_flight,
                    MANAGER_OVERHEAD,
                    figure(ManagerInFlight64, CURRENT, CpuOverClient),
                ),
            ]);
        }
        targets
    }

    fn start_ratio(&self, setup: Setup) -> Option<f64> {
        let time = |client| self.median(client, Scenario::ManagerStart, setup, Metric::Millis);
        ratio(time(Manager), time(Rmcp))
    }
}

impl Figures<'_> {
    fn cli_targets(&self) -> Vec<Target> {
        use Bound::{AtLeast, AtMost};
        use Scenario::{CliDemo, CliHelp, CliNode, CliSize, CliWarm};
        let figure = |scenario, metric| self.median(Toolrack, scenario, CURRENT, metric);
        let added = |scenario, metric| {
            let alone = self.median(BareBlock, scenario, CURRENT, metric);
            figure(scenario, metric).zip(alone).map(|(ours, alone)| ours - alone)
        };
        let (first_output, exit) = (Metric::FirstOutputMillis, Metric::Millis);
        let times_peer =
            |scenario| self.advantage_over_best_peer(Toolrack, scenario, CURRENT, Metric::Millis);
        vec![
            target(
                "first output, Node.js server: ms added",
                AtMost(40.0),
                added(CliNode, first_output),
            ),
            target(
                "first output, small server: ms added",
                AtMost(40.0),
                added(CliDemo, first_output),
            ),
            target("call, Node.js server: ms added", AtMost(40.0), added(CliNode, exit)),
            target("call, small server: ms added", AtMost(40.0), added(CliDemo, exit)),
            target("call, Node.js server: × best peer", AtLeast(1.0), times_peer(CliNode)),
            target("call, small server: × best peer", AtLeast(1.0), times_peer(CliDemo)),
            target("call: peak MiB", AtMost(20.0), figure(CliNode, Metric::PeakMib)),
            target("warm call through the daemon: ms", AtMost(15.0), figure(CliWarm, exit)),
            target("help: ms", AtMost(10.0), figure(CliHelp, Metric::Millis)),
            target("size, stripped: MiB", AtMost(25.0), figure(CliSize, Metric::StrippedMib)),
        ]
    }
}

impl Figures<'_> {
    fn gateway_targets(&self) -> Vec<Target> {
        use Bound::{AtLeast, AtMost};
        use Scenario::{GatewayHttp, GatewayHttp64, GatewayMemory, GatewayStdio, GatewayStdio64};
        let times_peer = |scenario| {
            self.advantage_over_best_peer(Gateway, scenario, CURRENT, Metric::CallsPerSecond)
        };
        let added = |scenario| {
            let p50 = |client| self.median(client, scenario, CURRENT, Metric::P50Micros);
            p50(Gateway).zip(p50(Direct)).map(|(through, direct)| through - direct)
        };
        let memory = self.median(Gateway, GatewayMemory, CURRENT, Metric::SessionsMib);
        vec![
            target("64 in flight, HTTP: × peer", AtLeast(5.0), times_peer(GatewayHttp64)),
            target("64 in flight, stdio: × peer", AtLeast(5.0), times_peer(GatewayStdio64)),
            target("sequential, HTTP: µs added (p50)", AtMost(200.0), added(GatewayHttp)),
            target("sequential, stdio: µs added (p50)", AtMost(200.0), added(GatewayStdio)),
            target("100 servers and 1,000 sessions: MiB", AtMost(150.0), memory),
        ]
    }
}

#[cfg(test)]
mod tests;
