//! The commands and their dispatch.
//!
//! A command takes its parsed options and the [`Context`], prints through the printer, and returns
//! a [`CliError`] if it fails. It does not use clap.

pub(crate) mod add;
pub(crate) mod add_json;
pub(crate) mod call;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod credentials;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod import;
pub(crate) mod lifecycle;
pub(crate) mod logs;
pub(crate) mod resources;
pub(crate) mod serve;
pub(crate) mod servers;
pub(crate) mod tools;

use crate::args::Command;
use crate::context::Context;
use crate::error::CliError;

/// Runs a command. `completion` and `edit` are run by `main`, without the Ctrl-C handling.
pub(crate) async fn dispatch(command: Command, context: &Context) -> Result<(), CliError> {
    match command {
        Command::Tools(options) => tools::tools(options, context).await,
        Command::Call(options) => Box::pin(call::call(options, context)).await,
        Command::Search(options) => tools::search(options, context).await,
        Command::Resources(options) => resources::resources(options, context).await,
        Command::Read(options) => resources::read(options, context).await,
        Command::Prompts(options) => resources::prompts(options, context).await,
        Command::Prompt(options) => resources::prompt(options, context).await,
        Command::Demo(options) => {
            let demo = demo::demo(&options, &context.printer);
            context.run_cancellable(demo).await
        }
        Command::Daemon(options) => daemon::daemon(options.action, context).await,
        Command::Serve(options) => Box::pin(serve::serve(options, context)).await,
        Command::Dashboard(options) => daemon::dashboard(&options, context).await,
        Command::History(options) => logs::history(options, context).await,
        Command::Complete(options) => {
            completion::complete(&options, context).await;
            Ok(())
        }
        // Handled in `main`.
        Command::Completion(_) | Command::Edit(_) => Ok(()),
        command => Box::pin(dispatch_config(command, context)).await,
    }
}

/// Commands on configuration, credentials and single servers.
async fn dispatch_config(command: Command, context: &Context) -> Result<(), CliError> {
    match command {
        Command::Add(options) => add::add(&options, context).await,
        Command::AddJson(options) => add_json::add_json(options, context).await,
        Command::List => servers::list(context).await,
        Command::Get(options) => servers::get(&options, context).await,
        Command::Remove(options) => lifecycle::remove(&options.server, context).await,
        Command::Enable(options) => lifecycle::enable(&options, context).await,
        Command::Disable(options) => lifecycle::disable(&options.server, context).await,
        Command::Start(options) => lifecycle::start(&options.server, context).await,
        Command::Stop(options) => lifecycle::stop(&options.server, context).await,
        Command::Restart(options) => lifecycle::restart(&options.server, context).await,
        Command::Status(options) => servers::status(&options, context).await,
        Command::Logs(options) => logs::logs(&options, context).await,
        Command::Login(options) => credentials::login(&options, context).await,
        Command::Logout(options) => credentials::logout(&options.server, context).await,
        Command::Secret(options) => credentials::secret(options.action, context).await,
        Command::Import(options) => import::import(options, context).await,
        Command::Config(options) => config::config(options.action, context),
        Command::Doctor(options) => doctor::doctor(&options, context).await,
        _ => Ok(()),
    }
}
