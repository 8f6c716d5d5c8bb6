//! Scenarios: the measurements as a table, with their clients, setups and sizes.

pub(crate) mod calls;
pub(crate) mod cli;
pub(crate) mod gateway;
pub(crate) mod manager;
pub(crate) mod measure;

use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::clients::ClientName;
use crate::metric::{self as m, Metric};
use crate::server::http::Framing::{self, Events, Json};

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
    pub(crate) title: &'static str,
}

/// What a client process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Calls on a stdio server.
    Stdio(Load),
    /// A fast call, alone and while four slow calls are in flight.
    HeadOfLine,
    /// Repeated large results of this many MiB.
    LargeResult(usize),
    /// The same with JSON escapes.
    EscapedResult(usize),
    /// List of 5,000 tools.
    ToolList,
    /// User-space instructions of one such list.
    ToolListInstructions,
    /// Spawn, handshake and a list of ten tools, one connection at a time.
    Connect,
    /// User-space instructions of one such connection, from spawn to exit.
    ConnectInstructions,
    /// Memory per idle connection.
    Idle,
    /// Calls on an HTTP server with this framing and text length of responses.
    Http(Load, Framing, usize),
    /// Calls through the manager and directly on its client.
    Manager(Load),
    ManagerTools,
    ManagerMemory,
    ManagerStart,
    /// Calls while another server floods its output, spins a core and does not read.
    ManagerBadNeighbor,
    /// One call by a program that starts a Node.js server.
    CliNode,
    /// One call by a program that starts a very cheap server.
    CliDemo,
    /// One call through a daemon that keeps the server running.
    CliWarm,
    /// One call with this many configured servers, until the server reads its first byte.
    CliFirstByte(usize),
    CliHelp,
    CliSize,
    /// Calls through a gateway over HTTP.
    GatewayHttp(Load),
    /// Calls through a gateway over stdio.
    GatewayStdio(Load),
    GatewayMemory,
}

/// How calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Sequential,
    /// This many calls in flight.
    InFlight(usize),
    /// User-space instructions per call, counted by callgrind.
    Instructions,
    /// Heap allocations per call.
    Allocations,
}
use Load::{Allocations, InFlight, Instructions, Sequential};
use Work::{
    CliDemo, CliFirstByte, CliHelp, CliNode, CliSize, CliWarm, Connect, ConnectInstructions,
    EscapedResult, GatewayHttp, GatewayMemory, GatewayStdio, HeadOfLine, Http, Idle, LargeResult,
    Manager, ManagerBadNeighbor, ManagerMemory, ManagerStart, ManagerTools, Stdio, ToolList,
    ToolListInstructions,
};

/// Subject of a benchmark; each has its own subcommand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Clients that start a stdio server.
    Stdio,
    /// Clients that connect to an HTTP server.
    Http,
    /// Many servers in one process.
    Manager,
    /// Command-line programs that start, make one call and exit.
    Cli,
    /// Gateways in front of servers.
    Gateway,
}

pub(crate) const MIB: usize = 1024 * 1024;
/// Text length of a small result.
pub(crate) const SMALL: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Runtime {
    Current,
    Multi,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cores {
    /// Client and server share one core: the time is work, not luck of the scheduler.
    One,
    All,
}

/// Runtime and cores of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setup {
    pub(crate) runtime: Runtime,
    pub(crate) cores: Cores,
}

pub(crate) const PINNED: Setup = Setup { runtime: Runtime::Current, cores: Cores::One };
pub(crate) const CURRENT: Setup = Setup { runtime: Runtime::Current, cores: Cores::All };
pub(crate) const MULTI: Setup = Setup { runtime: Runtime::Multi, cores: Cores::All };

const fn row(name: &'static str, work: Work, title: &'static str) -> Scenario {
    Scenario { name, work, title }
}

