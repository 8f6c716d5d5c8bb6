//! Scripted server: a complete MCP server over stdio or HTTP that follows a fault plan.
//!
//! One thread reads and responds (over HTTP, one per connection); a timer sends delayed responses. The server does
//! not recognize clients: a plan applies to any of them.
//!
//! **Invariant:** a process that outlives its client exits by itself after `--lifetime`.

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

/// Runs the program with these arguments until the client disconnects or the plan ends it.
pub fn run(args: Vec<String>) -> ExitCode {
    match options::parse(&args) {
        Ok(Command::Help) => {
            // Stdout may be closed.
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
    played.unwrap_or_else(|error| fail(&error.to_string()))
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
        // Batch responses while more requests are buffered; flush when the client waits.
        if !input.buffer().contains(&b'\n') {
            context.sink.flush();
        }
        // A read error counts as the end of input.
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
    // Stderr may be closed.
    io::stderr().write_all(line.as_bytes()).unwrap_or_default();
    ExitCode::from(2)
}

/// Unbuffered descriptor 0.
struct Stdin;

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(io::stdin(), buffer)?)
    }
}

/// Unbuffered descriptor 1, which a fault may have replaced.
struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
