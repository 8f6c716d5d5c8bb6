//! Command-line arguments.

use clap::{Args, Parser, Subcommand};

use crate::clients::ClientName;
use crate::scenario::{Cores, FULL, QUICK, RunSize, Runtime, Scenario, Setup};

/// Benchmark MCP clients side by side
#[derive(Debug, PartialEq, Parser)]
#[command(name = "toolrack-bench")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, PartialEq, Subcommand)]
pub(crate) enum Command {
    /// Run the stdio benchmark server
    Serve(ServeArgs),
    /// Run the HTTP benchmark server; prints its port
    ServeHttp,
    /// Run one client in one scenario and print one line of JSON
    Client(ClientArgs),
    /// Benchmark clients on stdio servers
    Stdio(BenchArgs),
    /// Benchmark clients on an HTTP server
    Http(BenchArgs),
    /// Benchmark the manager of many servers
    Manager(BenchArgs),
    /// Benchmark `toolrack` and other command-line programs, from start to exit
    Cli(BenchArgs),
    /// Benchmark calls through gateways
    Gateway(BenchArgs),
    /// Compare counted costs with docs/internal/costs.toml
    Costs(CostArgs),
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct ServeArgs {
    /// Number of tools
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) tools: usize,
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct ClientArgs {
    /// Client to run
    #[arg(long)]
    pub(crate) client: ClientName,
    /// Scenario to run
    #[arg(long)]
    pub(crate) scenario: Scenario,
    /// Tokio runtime
    #[arg(long, value_name = "RUNTIME", default_value = "current")]
    pub(crate) rt: Runtime,
    /// Pin client and server to one core
    #[arg(long)]
    pub(crate) pin: bool,
    #[command(flatten)]
    pub(crate) size: SizeArgs,
    /// Number of calls, for scenarios measured by difference
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) calls: u32,
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) size: SizeArgs,
    /// Number of rounds
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Run only these scenarios
    #[arg(long, value_delimiter = ',', value_name = "SCENARIO")]
    pub(crate) only: Vec<Scenario>,
    /// Run only these clients
    #[arg(long, value_delimiter = ',', value_name = "CLIENT")]
    pub(crate) clients: Vec<ClientName>,
    /// Run every scenario on this runtime instead of its usual setups
    #[arg(long, value_name = "RUNTIME")]
    pub(crate) rt: Option<Runtime>,
    /// Pin client and server to one core in every scenario
    #[arg(long)]
    pub(crate) pin: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct CostArgs {
    /// Measure only these costs
    #[arg(long, value_delimiter = ',', value_name = "COST")]
    pub(crate) only: Vec<String>,
    /// Accept the measured figures: write them to docs/internal/costs.toml
    #[arg(long)]
    pub(crate) write: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Args)]
pub(crate) struct SizeArgs {
    /// Use smaller sizes and fewer rounds
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct OutputArgs {
    /// Exit with success even if targets are missed
    #[arg(long)]
    pub(crate) no_gate: bool,
    /// Write the results to BENCHMARKS.md and docs/benchmarks/
    #[arg(long)]
    pub(crate) write: bool,
}

impl SizeArgs {
    pub(crate) fn run_size(self) -> RunSize {
        if self.quick { QUICK } else { FULL }
    }
}

impl BenchArgs {
    pub(crate) fn setups(&self, scenario: Scenario) -> Vec<Setup> {
        if self.rt.is_none() && !self.pin {
            return scenario.work.setups().to_vec();
        }
        let cores = if self.pin { Cores::One } else { Cores::All };
        vec![Setup { runtime: self.rt.unwrap_or(Runtime::Current), cores }]
    }
}

impl ClientArgs {
    /// Arguments for the client process, from which it parses the same values.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let mut args = vec![
            "client".to_owned(),
            format!("--client={}", value_name(&self.client)),
            format!("--scenario={}", value_name(&self.scenario)),
            format!("--rt={}", value_name(&self.rt)),
            format!("--calls={}", self.calls),
        ];
        if self.pin {
            args.push("--pin".to_owned());
        }
        if self.size.quick {
            args.push("--quick".to_owned());
        }
        args
    }
}

/// Name of a value on the command line.
fn value_name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::scenario::{CURRENT, MULTI, PINNED};

    fn scenario(name: &str) -> Scenario {
        Scenario::from_str(name, false).unwrap()
    }

    #[track_caller]
    fn parse(line: &str) -> Command {
        let words = std::iter::once("toolrack-bench").chain(line.split_whitespace());
        Cli::try_parse_from(words).unwrap().command
    }

    #[test]
    fn client_args_round_trip() {
        let expected = ClientArgs {
            client: ClientName::BareBlock,
            scenario: scenario("in-flight-1024"),
            rt: Runtime::Multi,
            pin: true,
            size: SizeArgs { quick: true },
            calls: 700,
        };
        assert_eq!(parse(&expected.to_args().join(" ")), Command::Client(expected));
        let defaults = ClientArgs {
            client: ClientName::Tower,
            scenario: scenario("result-8"),
            rt: Runtime::Current,
            pin: false,
            size: SizeArgs { quick: false },
            calls: 0,
        };
        assert_eq!(parse("client --client tower --scenario result-8"), Command::Client(defaults));
    }

    #[test]
    fn server_has_ten_tools_by_default() {
        assert_eq!(parse("serve"), Command::Serve(ServeArgs { tools: 10 }));
        assert_eq!(parse("serve --tools 5000"), Command::Serve(ServeArgs { tools: 5000 }));
    }

    #[track_caller]
    fn check_setups(line: &str, expected: &[Setup]) {
        let Command::Stdio(args) = parse(line) else { panic!("not the stdio benchmark") };
        assert_eq!(args.setups(scenario("in-flight-64")), expected);
    }

    #[test]
    fn options_replace_the_usual_setups() {
        check_setups("stdio", &[PINNED, MULTI, CURRENT]);
        check_setups("stdio --rt multi", &[MULTI]);
        check_setups("stdio --pin", &[PINNED]);
        check_setups("stdio --pin --rt multi", &[Setup { runtime: Runtime::Multi, ..PINNED }]);
    }
}
