//! One client in one scenario: the process that is measured.

use anyhow::Context as _;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::cli::ClientArgs;
use crate::peers::bare::{self, BlockingPipe, Buffer, TokioPipe};
use crate::peers::{
    ClientName, Pmcp, Rmcp, ServerCommand, Toolrack, ToolrackGuarded, ToolrackRaw, Tower, Turbomcp,
};
use crate::report::{Answer, Report};
use crate::scenario::drive::{Job, drive};
use crate::scenario::{Runtime, Scenario};
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
    if args.pin {
        gauge::pin_to_one_core()?;
    }
    let job = Job {
        scenario: args.scenario,
        size: args.effort().size(),
        n_calls: args.calls,
        server: ServerCommand::with_tools(args.scenario.n_tools())?,
    };
    if args.scenario == Scenario::Allocations {
        alloc::start_counting();
    }
    let mut builder = match args.rt {
        Runtime::Current => tokio::runtime::Builder::new_current_thread(),
        Runtime::Multi => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build()?.block_on(chosen(args.client, &job))
}

async fn chosen(client: ClientName, job: &Job) -> anyhow::Result<Report> {
    match client {
        ClientName::BareTokio => bare::drive::<TokioPipe>(job, Buffer::Reused).await,
        ClientName::BareBlock => bare::drive::<BlockingPipe>(job, Buffer::Reused).await,
        ClientName::BareFresh => bare::drive::<BlockingPipe>(job, Buffer::Fresh).await,
        ClientName::Toolrack => drive::<Toolrack>(job).await,
        ClientName::ToolrackRaw => drive::<ToolrackRaw>(job).await,
        ClientName::ToolrackGuarded => drive::<ToolrackGuarded>(job).await,
        ClientName::Rmcp => drive::<Rmcp>(job).await,
        ClientName::Pmcp => drive::<Pmcp>(job).await,
        ClientName::Turbomcp => drive::<Turbomcp>(job).await,
        ClientName::Tower => drive::<Tower>(job).await,
    }
}
