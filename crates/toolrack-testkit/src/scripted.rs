//! Scripted server: a complete MCP server over stdio or HTTP that follows a fault plan.
//!
//! One thread reads and responds (over HTTP, one per connection); a timer sends delayed responses. The server does
//! not recognize clients: a plan applies to any of them.
//!
//! **Invariant:** a process that outlives its client exits by itself after `--lifetime`.

mod child_process;
mod client;
mod fault_actions;
mod faulty_response;
mod header_tools;
mod hostile_values;
mod http;
mod input_requests;
mod options;
mod resources;
mod server;
mod subscriptions;
mod tool_list;
mod tools;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) use self::child_process::exit;
pub(crate) use self::client::{PendingRequest, SlowCall};
pub(crate) use self::input_requests::{InputRequest, input_required, sign_state, verify_state};
pub(crate) use self::server::{Content, ServerInfo, ToolOutcome, ToolResult};

use self::client::{Client, MessageContext};
use self::options::{Options, Role};
use self::server::Server;
use self::tools::ScriptedContent;
use crate::message_sink::PipeSink;
use crate::plan::Trigger;
use crate::revision::SupportedRevisions;

/// Runs the program with these arguments until the client disconnects or the plan ends it.
pub fn run(args: Vec<String>) -> ExitCode {
    match options::parse(&args) {
        Ok(None) => {
            // Stdout may be closed.
            io::stdout().write_all(options::help_text().as_bytes()).unwrap_or_default();
            ExitCode::SUCCESS
        }
        Ok(Some(options)) => {
            run_role(options, args).unwrap_or_else(|error| fail(&error.to_string()))
        }
        Err(why) => fail(&why),
    }
}

fn run_role(options: Options, args: Vec<String>) -> io::Result<ExitCode> {
    match options.role {
        Role::Server | Role::Inside(_) => match options.levels_left() {
            0 => {
                let content = ScriptedContent::new(&options);
                match options.http.clone() {
                    Some(http) => http::serve(options, http, content)?,
                    None => serve(&Server::new(options, content)?, io::stdin(), io::stdout())?,
                }
                Ok(ExitCode::SUCCESS)
            }
            left => child_process::launch(args, left),
        },
        Role::Child => child_process::sleep_then_exit(options.lifetime),
        Role::Escapee => child_process::run_escapee(options.lifetime),
        Role::LeaderlessEscapee => child_process::run_leaderless_escapee(options.lifetime),
        Role::Between(n_escapees) => {
            child_process::run_intermediate(n_escapees, "escapee", &options)
        }
        Role::BetweenLeaderless(n_escapees) => {
            child_process::run_intermediate(n_escapees, "leaderless", &options)
        }
    }
}

/// Serves this content to one client until the end of input, without a plan.
pub(crate) fn serve_content(
    revisions: SupportedRevisions,
    content: impl Content + 'static,
    input: impl Read,
    output: impl Write + Send + 'static,
) -> io::Result<()> {
    let options = Options { revisions, ..Options::default() };
    serve(&Server::new(options, content)?, input, output)
}

/// Serves one client until the end of input.
///
/// Fails only if the input cannot be read; a closed output is not an error.
fn serve(
    server: &Arc<Server>,
    input: impl Read,
    output: impl Write + Send + 'static,
) -> io::Result<()> {
    let client = Client::new(Arc::new(PipeSink::new(output)));
    server.add_client(&client);
    let context = MessageContext::new(server, &client);
    context.run_faults(Trigger::Start);
    let mut input = BufReader::with_capacity(64 * 1024, input);
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
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        context.handle_line(&line);
        line.clear();
    }
    context.end_of_input();
    Ok(())
}

fn fail(why: &str) -> ExitCode {
    let line = format!("scripted-server: {why}\nhint: see `scripted-server --help`\n");
    // Stderr may be closed.
    io::stderr().write_all(line.as_bytes()).unwrap_or_default();
    ExitCode::from(2)
}
