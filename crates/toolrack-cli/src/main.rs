//! The `toolrack` command-line program.
//!
//! `main` parses the arguments, resolves the settings and runs one command. Start reading there,
//! then at [`commands::run`].
//!
//! | module | contents |
//! |---|---|
//! | [`args`] | command-line definition and help; tests generate docs/cli.md |
//! | [`commands`] | the commands, their context and their dispatch |
//! | [`settings`] | options, environment and terminal |
//! | [`printer`] | stdout, stderr and progress; formats, tables and times |
//! | [`json_format`], [`yaml`], [`render_content`] | JSON and YAML text; tool results and saved files |
//! | [`error`], [`usage_error`] | errors with hints and exit codes; invalid command lines |
//! | [`server_selection`], [`server_session`] | which servers and tools are meant; their use, one or all |
//! | [`tool_args`] | arguments of a tool: parsing, coercion, validation |
//! | [`elicitation`] | prompts for servers' requests |
//! | [`daemon_client`] | the daemon's API and its background process |
//! | [`config_service`], [`config_secrets`], [`working_dir`] | config changes; secrets in configs; working directories |
//! | [`external_program`] | editor and browser |
//!
//! Invariants, with their tests:
//!
//! - Results go to stdout and messages to stderr, through [`printer`] only; no process is left
//!   behind. `demo_calls_tools_and_leaves_no_process`, `ctrl_c_stops_the_program_and_its_server`,
//!   `closed_pipe_is_not_an_error`.
//! - A call ends within three seconds of the response and leaves no process.
//!   `wrapped_server_that_exits_at_eof`, `wrapped_server_that_ignores_eof`,
//!   `wrapped_server_that_ignores_eof_and_sigterm`.
//! - Resolving, searching and completing names starts no server.
//!   `names_are_completed_from_config_and_cache`, `sessions_match`.
//! - Text from servers cannot control the terminal. `formatting_preserves_the_value`.
//! - Secret values are never read from the command line and never printed.
//!   `secret_prompt_does_not_echo`, `sessions_match`.
//! - An edit is saved only if it is valid, and otherwise kept as a draft.
//!   `invalid_edit_can_be_retried`, `ctrl_c_after_an_invalid_edit_keeps_the_draft`.
//! - Config files of other tools are never written. `all_tools_are_imported_without_plain_secrets`.
//! - docs/cli.md lists every environment variable and exit code. `cli_reference_is_current`.
//!
//! `main` calls `toolrack_stdio::init()` before anything else, and runs the command on one thread;
//! only the daemon uses several.

mod args;
mod commands;
mod config_secrets;
mod config_service;
mod daemon_client;
mod elicitation;
mod error;
mod external_program;
mod json_format;
mod printer;
mod render_content;
mod server_selection;
mod server_session;
mod settings;
mod tool_args;
mod usage_error;
mod working_dir;
mod yaml;

use std::ffi::OsStr;
use std::sync::Arc;

use clap::FromArgMatches as _;
use tokio_util::sync::CancellationToken;

use crate::args::{Cli, requested_output};
use crate::commands::Context;
use crate::error::ExitCode;
use crate::printer::Printer;
use crate::settings::StdStreams;

fn main() -> std::process::ExitCode {
    // Must come first: this process may be the guardian of a server.
    toolrack_stdio::init();
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(commands::demo::SERVER_ARGUMENT)) {
        return commands::demo::serve();
    }
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let early = || Printer::plain(requested_output(&words).unwrap_or_default());
    let arguments = match parse(&words) {
        Ok(arguments) => arguments,
        Err(usage) => return early().usage_error(&usage, &words).into(),
    };
    error::remember_flags(&arguments.global);
    let resolved = settings::resolve(&arguments.global, &settings::env_var, StdStreams::detect());
    let settings = match resolved {
        Ok(settings) => Arc::new(settings),
        Err(error) => return early().error(&error).into(),
    };
    let printer = Arc::new(Printer::new(&settings));
    let context = Context { settings, printer, cancellation: CancellationToken::new() };
    let exit_code = match commands::run(arguments.command, &context) {
        Ok(()) => ExitCode::Success,
        Err(error) => context.printer.error(&error),
    };
    context.printer.close(exit_code).into()
}

fn parse(words: &[String]) -> Result<Cli, clap::Error> {
    // Building all commands takes as long as reading a hundred servers.
    if words.first().is_some_and(|first| first == "call")
        && let Ok(matches) = args::call_command().try_get_matches()
        && let Ok(call) = Cli::from_arg_matches(&matches)
    {
        return Ok(call);
    }
    let command = args::command();
    let matches = match words {
        // `toolrack help COMMAND`.
        [first, rest @ ..] if first == "help" => {
            let words = ["toolrack"].into_iter().chain(rest.iter().map(String::as_str));
            command.try_get_matches_from(words.chain(["--help"]))
        }
        _ => command.try_get_matches(),
    };
    Cli::from_arg_matches(&matches?)
}