const SCENARIOS: &[Scenario] = &[
    row("sequential", Stdio(Sequential), "Sequential calls, 100 B"),
    row("in-flight-64", Stdio(InFlight(64)), "64 calls in flight, 100 B"),
    row("in-flight-1024", Stdio(InFlight(1024)), "1,024 calls in flight, 100 B"),
    row(
        "head-of-line",
        HeadOfLine,
        "Head-of-line blocking: a fast call while 4 slow ones (400 ms) are in flight",
    ),
    row("result-1-escaped", EscapedResult(1), "One result of 1 MiB with JSON escapes"),
    row("result-8", LargeResult(8), "One result of 8 MiB without escapes"),
    row("result-16", LargeResult(16), "One result of 16 MiB without escapes"),
    row("tools-5000", ToolList, "List of 5,000 tools (7.1 MB of JSON)"),
    row(
        "tools-5000-instructions",
        ToolListInstructions,
        "User-space instructions of a list of 5,000 tools",
    ),
    row(
        "connect-instructions",
        ConnectInstructions,
        "User-space instructions of a connection: spawn, handshake, a list of 10 tools, close",
    ),
    row("connect", Connect, "Connect: spawn, handshake and a list of 10 tools, one at a time"),
    row(
        "idle-connections",
        Idle,
        "Idle connections to servers with one tool: memory of the client process",
    ),
    row("instructions", Stdio(Instructions), "User-space instructions per sequential call"),
    row("allocations", Stdio(Allocations), "Heap allocations per sequential call"),
    row("http-json", Http(Sequential, Json, SMALL), "Sequential calls, JSON responses, 100 B"),
    row("http-events", Http(Sequential, Events, SMALL), "Sequential calls, SSE responses, 100 B"),
    row(
        "http-json-64",
        Http(InFlight(64), Json, SMALL),
        "64 calls in flight, JSON responses, 100 B",
    ),
    row(
        "http-events-64",
        Http(InFlight(64), Events, SMALL),
        "64 calls in flight, SSE responses, 100 B",
    ),
    row("http-json-mib", Http(Sequential, Json, MIB), "Sequential calls, JSON responses, 1 MiB"),
    row("http-events-mib", Http(Sequential, Events, MIB), "Sequential calls, SSE responses, 1 MiB"),
    row(
        "http-json-mib-64",
        Http(InFlight(64), Json, MIB),
        "64 calls in flight, JSON responses, 1 MiB",
    ),
    row(
        "http-events-mib-64",
        Http(InFlight(64), Events, MIB),
        "64 calls in flight, SSE responses, 1 MiB",
    ),
    row(
        "http-instructions",
        Http(Instructions, Json, SMALL),
        "User-space instructions per sequential call over HTTP",
    ),
    row(
        "http-events-instructions",
        Http(Instructions, Events, SMALL),
        "User-space instructions per sequential call over HTTP, SSE responses",
    ),
    row(
        "http-allocations",
        Http(Allocations, Json, SMALL),
        "Heap allocations per sequential call over HTTP",
    ),
    row(
        "manager-sequential",
        Manager(Sequential),
        "Sequential calls, 100 B, through the manager and directly",
    ),
    row(
        "manager-in-flight-64",
        Manager(InFlight(64)),
        "64 calls in flight, 100 B, through the manager and directly",
    ),
    row(
        "manager-instructions",
        Manager(Instructions),
        "User-space instructions per sequential call, with a manager",
    ),
    row(
        "manager-allocations",
        Manager(Allocations),
        "Heap allocations per sequential call, with a manager",
    ),
    row("manager-tools", ManagerTools, "List of the 5,000 tools of 100 connected servers"),
    row(
        "manager-memory",
        ManagerMemory,
        "Idle servers with 10 tools: memory per additional server",
    ),
    row("manager-start", ManagerStart, "Start of 100 servers at once, until all are connected"),
    row(
        "manager-bad-neighbor",
        ManagerBadNeighbor,
        "Calls on a healthy server beside a bad neighbor that floods, spins and does not read",
    ),
    row(
        "cli-node",
        CliNode,
        "Cold call of a Node.js server: `echo` of server-everything 2026.8.31",
    ),
    row("cli-demo", CliDemo, "Cold call of a small server: `add` of toolrack's demo server"),
    row("cli-warm", CliWarm, "Warm call of the same server through the daemon"),
    row(
        "cli-first-byte",
        CliFirstByte(1),
        "Cold `toolrack call` with 1 configured server: time until the first byte reaches the server",
    ),
    row(
        "cli-first-byte-100",
        CliFirstByte(100),
        "Cold `toolrack call` with 100 configured servers: time until the first byte reaches the server",
    ),
    row("cli-help", CliHelp, "Help"),
    row("cli-size", CliSize, "Size of the program"),
    row(
        "gateway-http",
        GatewayHttp(Sequential),
        "Sequential calls through a gateway over HTTP, 100 B",
    ),
    row(
        "gateway-stdio",
        GatewayStdio(Sequential),
        "Sequential calls through a gateway over stdio, 100 B",
    ),
    row(
        "gateway-http-64",
        GatewayHttp(InFlight(64)),
        "64 calls in flight through a gateway over HTTP, 100 B",
    ),
    row(
        "gateway-stdio-64",
        GatewayStdio(InFlight(64)),
        "64 calls in flight through a gateway over stdio, 100 B",
    ),
    row("gateway-memory", GatewayMemory, "Gateway with 100 servers of 10 tools and 1,000 sessions"),
];

