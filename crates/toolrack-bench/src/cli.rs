//! The command line: `serve`, `serve-http`, `client`, `stdio`, `http`, `manager`, `cli` and `gateway`.

use clap::{Args, Parser, Subcommand};

use crate::clients::ClientName;
use crate::scenario::{Cores, Preset, Runtime, Scenario, Setup};

/// Measures MCP clients side by side
#[derive(Debug, PartialEq, Parser)]
#[command(name = "toolrack-bench")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, PartialEq, Subcommand)]
pub(crate) enum Command {
    /// Be the server that clients are measured against
    Serve(ServeArgs),
    /// Be the server that clients are measured against over HTTP; its port goes to stdout
    ServeHttp,
    /// Be one client in one scenario, and print one line of JSON
    Client(ClientArgs),
    /// Measure all clients on stdio servers, and print tables and verdicts
    Stdio(BenchArgs),
    /// Measure all clients on a server over HTTP, and print tables and verdicts
    Http(BenchArgs),
    /// Measure the manager beside single clients, and print tables and verdicts
    Manager(BenchArgs),
    /// Measure `toolrack` beside other programs, from its start to its end, and print tables and verdicts
    Cli(BenchArgs),
    /// Measure calls through the gateway beside the server itself and a peer, and print tables and verdicts
    Gateway(BenchArgs),
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct ServeArgs {
    /// How many tools the server has
    #[arg(long, default_value_t = 10)]
    pub(crate) tools: usize,
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct ClientArgs {
    #[arg(long)]
    pub(crate) client: ClientName,
    #[arg(long)]
    pub(crate) scenario: Scenario,
    #[arg(long, default_value = "current")]
    pub(crate) rt: Runtime,
    /// Keep client and server on one core
    #[arg(long)]
    pub(crate) pin: bool,
    #[arg(long)]
    pub(crate) quick: bool,
    /// The length of the run, where a scenario is measured by difference
    #[arg(long, default_value_t = 0)]
    pub(crate) calls: u32,
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct BenchArgs {
    /// Smaller sizes and fewer rounds: a first look in a minute or two
    #[arg(long)]
    pub(crate) quick: bool,
    #[arg(long)]
    pub(crate) rounds: Option<usize>,
    /// Only these scenarios
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<Scenario>,
    /// Only these clients
    #[arg(long, value_delimiter = ',')]
    pub(crate) clients: Vec<ClientName>,
    /// Run every scenario on this runtime, instead of where its targets are set
    #[arg(long)]
    pub(crate) rt: Option<Runtime>,
    /// Run every scenario with client and server on one core
    #[arg(long)]
    pub(crate) pin: bool,
    #[command(flatten)]
    pub(crate) after: AfterArgs,
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct AfterArgs {
    /// Print the verdicts, but end well whatever they are
    #[arg(long)]
    pub(crate) no_gate: bool,
    /// Rewrite the section of BENCHMARKS.md that is about this, from what was measured
    #[arg(long)]
    pub(crate) write: bool,
}

impl BenchArgs {
    pub(crate) fn preset(&self) -> Preset {
        if self.quick { Preset::Quick } else { Preset::Full }
    }

    pub(crate) fn setups(&self, scenario: Scenario) -> Vec<Setup> {
        if self.rt.is_none() && !self.pin {
            return scenario.setups().to_vec();
        }
        let cores = if self.pin { Cores::One } else { Cores::All };
        vec![Setup { runtime: self.rt.unwrap_or(Runtime::Current), cores }]
    }
}

impl ClientArgs {
    pub(crate) fn preset(&self) -> Preset {
        if self.quick { Preset::Quick } else { Preset::Full }
    }

    /// The arguments that make these again, for the process that runs the client.
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
        if self.quick {
            args.push("--quick".to_owned());
        }
        args
    }
}

/// What a value is called on the command line.
pub(crate) fn value_name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{CURRENT, MULTI, PINNED};

    #[track_caller]
    fn parse(line: &str) -> Command {
        let words = std::iter::once("toolrack-bench").chain(line.split_whitespace());
        Cli::try_parse_from(words).unwrap().command
    }

    #[test]
    fn a_client_process_gets_the_arguments_it_was_meant_to_get() {
        let expected = ClientArgs {
            client: ClientName::BareBlock,
            scenario: Scenario::InFlight1024,
            rt: Runtime::Multi,
            pin: true,
            quick: true,
            calls: 700,
        };
        assert_eq!(parse(&expected.to_args().join(" ")), Command::Client(expected));
        let plain = ClientArgs {
            client: ClientName::Tower,
            scenario: Scenario::Result8,
            rt: Runtime::Current,
            pin: false,
            quick: false,
            calls: 0,
        };
        assert_eq!(parse("client --client tower --scenario result-8"), Command::Client(plain));
    }

    #[test]
    fn a_server_has_ten_tools_unless_told() {
        assert_eq!(parse("serve"), Command::Serve(ServeArgs { tools: 10 }));
        assert_eq!(parse("serve --tools 5000"), Command::Serve(ServeArgs { tools: 5000 }));
    }

    #[track_caller]
    fn check_setups(line: &str, expected: &[Setup]) {
        let Command::Stdio(args) = parse(line) else { panic!("not the stdio bench") };
        assert_eq!(args.setups(Scenario::InFlight64), expected);
    }

    #[test]
    fn a_runtime_or_a_core_replaces_the_usual_setups() {
        check_setups("stdio", &[PINNED, MULTI, CURRENT]);
        check_setups("stdio --rt multi", &[MULTI]);
        check_setups("stdio --pin", &[PINNED]);
        check_setups("stdio --pin --rt multi", &[Setup { runtime: Runtime::Multi, ..PINNED }]);
    }
}
