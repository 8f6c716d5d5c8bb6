//! Scenarios: the measurements, with their clients, setups and sizes.

pub(crate) mod cli;
pub(crate) mod gateway;
pub(crate) mod http;
pub(crate) mod manager;
pub(crate) mod measure;
pub(crate) mod stdio;

use std::time::Duration;

use clap::ValueEnum;

use self::http::HttpWorkload;
use crate::clients::{ClientName, Role};

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Scenario {
    /// Sequential calls with results of 100 B.
    Sequential,
    /// 64 calls in flight.
    #[value(name = "in-flight-64")]
    InFlight64,
    /// 1,024 calls in flight.
    #[value(name = "in-flight-1024")]
    InFlight1024,
    /// A fast call, alone and while four slow calls are in flight.
    HeadOfLine,
    /// Result of 1 MiB with JSON escapes.
    #[value(name = "result-1-escaped")]
    Result1Escaped,
    /// Result of 8 MiB.
    #[value(name = "result-8")]
    Result8,
    /// Result of 16 MiB.
    #[value(name = "result-16")]
    Result16,
    /// List of 5,000 tools.
    #[value(name = "tools-5000")]
    Tools5000,
    /// Spawn, handshake and a list of ten tools, one connection at a time.
    Connect,
    /// Memory per idle connection.
    IdleConnections,
    /// User-space instructions per call, counted by callgrind.
    Instructions,
    /// Heap allocations per call.
    Allocations,
    /// Sequential calls over HTTP, JSON responses of 100 B.
    HttpJson,
    /// Sequential calls over HTTP, SSE responses of 100 B.
    HttpEvents,
    /// 64 calls in flight over HTTP, JSON responses of 100 B.
    #[value(name = "http-json-64")]
    HttpJson64,
    /// 64 calls in flight over HTTP, SSE responses of 100 B.
    #[value(name = "http-events-64")]
    HttpEvents64,
    /// Sequential calls over HTTP, JSON responses of 1 MiB.
    HttpJsonMib,
    /// Sequential calls over HTTP, SSE responses of 1 MiB.
    HttpEventsMib,
    /// 64 calls in flight over HTTP, JSON responses of 1 MiB.
    #[value(name = "http-json-mib-64")]
    HttpJsonMib64,
    /// 64 calls in flight over HTTP, SSE responses of 1 MiB.
    #[value(name = "http-events-mib-64")]
    HttpEventsMib64,
    /// User-space instructions per call over HTTP.
    HttpInstructions,
    /// Heap allocations per call over HTTP.
    HttpAllocations,
    /// Sequential calls through the manager and directly on its client.
    ManagerSequential,
    /// 64 calls in flight through the manager and directly on its client.
    #[value(name = "manager-in-flight-64")]
    ManagerInFlight64,
    /// User-space instructions per call through the manager.
    ManagerInstructions,
    /// Heap allocations per call through the manager.
    ManagerAllocations,
    /// List of all tools of 100 servers.
    ManagerTools,
    /// Memory per idle server.
    ManagerMemory,
    /// Start of 100 servers at once.
    ManagerStart,
    /// Calls while another server floods its output, spins a core and does not read.
    ManagerBadNeighbor,
    /// One call by a program that starts a Node.js server.
    CliNode,
    /// One call by a program that starts a very cheap server.
    CliDemo,
    /// One call through a daemon that keeps the server running.
    CliWarm,
    /// Help of a program.
    CliHelp,
    /// Size of the program file.
    CliSize,
    /// Sequential calls through a gateway over HTTP.
    GatewayHttp,
    /// Sequential calls through a gateway over stdio.
    GatewayStdio,
    /// 64 calls in flight through a gateway over HTTP.
    #[value(name = "gateway-http-64")]
    GatewayHttp64,
    /// 64 calls in flight through a gateway over stdio.
    #[value(name = "gateway-stdio-64")]
    GatewayStdio64,
    /// Memory of a gateway with 100 servers and 1,000 sessions.
    GatewayMemory,
}

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

