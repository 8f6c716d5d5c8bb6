//! One client in one scenario: the process that is measured.

use anyhow::{Context as _, bail};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::cli::ClientArgs;
use crate::peers::bare::{self, BlockingPipe, Buffer, TokioPipe};
use crate::peers::{
    BareHyper, ClientName, Pmcp, PmcpHttp, Rack, RackRaw, Rmcp, ServerCommand, Toolrack,
    ToolrackGuarded, ToolrackRaw, ToolrackSession, Tower, Turbomcp, socket,
};
use crate::remote::{RemoteProcess, RemoteServer};
use crate::report::{Answer, Report};
use crate::scenario::drive::{Job, drive};
use crate::scenario::remote::{self, HttpJob, Plan};
use crate::scenario::{How, Runtime, Subject, gateway, program, rack};
use crate::{alloc, gauge};

/// Goes through the scenario; a failure is an answer like any other.
pub(crate) fn run(args: &ClientArgs) -> Answer {
    match measured(args) {
        Ok(report) => Answer::Report(report),
        Err(error) => Answer::Failure(format!("{error:#}")),
    }
}

fn measured(args: &ClientArgs) -> anyhow::Result<Report> {
    // Whatever ends the bench, no client outlives it; and a server ends with its client.
    set_parent_process_death_signal(Some(Signal::KILL)).context("the process cannot be tied")?;
    if args.scenario.subject() == Subject::Cli {
        return program::drive(args.client, args.scenario, args.effort().size());
    }
    if args.pin {
        gauge::pin_to_one_core()?;
    }
    if args.scenario.counts_allocations() {
        alloc::start_counting();
    }
    let mut builder = match args.rt {
        Runtime::Current => tokio::runtime::Builder::new_current_thread(),
        Runtime::Multi => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let (size, n_calls) = (args.effort().size(), args.calls);
    let Some(plan) = Plan::of(args.scenario) else {
        let server = ServerCommand::with_tools(args.scenario.n_tools())?;
        let job = Job { scenario: args.scenario, size, n_calls, server };
        return match (args.scenario.subject(), args.scenario.how()) {
            (Subject::Gateway, _) => {
                runtime.block_on(gateway::drive(args.client, args.scenario, size))
            }
            (Subject::Manager, How::Rounds) => runtime.block_on(rack::drive(args.client, &job)),
            _ => runtime.block_on(chosen(args.client, &job)),
        };
    };
    let process = RemoteProcess::start(&ServerCommand::over_http()?)?;
    let port = process.said.parse().context("the server did not say its port")?;
    let server = RemoteServer { port, framing: plan.framing };
    let job = HttpJob { plan, size, n_calls, server };
    let report = runtime.block_on(chosen_over_http(args.client, &job));
    // A client whose connections are still open does not keep the server.
    process.end()?;
    report
}

async fn chosen_over_http(client: ClientName, job: &HttpJob) -> anyhow::Result<Report> {
    match client {
        ClientName::BareTcp => socket::drive(job).await,
        ClientName::BareHyper => remote::drive::<BareHyper>(job).await,
        ClientName::Toolrack => remote::drive::<Toolrack>(job).await,
        ClientName::ToolrackRaw => remote::drive::<ToolrackRaw>(job).await,
        ClientName::ToolrackSession => remote::drive::<ToolrackSession>(job).await,
        ClientName::Rmcp => remote::drive::<Rmcp>(job).await,
        ClientName::Pmcp => remote::drive::<PmcpHttp>(job).await,
        other => bail!("{other:?} is not measured over HTTP"),
    }
}

async fn chosen(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match client {
        ClientName::BareTokio => bare::drive::<TokioPipe>(job, Buffer::Reused).await,
        ClientName::BareBlock => bare::drive::<BlockingPipe>(job, Buffer::Reused).await,
        ClientName::BareFresh => bare::drive::<BlockingPipe>(job, Buffer::Fresh).await,
        ClientName::Toolrack => drive::<Toolrack>(job).await,
        ClientName::ToolrackRaw => drive::<ToolrackRaw>(job).await,
        ClientName::ToolrackGuarded => drive::<ToolrackGuarded>(job).await,
        ClientName::Manager => drive::<Rack>(job).await,
        ClientName::ManagerRaw => drive::<RackRaw>(job).await,
        ClientName::Rmcp => drive::<Rmcp>(job).await,
        ClientName::Pmcp => drive::<Pmcp>(job).await,
        ClientName::Turbomcp => drive::<Turbomcp>(job).await,
        ClientName::Tower => drive::<Tower>(job).await,
        other => bail!("{other:?} is not measured on stdio"),
    }
}
