//! `toolrack demo`: connects to a built-in server, lists its tools and calls them.
//!
//! The server is this program, started as a child process and used over stdio like any other
//! server.

use std::process;
use std::sync::Arc;
use std::{fmt, io};

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use toolrack_client::{CallOptions, EraChoice, McpClient};
use toolrack_stdio::{McpServerDef, StdioOptions};

use crate::commands::Context;
use crate::error::CliError;
use crate::printer::{Output, Printer};
use crate::settings::Verbosity;

/// Calls made one after the other.
const QUICK: &[(&str, &str)] = &[
    ("greet", r#"{"name": "world"}"#),
    ("add", r#"{"a": 19, "b": 23}"#),
    ("word_count", r#"{"text": "one rack for every server"}"#),
];

/// Countdowns that run concurrently: name, start and interval in milliseconds.
const COUNTDOWNS: &[(&str, u64, u64)] = &[("slow", 10, 150), ("medium", 20, 60), ("fast", 30, 25)];

/// Starts the demo server, lists and calls its tools, and stops it.
pub(crate) async fn demo(era: EraChoice, context: &Context) -> Result<(), CliError> {
    context.run_cancellable(run(era, &context.printer)).await
}

async fn run(era: EraChoice, printer: &Printer) -> Result<(), CliError> {
    // Cleans up orphans of crashed runs first.
    toolrack_stdio::kill_orphans();
    let server = McpServerDef {
        command: std::env::current_exe()?.display().to_string(),
        args: vec![SERVER_ARGUMENT.to_owned()],
        ..McpServerDef::default()
    };
    let mut output = DemoOutput { printer, calls: Vec::new() };
    output.print("Starting the built-in demo server …");
    let client =
        McpClient::builder("demo").era(era).connect_stdio(server, StdioOptions::default()).await?;
    let revision = client.revision().as_str();
    output.print(format_args!("Connected, protocol revision {revision}"));
    let tools: Vec<String> = client.tools().items.iter().map(|tool| tool.name.clone()).collect();
    // Not `?` yet: the server is stopped after a failed call too.
    let outcome = output.run(&client).await;
    client.shutdown().await;
    outcome?;
    output.print("Server stopped");
    output.heading("Next steps");
    output.print("  toolrack --help           all commands");
    output.print("  cargo xtask test          all tests, against real servers");
    output.print("  README.md                 the library, for your own program");
    if printer.output != Output::Table {
        let json = json!({ "revision": revision, "tools": tools, "calls": output.calls });
        printer.document(&json.to_string());
    }
    Ok(())
}

/// Prints text as the demo proceeds, or collects the calls for one JSON document at the end.
struct DemoOutput<'p> {
    printer: &'p Printer,
    calls: Vec<Value>,
}

impl DemoOutput<'_> {
    async fn run(&mut self, client: &McpClient) -> Result<(), CliError> {
        let tools = client.tools();
        self.heading(format_args!("{} tools", tools.items.len()));
        for tool in &tools.items {
            let description = tool.description.as_deref().unwrap_or_default();
            self.print(format_args!("  {:<12} {description}", tool.name));
        }
        self.heading("Calls");
        for (tool, arguments) in QUICK {
            let result = call(client, tool, arguments).await?;
            self.record(tool, &format!("{tool} {arguments}"), &result);
        }
        self.heading("Three slow calls and a fast one, at the same time");
        let slow = COUNTDOWNS.iter().map(|row| count_down(client, self.printer, *row));
        let (slow, fast) = tokio::join!(try_join_all(slow), call(client, "dice", r#"{"seed": 7}"#));
        self.record("dice", "dice", &fast?);
        for (name, text) in slow? {
            self.record("countdown", &format!("countdown ({name})"), &text);
        }
        Ok(())
    }

    /// Records and prints a call and its result.
    fn record(&mut self, tool: &str, what: &str, result: &str) {
        self.calls.push(json!({ "tool": tool, "call": what, "result": result }));
        if self.printer.output == Output::Table {
            self.printer.line(format_args!("  {what} → {result}"));
        }
    }

    fn print(&self, text: impl fmt::Display) {
        let Printer { output, verbosity, .. } = self.printer;
        if *output == Output::Table && *verbosity != Verbosity::Quiet {
            self.printer.line(text);
        }
    }

    fn heading(&self, text: impl fmt::Display) {
        self.print(format_args!("\n{}", self.printer.bold(text)));
    }
}

async fn call(client: &McpClient, tool: &str, arguments: &str) -> Result<String, CliError> {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let result = client.call_tool(tool, &arguments).await?;
    if result.is_error {
        return Err(CliError::tool_failed(tool));
    }
    Ok(result.content)
}

async fn count_down<'a>(
    client: &McpClient,
    printer: &Printer,
    (name, from, every_ms): (&'a str, u64, u64),
) -> Result<(&'a str, String), CliError> {
    let bar = printer.bar(name, from);
    let moved = bar.clone();
    let options = CallOptions {
        on_progress: Some(Arc::new(move |progress| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a bar shows whole steps"
            )]
            moved.set_position(progress.progress as u64);
        })),
        ..CallOptions::default()
    };
    let arguments = json!({"from": from, "every_ms": every_ms});
    let result = client.call_tool_full("countdown", &arguments, &options).await?;
    bar.finish_and_clear();
    Ok((name, result.text().into_owned()))
}

/// The argument that makes this program the demo server.
pub(crate) const SERVER_ARGUMENT: &str = "__demo-server";

/// Serves MCP on stdio until EOF.
pub(crate) fn serve() -> process::ExitCode {
    match toolrack_demo::serve(io::stdin().lock(), io::stdout()) {
        Ok(()) => process::ExitCode::SUCCESS,
        Err(_unreadable) => process::ExitCode::FAILURE,
    }
}