impl ValueEnum for Scenario {
    fn value_variants<'a>() -> &'a [Self] {
        SCENARIOS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).help(self.title))
    }
}

impl Scenario {
    /// The metric with this name, if the table of the scenario shows it.
    pub(crate) fn metric(&self, name: &str) -> Option<Metric> {
        self.work.columns().0.iter().copied().find(|metric| metric.name == name)
    }
}

impl Work {
    pub(crate) fn subject(self) -> Subject {
        match self {
            Stdio(_) | HeadOfLine | LargeResult(_) | EscapedResult(_) | ToolList
            | ToolListInstructions | Connect | ConnectInstructions | Idle => Subject::Stdio,
            Http(..) => Subject::Http,
            Manager(_) | ManagerTools | ManagerMemory | ManagerStart | ManagerBadNeighbor => {
                Subject::Manager
            }
            CliNode | CliDemo | CliWarm | CliFirstByte(_) | CliHelp | CliSize => Subject::Cli,
            GatewayHttp(_) | GatewayStdio(_) | GatewayMemory => Subject::Gateway,
        }
    }

    pub(crate) fn load(self) -> Option<Load> {
        match self {
            Stdio(load)
            | Http(load, ..)
            | Manager(load)
            | GatewayHttp(load)
            | GatewayStdio(load) => Some(load),
            _ => None,
        }
    }

    /// Whether the cost of a call is the difference of two runs of different length, instead of a median of rounds.
    pub(crate) fn is_difference(self) -> bool {
        self.counts_instructions() || self.load() == Some(Allocations)
    }

    /// Whether callgrind counts the instructions of a process.
    pub(crate) fn counts_instructions(self) -> bool {
        self.load() == Some(Instructions)
            || matches!(self, ToolListInstructions | ConnectInstructions)
    }

    /// Lengths of the two runs of a difference.
    pub(crate) fn n_calls(self, size: RunSize) -> (u32, u32) {
        match self {
            // Large operations, whose cost does not vary.
            ToolListInstructions => (1, 3),
            ConnectInstructions => (2, 10),
            _ => size.n_calls,
        }
    }