impl Scenario {
    pub(crate) fn subject(self) -> Subject {
        match self {
            Self::ManagerSequential
            | Self::ManagerInFlight64
            | Self::ManagerInstructions
            | Self::ManagerAllocations
            | Self::ManagerTools
            | Self::ManagerMemory
            | Self::ManagerStart
            | Self::ManagerBadNeighbor => Subject::Manager,
            Self::CliNode | Self::CliDemo | Self::CliWarm | Self::CliHelp | Self::CliSize => {
                Subject::Cli
            }
            Self::GatewayHttp
            | Self::GatewayStdio
            | Self::GatewayHttp64
            | Self::GatewayStdio64
            | Self::GatewayMemory => Subject::Gateway,
            _ if HttpWorkload::for_scenario(self).is_some() => Subject::Http,
            _ => Subject::Stdio,
        }
    }

    pub(crate) fn setups(self) -> &'static [Setup] {
        match self {
            Self::Sequential
            | Self::InFlight64
            | Self::InFlight1024
            | Self::HttpJson
            | Self::HttpJson64
            | Self::HttpEvents
            | Self::HttpEvents64 => &[PINNED, MULTI, CURRENT],
            Self::HttpJsonMib
            | Self::HttpEventsMib
            | Self::HttpJsonMib64
            | Self::HttpEventsMib64
            | Self::ManagerInFlight64
            | Self::ManagerStart
            | Self::ManagerBadNeighbor => &[MULTI, CURRENT],
            Self::ManagerSequential => &[PINNED, MULTI],
            // Across two cores, latency is dominated by waking the other core and varies a lot.
            Self::HeadOfLine => &[PINNED],
            _ => &[CURRENT],
        }
    }

    /// Whether this client is measured in this scenario and setup.
    pub(crate) fn includes(self, client: ClientName, setup: Setup) -> bool {
        match self.subject() {
            Subject::Manager => return self.manager_clients().contains(&client),
            Subject::Cli => return self.cli_clients().contains(&client),
            Subject::Gateway => return self.gateway_clients().contains(&client),
            Subject::Stdio | Subject::Http => {}
        }
        if self.subject() == Subject::Http {
            let is_measured = client.speaks(Subject::Http);
            return is_measured && (client.has_runtime() || setup.runtime == Runtime::Current);
        }
        let is_about_connections = matches!(self, Self::Connect | Self::IdleConnections);
        match client {
            ClientName::BareFresh => {
                matches!(self, Self::Result1Escaped | Self::Result8 | Self::Result16)
            }
            ClientName::ToolrackGuarded => is_about_connections,
            // A raw result has the length of the escaped text, and a tool list is always decoded.
            ClientName::ToolrackRaw => {
                !is_about_connections && !matches!(self, Self::Result1Escaped | Self::Tools5000)
            }
            _ if !client.speaks(Subject::Stdio) => false,
            _ if client.role() == Role::Limit && self == Self::HeadOfLine => false,
            _ => client.has_runtime() || setup.runtime == Runtime::Current,
        }
    }

    /// Clients measured in a manager scenario.
    fn manager_clients(self) -> &'static [ClientName] {
        use ClientName::{Manager, ManagerRaw, Rmcp, Toolrack, ToolrackRaw};
        match self {
            Self::ManagerSequential | Self::ManagerInFlight64 => &[Manager, ManagerRaw],
            Self::ManagerInstructions | Self::ManagerAllocations => {
                &[Toolrack, ToolrackRaw, Manager, ManagerRaw]
            }
            Self::ManagerStart => &[Manager, Rmcp],
            Self::ManagerTools | Self::ManagerMemory | Self::ManagerBadNeighbor => &[Manager],
            _ => &[],
        }
    }

    /// Clients measured in a command-line scenario.
    fn cli_clients(self) -> &'static [ClientName] {
        use ClientName::{BareBlock, Inspector, Mcporter, Toolrack};
        match self {
            Self::CliNode | Self::CliDemo => &[BareBlock, Toolrack, Mcporter, Inspector],
            Self::CliHelp => &[Toolrack, Mcporter, Inspector],
            Self::CliWarm | Self::CliSize => &[Toolrack],
            _ => &[],
        }
    }

    /// Clients measured in a gateway scenario.
    fn gateway_clients(self) -> &'static [ClientName] {
        use ClientName::{Direct, FastMcp, Gateway};
        match self {
            Self::GatewayMemory => &[Gateway],
            _ => &[Direct, Gateway, FastMcp],
        }
    }

    pub(crate) fn n_tools(self) -> usize {
        match self {
            Self::Tools5000 => 5_000,
            Self::ManagerTools => 50,
            // Clients differ in how much of a longer tool list they keep; that is not memory of the connection.
            Self::IdleConnections | Self::ManagerStart => 1,
            _ => 10,
        }
    }

    pub(crate) fn method(self) -> MeasurementMethod {
        match self {
            Self::Instructions
            | Self::Allocations
            | Self::HttpInstructions
            | Self::HttpAllocations
            | Self::ManagerInstructions
            | Self::ManagerAllocations => MeasurementMethod::Difference,
            _ => MeasurementMethod::Rounds,
        }
    }

    pub(crate) fn counts_instructions(self) -> bool {
        matches!(self, Self::Instructions | Self::HttpInstructions | Self::ManagerInstructions)
    }

    pub(crate) fn counts_allocations(self) -> bool {
        matches!(self, Self::Allocations | Self::HttpAllocations | Self::ManagerAllocations)
    }

    /// Time limit of one client process.
    pub(crate) fn timeout(self) -> Duration {
        match self.subject() {
            Subject::Cli | Subject::Gateway => Duration::from_mins(2),
            _ if self.counts_instructions() => Duration::from_mins(2),
            _ => Duration::from_secs(15),
        }
    }
}

