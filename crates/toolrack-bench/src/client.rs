//! One client in one scenario: the process that is measured.

use anyhow::{Context as _, bail};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::cli::ClientArgs;
use crate::clients::bare_pipe::{self, BlockingPipe, Buffer, TokioPipe};
use crate::clients::{
    BareHyper, ClientName, Pmcp, PmcpHttp, Rack, RackRaw, Rmcp, ServerCommand, Toolrack,
    ToolrackGuarded, ToolrackRaw, ToolrackSession, Tower, Turbomcp, bare_tcp,
};
use crate::report::{Answer, Report};
use crate::scenario::http::{self, HttpJob, Plan};
use crate::scenario::stdio::{Job, drive};
use crate::scenario::{How, Runtime, Subject, cli, gateway, manager};
use crate::server_process::{RemoteProcess, RemoteServer};
use crate::{alloc, resource_usage};

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
        return cli::drive(args.client, args.scenario, args.effort().size());
    }
    if args.pin {
        resource_usage::pin_to_one_core()?;
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
            (Subject::Manager, How::Rounds) => runtime.block_on(manager::drive(args.client, &job)),
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
        ClientName::BareTcp => bare_tcp::drive(job).await,
        ClientName::BareHyper => http::drive::<BareHyper>(job).await,
        ClientName::Toolrack => http::drive::<Toolrack>(job).await,
        ClientName::ToolrackRaw => http::drive::<ToolrackRaw>(job).await,
        ClientName::ToolrackSession => http::drive::<ToolrackSession>(job).await,
        ClientName::Rmcp => http::drive::<Rmcp>(job).await,
        ClientName::Pmcp => http::drive::<PmcpHttp>(job).await,
        other => bail!("{other:?} is not measured over HTTP"),
    }
}

async fn chosen(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match client {
        ClientName::BareTokio => bare_pipe::drive::<TokioPipe>(job, Buffer::Reused).await,
        ClientName::BareBlock => bare_pipe::drive::<BlockingPipe>(job, Buffer::Reused).await,
        ClientName::BareFresh => bare_pipe::drive::<BlockingPipe>(job, Buffer::Fresh).await,
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