    pub(crate) fn setups(self) -> &'static [Setup] {
        match self {
            Manager(Sequential) => &[PINNED, MULTI],
            Manager(InFlight(_)) | ManagerStart | ManagerBadNeighbor | Http(_, _, MIB) => {
                &[MULTI, CURRENT]
            }
            Stdio(Sequential | InFlight(_)) | Http(Sequential | InFlight(_), ..) => {
                &[PINNED, MULTI, CURRENT]
            }
            // Across two cores, latency is dominated by waking the other core and varies a lot.
            HeadOfLine => &[PINNED],
            _ => &[CURRENT],
        }
    }

    fn clients(self) -> &'static [ClientName] {
        use ClientName::{
            BareBlock, BareFresh, BareHyper, BareHyperConnection, BareTcp, BareTokio, Direct,
            FastMcp, Gateway, Inspector, ManagerRaw, Mcporter, Pmcp, Rmcp, Toolrack,
            ToolrackGuarded, ToolrackRaw, ToolrackSession, Tower, Turbomcp,
        };
        match self {
            Stdio(_) => &[BareTokio, BareBlock, Toolrack, ToolrackRaw, Rmcp, Pmcp, Turbomcp, Tower],
            HeadOfLine => &[Toolrack, ToolrackRaw, Rmcp, Pmcp, Turbomcp, Tower],
            LargeResult(_) => &[
                BareTokio,
                BareBlock,
                BareFresh,
                Toolrack,
                ToolrackRaw,
                Rmcp,
                Pmcp,
                Turbomcp,
                Tower,
            ],
            // A raw result has the length of the escaped text.
            EscapedResult(_) => {
                &[BareTokio, BareBlock, BareFresh, Toolrack, Rmcp, Pmcp, Turbomcp, Tower]
            }
            // A tool list is always decoded.
            ToolList => &[BareTokio, BareBlock, Toolrack, Rmcp, Pmcp, Turbomcp, Tower],
            Connect | Idle => {
                &[BareTokio, BareBlock, Toolrack, ToolrackGuarded, Rmcp, Pmcp, Turbomcp, Tower]
            }
            Http(..) => &[
                BareTcp,
                BareHyper,
                BareHyperConnection,
                Toolrack,
                ToolrackRaw,
                ToolrackSession,
                Rmcp,
                Pmcp,
            ],
            Manager(Sequential | InFlight(_)) => &[ClientName::Manager, ManagerRaw],
            Manager(_) => &[Toolrack, ToolrackRaw, ClientName::Manager, ManagerRaw],
            ManagerStart => &[ClientName::Manager, Rmcp],
            ManagerTools | ManagerMemory | ManagerBadNeighbor => &[ClientName::Manager],
            CliNode | CliDemo => &[BareBlock, Toolrack, Mcporter, Inspector],
            CliHelp => &[Toolrack, Mcporter, Inspector],
            CliFirstByte(_) => &[BareBlock, Toolrack],
            CliWarm | CliSize | ToolListInstructions | ConnectInstructions => &[Toolrack],
            GatewayMemory => &[Gateway],
            GatewayHttp(_) | GatewayStdio(_) => &[Direct, Gateway, FastMcp],
        }
    }

    /// Clients measured in this setup. One without a runtime is measured once.
    pub(crate) fn clients_in(self, setup: Setup) -> impl Iterator<Item = ClientName> {
        self.clients()
            .iter()
            .copied()
            .filter(move |client| client.has_runtime() || setup.runtime == Runtime::Current)
    }

    pub(crate) fn n_tools(self) -> usize {
        match self {
            ToolList | ToolListInstructions => 5_000,
            ManagerTools => 50,
            // Clients differ in how much of a longer tool list they keep; that is not memory of the connection.
            Idle | ManagerStart => 1,
            _ => 10,
        }
    }

    /// Time limit of one client process.
    pub(crate) fn timeout(self) -> Duration {
        match self.subject() {
            Subject::Cli | Subject::Gateway => Duration::from_mins(2),
            _ if self.counts_instructions() => Duration::from_mins(2),
            _ => Duration::from_secs(15),
        }
    }

    /// Columns of the table: metrics, of which clients are compared by the first, and the comparisons.
    #[expect(clippy::too_many_lines, reason = "a table")]
    pub(crate) fn columns(self) -> (&'static [Metric], &'static [Comparison]) {
        use Comparison::{Added, TimesBestPeer, TimesRmcp, ToLimit};
        const EVERY: &[Comparison] = &[ToLimit, TimesRmcp, TimesBestPeer];
        const CALLS: Metric = m::CALLS_PER_SECOND;
        match self {
            Stdio(Sequential) | Http(Sequential, ..) => (&[m::P50, m::P99, m::CPU_PER_CALL], EVERY),
            Stdio(InFlight(_)) => (&[CALLS, m::CPU_PER_CALL], EVERY),
            Http(InFlight(_), ..) => (&[CALLS, m::P50, m::P99, m::CPU_PER_CALL], EVERY),
            Stdio(Instructions) | Http(Instructions, ..) => {
                (&[m::INSTRUCTIONS], &[TimesRmcp, TimesBestPeer])
            }
            ToolListInstructions | ConnectInstructions | Manager(Instructions) => {
                (&[m::INSTRUCTIONS], &[])
            }
            Stdio(Allocations) | Http(Allocations, ..) => {
                (&[m::ALLOCATIONS, m::ALLOCATED_BYTES], &[TimesRmcp])
            }
            HeadOfLine => (
                &[m::BESIDE_SLOW_P50, m::BESIDE_SLOW_P99, m::ALONE_P50, m::BESIDE_SLOW_OVER_ALONE],
                &[],
            ),
            LargeResult(_) | EscapedResult(_) => {
                (&[m::MILLIS, m::CPU_MILLIS, m::PEAK_MB, m::OVER_IDLE_MB], EVERY)
            }
            ToolList => (&[m::MILLIS, m::CPU_MILLIS, m::OVER_IDLE_MB, m::RELIST_MB], EVERY),
            Connect => (&[m::MILLIS, m::P99_MILLIS, m::CPU_MILLIS], &[ToLimit, TimesRmcp]),
            Idle => (&[m::RESIDENT_KIB, m::ANONYMOUS_KIB, m::GUARDIAN_KIB], &[]),
            Manager(Sequential) => (
                &[
                    m::CLIENT_P50,
                    m::P50,
                    m::P50_OVER_CLIENT,
                    m::CLIENT_CPU,
                    m::CPU_PER_CALL,
                    m::CPU_OVER_CLIENT,
                ],
                &[],
            ),
            Manager(InFlight(_)) => (
                &[
                    m::CLIENT_CALLS,
                    CALLS,
                    m::TIME_OVER_CLIENT,
                    m::CLIENT_CPU,
                    m::CPU_PER_CALL,
                    m::CPU_OVER_CLIENT,
                ],
                &[],
            ),
            Manager(Allocations) => (&[m::ALLOCATIONS, m::ALLOCATED_BYTES], &[]),
            ManagerTools => (
                &[m::ALL_TOOLS_P50, m::ALL_TOOLS_P99, m::READ_TOOLS_P50, m::CACHED_TOOLS_MILLIS],
                &[],
            ),
            ManagerMemory => (
                &[
                    m::RESIDENT_KIB,
                    m::ANONYMOUS_KIB,
                    m::LIST_KIB,
                    m::BEYOND_LIST_KIB,
                    m::GUARDIAN_KIB,
                ],
                &[],
            ),
            ManagerStart => (&[m::MILLIS, m::CPU_MILLIS], &[TimesRmcp]),
            ManagerBadNeighbor => (
                &[
                    m::P50,
                    m::P99,
                    m::UNMANAGED_P50,
                    m::UNMANAGED_P99,
                    m::MANAGED_P50,
                    m::MANAGED_P99,
                    m::MANAGED_OVER_QUIET,
                    m::MANAGED_OVER_UNMANAGED,
                    m::FAILED_CALLS,
                ],
                &[],
            ),
            CliNode | CliDemo => (
                &[m::MILLIS, m::FIRST_OUTPUT, m::PEAK_MIB, m::TREE_PEAK_MIB],
                &[Added(m::FIRST_OUTPUT), Added(m::MILLIS), TimesBestPeer],
            ),
            CliWarm => (&[m::MILLIS, m::FIRST_OUTPUT], &[]),
            CliFirstByte(_) => (&[m::MILLIS, m::P95_MILLIS], &[]),
            CliHelp => (&[m::MILLIS, m::PEAK_MIB], &[TimesBestPeer]),
            CliSize => (&[m::BUILT_MIB, m::STRIPPED_MIB], &[]),
            GatewayHttp(Sequential) | GatewayStdio(Sequential) => {
                (&[m::P50, m::P99], &[Added(m::P50), TimesBestPeer])
            }
            GatewayHttp(_) | GatewayStdio(_) => (&[CALLS], &[ToLimit, TimesBestPeer]),
            GatewayMemory => (&[m::SERVERS_MIB, m::SESSIONS_MIB, m::KIB_PER_SESSION], &[]),
        }
    }
}

