//! `toolrack tools` and `toolrack search`.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use toolrack_manager::{ToolWithServer, look_alikes};
use toolrack_mcp::Tool;
use toolrack_transport::sanitize_line;

use crate::args::{ListOptions, RequestOptions, SearchOptions, ToolsOptions};
use crate::commands::Context;
use crate::error::CliError;
use crate::printer::{List, Output, Printer};
use crate::server_selection::{ServerSource, Servers, Warnings};
use crate::server_session::{ServerSession, note_truncated, note_unlisted, with_session};
use crate::tool_args::coerce::signature;
use crate::tool_args::schema::Schema;

/// Lists the tools of one or all servers.
pub(crate) async fn tools(options: ToolsOptions, context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    let servers = select_servers(&options.list, context)?;
    let source = servers.source;
    with_session(servers, &RequestOptions::default(), context, async |session: &ServerSession| {
        if options.cached {
            let unlisted = session.list_cached().await?;
            print_tools(&session.manager().all_tools(), source, &options, printer);
            note_unlisted(&unlisted, printer);
            return Ok(());
        }
        let results = session.query_all(async |client| Ok(client.tools())).await;
        for (server, listing) in &results.responses {
            note_truncated(listing, "tools", server, printer);
        }
        if !results.responses.is_empty() {
            // Without this, cached tools of servers that failed just now would be
            // listed as available.
            let is_live = |tool: &&ToolWithServer| {
                results.responses.iter().any(|(server, _)| **server == **tool.server())
            };
            let live: Vec<ToolWithServer> =
                session.manager().all_tools().iter().filter(is_live).cloned().collect();
            print_tools(&live, source, &options, printer);
        }
        results.close(printer)
    })
    .await
}

/// The servers of a command: the named one, or all.
pub(crate) fn select_servers(
    ListOptions { server, target }: &ListOptions,
    context: &Context,
) -> Result<Servers, CliError> {
    let servers = Servers::select(target, Warnings::Usual, context)?;
    match (server, servers.source) {
        (Some(name), ServerSource::AdHoc) => Err(CliError::usage(
            format!("`{name}` is a configured server, but an ad-hoc server is given as well"),
            "remove one of them",
        )),
        (Some(name), ServerSource::Configured) => servers.only(name),
        (None, _) if servers.configs.is_empty() => Err(Servers::no_server_given()),
        (None, _) => Ok(servers),
    }
}

fn print_tools(
    tools: &[ToolWithServer],
    source: ServerSource,
    options: &ToolsOptions,
    printer: &Printer,
) {
    if tools.is_empty() {
        printer.note("note: no tools found");
    }
    if options.schema && printer.output == Output::Table && !tools.is_empty() {
        let blocks: Vec<String> = tools.iter().map(|tool| render_schema(tool, source)).collect();
        return printer.line(blocks.join("\n\n"));
    }
    printer.list(&tool_list(tools, source));
    for note in look_alike_notes(tools) {
        printer.note(note);
    }
}

/// Warnings about tools that can be mistaken for a tool of another server.
fn look_alike_notes(tools: &[ToolWithServer]) -> Vec<String> {
    pair_notes(&look_alikes(tools), |place| {
        let tool = tools.get(place);
        // Letters that are not ASCII are written as escapes, or the difference would not be seen.
        let name =
            tool.map(|tool| format!("{}.{}", tool.server(), tool.tool().name.escape_default()));
        sanitize_line(&name.unwrap_or_default(), MAX_CHARS)
    })
}

/// One warning for each pair, up to a limit. `partners` has the partner of each tool.
fn pair_notes(partners: &[Option<usize>], name: impl Fn(usize) -> String) -> Vec<String> {
    let pairs = partners.iter().enumerate().filter_map(|(place, other)| Some((place, (*other)?)));
    let pairs: BTreeSet<(usize, usize)> =
        pairs.map(|(place, other)| (place.min(other), place.max(other))).collect();
    let n_more = pairs.len().saturating_sub(MAX_LOOK_ALIKES);
    let notes = pairs
        .iter()
        .take(MAX_LOOK_ALIKES)
        .map(|(one, other)| format!("warning: `{}` and `{}` look alike", name(*one), name(*other)));
    let more = (n_more > 0).then(|| format!("warning: {n_more} more pairs of tools look alike"));
    notes.chain(more).collect()
}

/// Searches tools by keywords in their names and descriptions.
pub(crate) async fn search(options: SearchOptions, context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    let servers = Servers::configured(Warnings::Usual, context)?;
    if servers.configs.is_empty() {
        return Err(Servers::no_servers());
    }
    with_session(servers, &RequestOptions::default(), context, async |session: &ServerSession| {
        let (results, unlisted) = if options.live {
            (Some(session.query_all(async |_| Ok(())).await), Vec::new())
        } else {
            (None, session.list_cached().await?)
        };
        let found = matching_tools(&session.manager().all_tools(), &options.words);
        if found.is_empty() {
            printer.note("note: no tool matches all keywords");
        }
        printer.list(&tool_list(&found, ServerSource::Configured));
        note_unlisted(&unlisted, printer);
        results.map_or(Ok(()), |results| results.close(printer))
    })
    .await
}

