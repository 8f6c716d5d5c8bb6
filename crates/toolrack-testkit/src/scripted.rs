//! The scripted server: a complete MCP server on stdin and stdout, or over HTTP, that follows a plan of faults.
//!
//! One thread reads and answers (over HTTP one for each connection); a timer answers what takes time. Nothing here knows a client: whatever a plan asks
//! for is done to whoever is at the other end.
//!
//! **Invariant:** a process that was told to outlive its client still ends by itself after `--lifetime`.

mod ask_tool;
mod child_process;
mod client;
mod fault_actions;
mod faulty_response;
mod handshake;
mod header_tools;
mod http;
mod options;
mod resources;
mod server;
mod subscriptions;
mod tool_list;
mod tools;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use client::{Client, MessageContext};
use options::{Command, Options, Role};
use server::Server;

use crate::message_sink::PipeSink;

/// Runs the program with these arguments, until the client hangs up or the plan ends it.
pub fn run(args: Vec<String>) -> ExitCode {
    match options::parse(&args) {
        Ok(Command::Help) => {
            // Nobody is left to tell when stdout is closed.
            io::stdout().write_all(options::help_text().as_bytes()).unwrap_or_default();
            ExitCode::SUCCESS
        }
        Ok(Command::Run(options)) => run_role(*options, args),
        Err(why) => fail(&why),
    }
}

fn run_role(options: Options, args: Vec<String>) -> ExitCode {
    let played = match options.role {
        Role::Server | Role::Inside(_) => match options.levels_left() {
            0 => match options.http.clone() {
                Some(http) => http::serve(options, http),
                None => serve(options),
            },
            left => child_process::launch(args, left),
        },
        Role::Child => child_process::run_child(options.lifetime),
        Role::Escapee => child_process::run_escapee(options.lifetime),
        Role::Between(n_escapees) => child_process::run_intermediate(n_escapees, &options),
    };
    played.unwrap_or_else(|fault| fail(&fault.to_string()))
}

fn serve(options: Options) -> io::Result<ExitCode> {
    let server = Server::new(options)?;
    let client = Client::new(Arc::new(PipeSink::new(Stdout)));
    server.add_client(&client);
    let context = MessageContext::for_client(&client);
    server.start(&context);
    let mut input = BufReader::with_capacity(64 * 1024, Stdin);
    let mut line = Vec::new();
    loop {
        if server.has_stopped_reading() {
            context.sink.flush();
            child_process::sleep_then_exit(server.options.lifetime);
        }
        // Answers leave together while more requests are at hand, and at once when the client waits.
        if !input.buffer().contains(&b'\n') {
            context.sink.flush();
        }
        // An input that fails is an input that ended.
        if input.read_until(b'\n', &mut line).unwrap_or_default() == 0 {
            break;
        }
        server.handle_line(&context, &line);
        line.clear();
    }
    server.end_of_input(&context);
    Ok(ExitCode::SUCCESS)
}

fn fail(why: &str) -> ExitCode {
    let line = format!("scripted-server: {why}\nhint: see `scripted-server --help`\n");
    // Nobody is left to tell when stderr is closed.
    io::stderr().write_all(line.as_bytes()).unwrap_or_default();
    ExitCode::from(2)
}

/// Descriptor 0 without a second buffer.
struct Stdin;

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(io::stdin(), buffer)?)
    }
}

/// Descriptor 1 without a second buffer, whatever it points to by now.
struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
