//! What the program can do, one file per command. A command knows no clap: settings in, speech through
//! the printer, a failure or nothing out.

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
use crate::context::Surroundings;
use crate::error::Failure;

/// Runs a command. `completion` and `edit` are run by `main`.
pub(crate) async fn dispatch(command: Command, surroundings: &Surroundings) -> Result<(), Failure> {
    match command {
        Command::Tools(options) => tools::tools(options, surroundings).await,
        Command::Call(options) => Box::pin(call::call(options, surroundings)).await,
        Command::Search(options) => tools::search(options, surroundings).await,
        Command::Resources(options) => resources::resources(options, surroundings).await,
        Command::Read(options) => resources::read(options, surroundings).await,
        Command::Prompts(options) => resources::prompts(options, surroundings).await,
        Command::Prompt(options) => resources::prompt(options, surroundings).await,
        Command::Demo(options) => {
            let demo = demo::demo(&options, &surroundings.printer);
            surroundings.unless_stopped(demo).await
        }
        Command::Daemon(options) => daemon::daemon(options.action, surroundings).await,
        Command::Serve(options) => Box::pin(serve::serve(options, surroundings)).await,
        Command::Dashboard(options) => daemon::dashboard(&options, surroundings).await,
        Command::History(options) => logs::history(options, surroundings).await,
        Command::Complete(options) => {
            completion::complete(&options, surroundings).await;
            Ok(())
        }
        // These two do not come here.
        Command::Completion(_) | Command::Edit(_) => Ok(()),
        command => Box::pin(dispatch_config(command, surroundings)).await,
    }
}

/// Commands about what is configured and remembered.
async fn dispatch_config(command: Command, surroundings: &Surroundings) -> Result<(), Failure> {
    match command {
        Command::Add(options) => add::add(&options, surroundings).await,
        Command::AddJson(options) => add_json::add_json(options, surroundings).await,
        Command::List => servers::list(surroundings).await,
        Command::Get(options) => servers::get(&options, surroundings).await,
        Command::Remove(options) => lifecycle::remove(&options.server, surroundings).await,
        Command::Enable(options) => lifecycle::enable(&options, surroundings).await,
        Command::Disable(options) => lifecycle::disable(&options.server, surroundings).await,
        Command::Start(options) => lifecycle::start(&options.server, surroundings).await,
        Command::Stop(options) => lifecycle::stop(&options.server, surroundings).await,
        Command::Restart(options) => lifecycle::restart(&options.server, surroundings).await,
        Command::Status(options) => servers::status(&options, surroundings).await,
        Command::Logs(options) => logs::logs(&options, surroundings).await,
        Command::Login(options) => credentials::login(&options, surroundings).await,
        Command::Logout(options) => credentials::logout(&options.server, surroundings).await,
        Command::Secret(options) => credentials::secret(options.action, surroundings).await,
        Command::Import(options) => import::import(options, surroundings).await,
        Command::Config(options) => config::config(options.action, surroundings),
        Command::Doctor(options) => doctor::doctor(&options, surroundings).await,
        _ => Ok(()),
    }
}