/// Tools that match all keywords, best match first.
fn matching_tools(tools: &[ToolWithServer], words: &[String]) -> Vec<ToolWithServer> {
    let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    let mut found: Vec<(usize, &ToolWithServer)> = tools
        .iter()
        .filter_map(|tool| {
            let name = format!("{}.{}", tool.server(), tool.tool().name);
            let about = tool.tool().description.as_deref().unwrap_or_default();
            Some((score(&name, about, &words)?, tool))
        })
        .collect();
    found.sort_by(|one, two| two.0.cmp(&one.0).then(one.1.name().cmp(two.1.name())));
    found.into_iter().map(|(_, tool)| tool.clone()).collect()
}

/// Two points per keyword in the name, one in the description. `None` if a keyword is missing.
fn score(name: &str, about: &str, words: &[String]) -> Option<usize> {
    let (name, about) = (name.to_lowercase(), about.to_lowercase());
    let hit = |word: &String| match (name.contains(word), about.contains(word)) {
        (true, _) => Some(2),
        (false, true) => Some(1),
        (false, false) => None,
    };
    words.iter().map(hit).sum()
}

/// Pairs of look-alike tools that are named.
const MAX_LOOK_ALIKES: usize = 10;

/// Maximum length of a description; the table cuts it to the terminal later.
const MAX_CHARS: usize = 400;

/// JSON of a tool, resource, template or prompt, with its server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListItem<'a, T> {
    pub(crate) server: &'a str,
    /// Of tools only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_name: Option<&'a str>,
    #[serde(flatten)]
    pub(crate) item: &'a T,
}

/// The tools as a table and as JSON.
fn tool_list(tools: &[ToolWithServer], source: ServerSource) -> List {
    let mut list = List::new(&["TOOL", "DESCRIPTION"]);
    for tool in tools {
        let (server, public_name, item) = (tool.server(), Some(&**tool.name()), tool.tool());
        let row = vec![typed_name(tool, source), description(item)];
        list.push(row, &ListItem { server, public_name, item });
    }
    list
}

/// The tool's name as it is typed in `toolrack call`.
pub(crate) fn typed_name(tool: &ToolWithServer, source: ServerSource) -> String {
    let name = sanitize_line(&tool.tool().name, MAX_CHARS);
    match source {
        ServerSource::AdHoc => name,
        ServerSource::Configured => format!("{}.{name}", tool.server()),
    }
}

/// The first line of a tool's description.
pub(crate) fn description(tool: &Tool) -> String {
    let text = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    sanitize_line(text.trim().lines().next().unwrap_or_default(), MAX_CHARS)
}

/// A tool with its parameters.
fn render_schema(tool: &ToolWithServer, source: ServerSource) -> String {
    let schema: Value = serde_json::from_str(tool.tool().input_schema.get()).unwrap_or_default();
    let schema = Schema::new(&schema);
    let mut lines =
        vec![format!("{}({})", typed_name(tool, source), sanitize_line(&signature(schema), 1000))];
    let text = tool.tool().description.as_deref().unwrap_or_default();
    lines.extend(text.trim().lines().map(|line| format!("    {}", sanitize_line(line, 1000))));
    for name in schema.property_names() {
        if let Some(about) = schema.property(name).and_then(Schema::description) {
            let (name, about) = (sanitize_line(name, MAX_CHARS), sanitize_line(about, MAX_CHARS));
            lines.push(format!("    {name}: {about}"));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_alikes_are_named_once_and_bounded() {
        let notes = |partners: &[Option<usize>]| pair_notes(partners, |place| format!("t{place}"));
        assert_eq!(notes(&[None, None]), Vec::<String>::new());
        let expected = "warning: `t0` and `t2` look alike";
        assert_eq!(notes(&[Some(2), None, Some(0)]), [expected]);
        let many: Vec<Option<usize>> = (0..100).map(|place| Some(place ^ 1)).collect();
        let notes = notes(&many);
        assert_eq!(
            (notes.len(), notes.last().unwrap().as_str()),
            (MAX_LOOK_ALIKES + 1, "warning: 40 more pairs of tools look alike",)
        );
    }

    #[track_caller]
    fn check(words: &[&str], expected: Option<usize>) {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(score("git.create_issue", "Opens an issue in a project", &words), expected);
    }

    #[test]
    fn keywords_in_names_score_double() {
        check(&["issue"], Some(2));
        check(&["opens"], Some(1));
        check(&["git", "project"], Some(3));
        check(&["issue", "delete"], None);
    }
}
