//! `toolrack history`: the calls that went through the daemon, whether it still runs or not.

use serde_json::{Value, json};
use toolrack_daemon::{CallRecord, HistoryQuestion, read_call, read_history};
use toolrack_transport::plain_text;

use crate::args::daemon::HistoryOptions;
use crate::context::Surroundings;
use crate::error::Failure;
use crate::output::{List, Output};
use crate::time_format;

/// The most that can be asked for at once.
const MOST: u32 = 10_000;
const MOST_CHARS: usize = 200;

/// Lists calls, or shows one.
pub(crate) async fn history(
    options: HistoryOptions,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    let printer = &surroundings.printer;
    let home = surroundings.settings.home()?.clone();
    if let Some(id) = options.id {
        let asked = id.clone();
        let found = surroundings.blocking(move || Ok(read_call(&home, &asked)?)).await?;
        let found = found.ok_or_else(|| {
            let hint =
                "run `toolrack history` to see which calls there were, with their ids in front";
            Failure::unknown(format!("no call has the id `{id}`"), hint)
        })?;
        match printer.output() {
            Output::Table => printer.line(words(&found)),
            _ => printer.document(&item(&found).to_string()),
        }
        return Ok(());
    }
    if !(1..=MOST).contains(&options.limit) {
        let message = format!("`--limit` is not between 1 and {MOST}");
        return Err(Failure::usage(message, "leave it out for the last 20").at("--limit"));
    }
    let question = HistoryQuestion {
        server: options.server,
        tool: options.tool,
        is_unsuccessful: options.failed,
        limit: options.limit,
        ..HistoryQuestion::default()
    };
    let calls = surroundings.blocking(move || Ok(read_history(&home, &question)?)).await?;
    if calls.is_empty() {
        printer.note("note: no such call is remembered; only calls that go through the daemon are");
    }
    printer.list(&List {
        columns: &["ID", "TIME", "SERVER", "TOOL", "OUTCOME", "TOOK"],
        rows: calls.iter().map(row).collect(),
        items: calls.iter().map(|it| item(it).to_string()).collect(),
    });
    Ok(())
}

fn shown(text: &str) -> String {
    plain_text(text, MOST_CHARS)
}

fn row(call: &CallRecord) -> Vec<String> {
    let (server, tool) = (shown(&call.server), shown(&call.tool));
    let outcome = call.outcome.replace('_', " ");
    vec![
        call.id.clone(),
        time_format::utc(call.time_ms),
        server,
        tool,
        outcome,
        took(call.duration_us),
    ]
}

/// So long, in the unit that reads best.
fn took(us: u64) -> String {
    match us {
        0..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        10_000..10_000_000 => format!("{} ms", us / 1000),
        _ => format!("{} s", us / 1_000_000),
    }
}

fn item(call: &CallRecord) -> Value {
    let mut item = json!(call);
    if let Some(members) = item.as_object_mut() {
        members.insert("time".to_owned(), json!(time_format::utc(call.time_ms)));
    }
    item
}

/// Everything about one call, a line for each thing.
fn words(call: &CallRecord) -> String {
    let mut lines = vec![
        format!("id         {}", call.id),
        format!("time       {}", time_format::utc(call.time_ms)),
        format!("server     {}", shown(&call.server)),
        format!("tool       {}", shown(&call.tool)),
        format!("outcome    {}", call.outcome.replace('_', " ")),
        format!("delivery   {}", call.delivery.replace('_', " ")),
        format!("took       {}", took(call.duration_us)),
        format!("arguments  {} bytes", call.argument_bytes),
        format!("result     {} bytes", call.result_bytes),
    ];
    if let Some(agent) = &call.agent {
        lines.insert(2, format!("agent      {}", shown(agent)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_the_unit_that_reads_best() {
        for (us, expected) in [
            (0, "0.0 ms"),
            (1_250, "1.2 ms"),
            (25_900, "25 ms"),
            (9_999_999, "9999 ms"),
            (61_000_000, "61 s"),
        ] {
            assert_eq!(took(us), expected);
        }
    }
}