/// A comparison in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Throughput in percent of the blocking limit, time in multiples of it.
    ToLimit,
    /// How many times better than rmcp in the same setup.
    TimesRmcp,
    /// How many times better than the best peer of the table.
    TimesBestPeer,
    /// Difference to the limit, in the unit of the metric.
    Added(Metric),
}

/// Rounds, durations and repetitions of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunSize {
    pub(crate) rounds: usize,
    /// Duration of a scenario that repeats calls.
    pub(crate) window: Duration,
    /// Repetitions of a large result or list.
    pub(crate) n_operations: usize,
    pub(crate) n_connects: usize,
    pub(crate) n_connections: usize,
    /// Starts of a command-line program.
    pub(crate) n_starts: usize,
    /// The two run lengths of a difference.
    pub(crate) n_calls: (u32, u32),
}

pub(crate) const QUICK: RunSize = RunSize {
    rounds: 3,
    window: Duration::from_millis(250),
    n_operations: 5,
    n_connects: 10,
    n_connections: 50,
    n_starts: 3,
    n_calls: (200, 700),
};
pub(crate) const FULL: RunSize = RunSize {
    rounds: 5,
    window: Duration::from_millis(700),
    n_operations: 10,
    n_connects: 30,
    n_connections: 200,
    n_starts: 5,
    n_calls: (500, 2_500),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Role;

    #[track_caller]
    fn check(name: &str, setup: Setup, expected: &[ClientName]) {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
        let clients = scenario.work.clients_in(setup);
        let limits: Vec<ClientName> =
            clients.filter(|client| client.role() == Role::Limit).collect();
        assert_eq!(limits, expected, "{name} {setup:?}");
    }

    #[test]
    fn limits_run_only_in_comparable_scenarios() {
        use ClientName::{
            BareBlock, BareFresh, BareHyper, BareHyperConnection, BareTcp, BareTokio,
        };
        check("sequential", PINNED, &[BareTokio, BareBlock]);
        check("sequential", MULTI, &[BareTokio]);
        check("result-8", CURRENT, &[BareTokio, BareBlock, BareFresh]);
        check("head-of-line", PINNED, &[]);
        check("http-json", PINNED, &[BareTcp, BareHyper, BareHyperConnection]);
        check("http-json-mib", MULTI, &[BareHyper, BareHyperConnection]);
        check("manager-start", MULTI, &[]);
        check("cli-node", CURRENT, &[BareBlock]);
        check("cli-help", CURRENT, &[]);
    }
}
