//! The program `toolrack`: arguments in, a command run, an exit code out.

mod args;
mod auth_hints;
mod check_server;
#[cfg(test)]
mod cli_reference;
mod commands;
mod complete;
mod config_service;
mod context;
mod daemon_client;
mod daemon_env;
mod daemon_log;
mod daemon_process;
mod elicitation;
mod error;
mod exit_code;
mod external_program;
mod extract_secrets;
mod fan_out;
mod gateway_error;
mod help;
mod import_sources;
mod json_format;
mod output;
mod pasted_config;
mod printer;
mod process;
mod progress;
mod redacted_config;
mod render_content;
mod resolve_name;
mod save;
mod secret_args;
mod secret_input;
mod server_selection;
mod server_session;
mod settings;
mod suggest;
mod suggested_command;
mod table;
mod terminal;
mod time_format;
mod tool_args;
mod tool_list;
mod unlisted_servers;
mod usage_error;
mod working_dir;
mod yaml;

use std::ffi::OsStr;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::FromArgMatches as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::daemon::{DaemonAction, DaemonOptions};
use crate::args::{Arguments, Command, asked_output};
use crate::context::Surroundings;
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::printer::Printer;
use crate::terminal::Terminal;

/// How long threads that read or look something up may keep the program after its last word.
const LAST_WAIT: Duration = Duration::from_millis(150);

fn main() -> ExitCode {
    // First of all: this program may have been started to guard a server.
    toolrack_stdio::init();
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(commands::demo_server::ARGUMENT)) {
        return commands::demo_server::serve();
    }
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|it| it.to_string_lossy().into_owned()).collect();
    let early = || Printer::plain(asked_output(&words).unwrap_or_default());
    let arguments = match parse(&words) {
        Ok(arguments) => arguments,
        Err(usage) => return early().usage(&usage, &words).into(),
    };
    let settled = settings::settle(&arguments.global, &settings::of_process, Terminal::look());
    let settings = match settled {
        Ok(settings) => Arc::new(settings),
        Err(failure) => return early().failure(&failure).into(),
    };
    let printer = Arc::new(Printer::new(&settings));
    let surroundings =
        Surroundings { settings, printer: Arc::clone(&printer), stop: CancellationToken::new() };
    let verdict = match run(arguments.command, surroundings) {
        Ok(()) => Verdict::Success,
        Err(failure) => printer.failure(&failure),
    };
    printer.close(verdict).into()
}

fn parse(words: &[String]) -> Result<Arguments, clap::Error> {
    let command = help::command();
    let matches = match words {
        // As people know it from other programs.
        [first, rest @ ..] if first == "help" => {
            let asked = [command.get_name()].into_iter().chain(rest.iter().map(String::as_str));
            let asked: Vec<String> = asked.chain(["--help"]).map(str::to_owned).collect();
            command.try_get_matches_from(asked)
        }
        _ => command.try_get_matches(),
    };
    Arguments::from_arg_matches(&matches?)
}

fn run(command: Command, surroundings: Surroundings) -> Result<(), Failure> {
    if let Command::Completion(options) = command {
        commands::completion::completion(options.shell, &surroundings.printer);
        return Ok(());
    }
    if let Command::Daemon(DaemonOptions { action: DaemonAction::Start(options) }) = &command
        && options.foreground
    {
        return commands::daemon::run(options, &surroundings.settings);
    }
    // One thread does for one command: servers are processes, and calls wait more than they work.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = match command {
        // Ctrl-C belongs to the editor.
        Command::Edit(options) => runtime.block_on(commands::edit::edit(&options, &surroundings)),
        command => runtime.block_on(interruptible(surroundings, command)),
    };
    runtime.shutdown_timeout(LAST_WAIT);
    outcome
}

/// Runs a command until it is done. The first Ctrl-C asks it to stop, and it cleans up; the second one leaves at
/// once, and guardians end what is left.
async fn interruptible(surroundings: Surroundings, command: Command) -> Result<(), Failure> {
    let stop = surroundings.stop.clone();
    let mut signals = signal(SignalKind::interrupt())?;
    let mut work = pin!(dispatch(command, &surroundings));
    tokio::select! {
        outcome = &mut work => return outcome,
        _ = signals.recv() => stop.cancel(),
    }
    surroundings.printer.note("stopping; Ctrl-C again leaves at once");
    tokio::select! {
        outcome = &mut work => outcome,
        _ = signals.recv() => Err(Failure::interrupted().saying("interrupted twice".to_owned())),
    }
}

async fn dispatch(command: Command, surroundings: &Surroundings) -> Result<(), Failure> {
    match command {
        Command::Tools(options) => commands::tools::tools(options, surroundings).await,
        Command::Call(options) => Box::pin(commands::call::call(options, surroundings)).await,
        Command::Search(options) => commands::search::search(options, surroundings).await,
        Command::Resources(options) => commands::resources::resources(options, surroundings).await,
        Command::Read(options) => commands::read::read(options, surroundings).await,
        Command::Prompts(options) => commands::prompts::prompts(options, surroundings).await,
        Command::Prompt(options) => commands::prompt::prompt(options, surroundings).await,
        Command::Demo(options) => {
            let demo = commands::demo::demo(&options, &surroundings.printer);
            surroundings.unless_stopped(demo).await
        }
        Command::Daemon(options) => commands::daemon::daemon(options.action, surroundings).await,
        Command::Serve(options) => Box::pin(commands::serve::serve(options, surroundings)).await,
        Command::Dashboard(options) => commands::dashboard::dashboard(&options, surroundings).await,
        Command::History(options) => commands::history::history(options, surroundings).await,
        Command::Complete(options) => {
            commands::complete::complete(&options, surroundings).await;
            Ok(())
        }
        // These two do not come here.
        Command::Completion(_) | Command::Edit(_) => Ok(()),
        command => Box::pin(keep(command, surroundings)).await,
    }
}

/// Commands about what is configured and remembered.
async fn keep(command: Command, surroundings: &Surroundings) -> Result<(), Failure> {
    match command {
        Command::Add(options) => commands::add::add(&options, surroundings).await,
        Command::AddJson(options) => commands::add_json::add_json(options, surroundings).await,
        Command::List => commands::list::list(surroundings).await,
        Command::Get(options) => commands::get::get(&options, surroundings).await,
        Command::Remove(options) => commands::remove::remove(&options.server, surroundings).await,
        Command::Enable(options) => commands::enable::enable(&options, surroundings).await,
        Command::Disable(options) => {
            commands::disable::disable(&options.server, surroundings).await
        }
        Command::Start(options) => commands::start::start(&options.server, surroundings).await,
        Command::Stop(options) => commands::stop::stop(&options.server, surroundings).await,
        Command::Restart(options) => commands::start::restart(&options.server, surroundings).await,
        Command::Status(options) => commands::status::status(&options, surroundings).await,
        Command::Logs(options) => commands::logs::logs(&options, surroundings).await,
        Command::Login(options) => commands::login::login(&options, surroundings).await,
        Command::Logout(options) => commands::logout::logout(&options.server, surroundings).await,
        Command::Secret(options) => commands::secret::secret(options.action, surroundings).await,
        Command::Import(options) => commands::import::import(options, surroundings).await,
        Command::Config(options) => commands::config::config(options.action, surroundings),
        Command::Doctor(options) => commands::doctor::doctor(&options, surroundings).await,
        _ => Ok(()),
    }
}
