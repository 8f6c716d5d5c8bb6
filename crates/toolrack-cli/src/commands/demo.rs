//! `toolrack demo`: the main job from start to end, on a server that is always there.
//!
//! The server is this very program, started as a real child process and spoken to over its standard
//! input and output, like any other server.

use std::sync::Arc;

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use toolrack_client::{CallOptions, EraChoice, McpClient};
use toolrack_stdio::{McpServerDef, StdioOptions};

use crate::arguments::DemoOptions;
use crate::commands::demo_server;
use crate::failure::Failure;
use crate::printer::Printer;

/// What is called, one after the other.
const QUICK: &[(&str, &str)] = &[
    ("greet", r#"{"name": "world"}"#),
    ("add", r#"{"a": 19, "b": 23}"#),
    ("word_count", r#"{"text": "one rack for every server"}"#),
];

/// Countdowns that run at the same time, each with its pace.
const COUNTDOWNS: &[(&str, u64, u64)] = &[("slow", 10, 150), ("medium", 20, 60), ("fast", 30, 25)];

/// Starts the server, lists its tools, calls them, and ends it.
pub(crate) async fn demo(options: &DemoOptions, printer: &Printer) -> Result<(), Failure> {
    // What a crash left behind is ended before anything new is started.
    toolrack_stdio::sweep();
    let server = McpServerDef {
        command: std::env::current_exe()?.display().to_string(),
        args: vec![demo_server::ARGUMENT.to_owned()],
        ..McpServerDef::default()
    };
    let era = if options.legacy { EraChoice::Legacy } else { EraChoice::Auto };
    printer.line("Starting the built-in demo server as a child process …");
    let client =
        McpClient::builder("demo").era(era).connect_stdio(server, StdioOptions::default()).await?;
    printer.line(format_args!("Connected, protocol revision {}", client.revision().as_str()));
    let outcome = show(&client, printer).await;
    client.shutdown().await;
    outcome?;
    printer.line("Server ended, nothing left running");
    what_next(printer);
    Ok(())
}

async fn show(client: &McpClient, printer: &Printer) -> Result<(), Failure> {
    let tools = client.tools();
    printer.heading(format_args!("Its {} tools", tools.items.len()));
    for tool in &tools.items {
        let description = tool.description.as_deref().unwrap_or_default();
        printer.line(format_args!("  {:<12} {description}", tool.name));
    }
    printer.heading("Calls");
    for (tool, arguments) in QUICK {
        let result = call(client, tool, arguments).await?;
        printer.line(format_args!("  {tool} {arguments} → {result}"));
    }
    printer.heading("Three slow calls at once, and a fast one among them");
    let slow = COUNTDOWNS.iter().map(|row| count_down(client, printer, *row));
    let (slow, fast) = tokio::join!(try_join_all(slow), call(client, "dice", r#"{"seed": 7}"#));
    printer.line(format_args!("  dice → {}", fast?));
    for (name, text) in slow? {
        printer.line(format_args!("  countdown ({name}) → {text}"));
    }
    Ok(())
}

async fn call(client: &McpClient, tool: &str, arguments: &str) -> Result<String, Failure> {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let result = client.call_tool(tool, &arguments).await?;
    if result.is_error {
        return Err(Failure::tool(tool));
    }
    Ok(result.content)
}

async fn count_down<'a>(
    client: &McpClient,
    printer: &Printer,
    (name, from, every_ms): (&'a str, u64, u64),
) -> Result<(&'a str, String), Failure> {
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

fn what_next(printer: &Printer) {
    printer.heading("What next");
    printer.line("  toolrack --help           what the program can do");
    printer.line("  cargo xtask test          every test, against real servers");
    printer.line("  README.md                 how to use the library in your own program");
}