/// How the figures of a scenario are obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeasurementMethod {
    /// Every client runs once per round; the figure is the median over the rounds.
    Rounds,
    /// Two runs of different length; the difference is the cost of the additional calls.
    Difference,
}

/// Size of a measurement, from `--quick`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preset {
    Quick,
    Full,
}

/// Rounds, durations and repetitions of a preset.
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
    /// The two run lengths of [`MeasurementMethod::Difference`].
    pub(crate) n_calls: (u32, u32),
}

impl Preset {
    pub(crate) fn size(self) -> RunSize {
        match self {
            Self::Quick => RunSize {
                rounds: 3,
                window: Duration::from_millis(250),
                n_operations: 5,
                n_connects: 10,
                n_connections: 50,
                n_starts: 3,
                n_calls: (200, 700),
            },
            Self::Full => RunSize {
                rounds: 5,
                window: Duration::from_millis(700),
                n_operations: 10,
                n_connects: 30,
                n_connections: 200,
                n_starts: 5,
                n_calls: (500, 2_500),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scenario: Scenario, setup: Setup, expected: &[ClientName]) {
        let all = ClientName::value_variants().iter().copied();
        let limits = all.filter(|client| client.role() == Role::Limit);
        let included: Vec<ClientName> =
            limits.filter(|client| scenario.includes(*client, setup)).collect();
        assert_eq!(included, expected, "{scenario:?} {setup:?}");
    }

    #[test]
    fn limits_run_only_in_comparable_scenarios() {
        use ClientName::{BareBlock, BareFresh, BareTokio};
        check(Scenario::Sequential, PINNED, &[BareTokio, BareBlock]);
        check(Scenario::Sequential, MULTI, &[BareTokio]);
        check(Scenario::Result8, CURRENT, &[BareTokio, BareBlock, BareFresh]);
        check(Scenario::HeadOfLine, PINNED, &[]);
        check(Scenario::HttpJson, PINNED, &[ClientName::BareTcp, ClientName::BareHyper]);
        check(Scenario::HttpJsonMib, MULTI, &[ClientName::BareHyper]);
        check(Scenario::ManagerStart, MULTI, &[]);
        check(Scenario::CliNode, CURRENT, &[BareBlock]);
        check(Scenario::CliHelp, CURRENT, &[]);
    }
}
