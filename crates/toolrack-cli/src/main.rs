//! The program `toolrack`: arguments in, a command run, an exit code out.

mod args;
mod check_server;
mod commands;
mod config_secrets;
mod config_service;
mod context;
mod daemon_client;
mod daemon_process;
mod elicitation;
mod error;
mod exit_code;
mod external_program;
mod fan_out;
mod import_sources;
mod json_format;
mod output;
mod printer;
mod render_content;
mod server_selection;
mod server_session;
mod settings;
mod suggest;
mod suggested_command;
mod tool_args;
mod usage_error;
mod working_dir;
mod yaml;

use std::ffi::OsStr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::FromArgMatches as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::daemon::{DaemonAction, DaemonOptions};
use crate::args::{Cli, Command, asked_output};
use crate::context::Context;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::printer::Printer;
use crate::settings::StdStreams;

/// How long threads that read or look something up may keep the program after its last word.
const LAST_WAIT: Duration = Duration::from_millis(150);

fn main() -> std::process::ExitCode {
    // First of all: this program may have been started to guard a server.
    toolrack_stdio::init();
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(commands::demo::SERVER_ARGUMENT)) {
        return commands::demo::serve();
    }
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let early = || Printer::plain(asked_output(&words).unwrap_or_default());
    let arguments = match parse(&words) {
        Ok(arguments) => arguments,
        Err(usage) => return early().usage_error(&usage, &words).into(),
    };
    let settled = settings::resolve(&arguments.global, &settings::env_var, StdStreams::detect());
    let settings = match settled {
        Ok(settings) => Arc::new(settings),
        Err(failure) => return early().error(&failure).into(),
    };
    let printer = Arc::new(Printer::new(&settings));
    let context =
        Context { settings, printer: Arc::clone(&printer), cancellation: CancellationToken::new() };
    let exit_code = match run(arguments.command, context) {
        Ok(()) => ExitCode::Success,
        Err(failure) => printer.error(&failure),
    };
    printer.close(exit_code).into()
}

fn parse(words: &[String]) -> Result<Cli, clap::Error> {
    let command = args::command();
    let matches = match words {
        // As people know it from other programs.
        [first, rest @ ..] if first == "help" => {
            let asked = [command.get_name()].into_iter().chain(rest.iter().map(String::as_str));
            let asked: Vec<String> = asked.chain(["--help"]).map(str::to_owned).collect();
            command.try_get_matches_from(asked)
        }
        _ => command.try_get_matches(),
    };
    Cli::from_arg_matches(&matches?)
}

fn run(command: Command, context: Context) -> Result<(), CliError> {
    if let Command::Completion(options) = command {
        commands::completion::completion(options.shell, &context.printer);
        return Ok(());
    }
    if let Command::Daemon(DaemonOptions { action: DaemonAction::Start(options) }) = &command
        && options.foreground
    {
        return commands::daemon::run(options, &context.settings);
    }
    // One thread does for one command: servers are processes, and calls wait more than they work.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = match command {
        // Ctrl-C belongs to the editor.
        Command::Edit(options) => runtime.block_on(commands::config::edit(&options, &context)),
        command => runtime.block_on(interruptible(context, command)),
    };
    runtime.shutdown_timeout(LAST_WAIT);
    outcome
}

/// Runs a command until it is done. The first Ctrl-C asks it to stop, and it cleans up; the second one leaves at
/// once, and guardians end what is left.
async fn interruptible(context: Context, command: Command) -> Result<(), CliError> {
    let stop = context.cancellation.clone();
    let mut signals = signal(SignalKind::interrupt())?;
    let mut work = pin!(commands::dispatch(command, &context));
    tokio::select! {
        outcome = &mut work => return outcome,
        _ = signals.recv() => stop.cancel(),
    }
    context.printer.note("stopping; Ctrl-C again leaves at once");
    tokio::select! {
        outcome = &mut work => outcome,
        _ = signals.recv() => Err(CliError::interrupted().with_message("interrupted twice".to_owned())),
    }
}
