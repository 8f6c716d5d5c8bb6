//! The program `toolrack`: arguments in, a command run, an exit code out.

mod arguments;
mod commands;
mod printer;
mod verdict;

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::printer::Printer;
use crate::verdict::{Failure, Verdict};

fn main() -> ExitCode {
    // First of all: this program may have been started to guard a server.
    toolrack_stdio::init();
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(commands::demo_server::ARGUMENT)) {
        return commands::demo_server::serve();
    }
    let printer = Printer::new();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(usage) => return printer.usage(&usage).into(),
    };
    match run(arguments, &printer) {
        Ok(()) => Verdict::Success.into(),
        Err(failure) => printer.failure(&failure).into(),
    }
}

fn run(arguments: Arguments, printer: &Printer) -> Result<(), Failure> {
    match arguments.command {
        Command::Demo(options) => {
            // What a crash left behind is ended before anything new is started.
            toolrack_stdio::sweep();
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(interruptible(commands::demo::demo(&options, printer)))
        }
    }
}

/// Runs a command until it is done or the user presses Ctrl-C. What the command had started ends with it,
/// because its future is dropped.
async fn interruptible(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::select! {
        outcome = command => outcome,
        signal = tokio::signal::ctrl_c() => {
            signal?;
            Err(Failure::interrupted())
        }
    }
}
