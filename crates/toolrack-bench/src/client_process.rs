//! Client process: runs one client in one scenario.

use anyhow::Context as _;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::cli::ClientArgs;
use crate::clients::bare_pipe::{self, PipeKind};
use crate::clients::{
    BareHyper, BareHyperConnection, ClientName, ManagerClient, Toolrack, bare_tcp, rust_sdks,
};
use crate::metric::{Outcome, Report};
use crate::scenario::calls::{self, Job};
use crate::scenario::{Load, Runtime, Subject, Work, cli, gateway, manager};
use crate::server::http::Eras;
use crate::server_process::{HttpServer, ServerCommand, ServerProcess};
use crate::{alloc, resource_usage};

/// Runs the scenario in this process; a failure is part of the output.
pub(crate) fn run(args: &ClientArgs) -> Outcome {
    match run_scenario(args) {
        Ok(report) => Outcome::Report(report),
        Err(error) => Outcome::Failure(format!("{error:#}")),
    }
}

fn run_scenario(args: &ClientArgs) -> anyhow::Result<Report> {
    // The client must not outlive the benchmark, however that ends; a server exits with its client.
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot set the parent death signal")?;
    let (client, work) = (args.client, args.scenario.work);
    let job = Job { work, size: args.size.run_size(), n_calls: args.calls };
    if work.subject() == Subject::Cli {
        return cli::run(client, &job);
    }
    if args.pin {
        resource_usage::pin_to_one_core()?;
    }
    if work.load() == Some(Load::Allocations) {
        alloc::start_counting();
    }
    let mut builder = match args.rt {
        Runtime::Current => tokio::runtime::Builder::new_current_thread(),
        Runtime::Multi => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    match (work.subject(), work) {
        (_, Work::Http(_, framing, _)) => {
            let process = ServerProcess::start(&ServerCommand::over_http()?)?;
            let port = process.first_line.parse().context("the server printed no port")?;
            let server = HttpServer { port, framing };
            let report = runtime.block_on(run_http_client(client, &job, &server));
            // Closing stdin stops the server even while the client has open connections.
            process.stop()?;
            report
        }
        (Subject::Gateway, _) => runtime.block_on(gateway::run(client, &job)),
        (Subject::Manager, _) if !work.is_difference() => {
            runtime.block_on(manager::run(client, &job))
        }
        _ => runtime.block_on(run_stdio_client(client, &job)),
    }
}

async fn run_http_client(
    client: ClientName,
    job: &Job,
    server: &HttpServer,
) -> anyhow::Result<Report> {
    let url = server.url(Eras::Both);
    match client {
        ClientName::BareTcp => bare_tcp::run(job, server).await,
        ClientName::BareHyper => calls::run(job, BareHyper::connect(&url)?).await,
        ClientName::BareHyperConnection => {
            calls::run(job, BareHyperConnection::connect(&url)?).await
        }
        ClientName::Toolrack => calls::run(job, Toolrack::<false>::connect_http(&url).await?).await,
        ClientName::ToolrackRaw => {
            calls::run(job, Toolrack::<true>::connect_http(&url).await?).await
        }
        ClientName::ToolrackSession => {
            let url = server.url(Eras::Legacy);
            calls::run(job, Toolrack::<false>::connect_http(&url).await?).await
        }
        peer => rust_sdks::run(peer, job, Some(url)).await,
    }
}

async fn run_stdio_client(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match client {
        ClientName::BareTokio => bare_pipe::run(job, PipeKind::Tokio).await,
        ClientName::BareBlock => bare_pipe::run(job, PipeKind::Blocking).await,
        ClientName::BareFresh => bare_pipe::run(job, PipeKind::BlockingFresh).await,
        ClientName::Toolrack => calls::run_stdio(job, Toolrack::<false>::start).await,
        ClientName::ToolrackRaw => calls::run_stdio(job, Toolrack::<true>::start).await,
        ClientName::ToolrackGuarded => {
            calls::run_stdio(job, Toolrack::<false>::start_guarded).await
        }
        ClientName::Manager => calls::run_stdio(job, ManagerClient::<false>::start).await,
        ClientName::ManagerRaw => calls::run_stdio(job, ManagerClient::<true>::start).await,
        peer => rust_sdks::run(peer, job, None).await,
    }
}
