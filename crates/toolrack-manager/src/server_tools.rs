//! Tools of one server: the filtered list, its changes, and when it is fetched again.
//!
//! Servers without `listChanged` do not announce new tools. Their list is fetched again on request, at most once per
//! [`MIN_REFRESH_INTERVAL`] and one request at a time.
//!
//! **Invariant:** a name stands for one tool. If a server lists a name twice, the first entry counts.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;
use toolrack_client::{List, McpToolDef};
use toolrack_mcp::Tool;
use toolrack_transport::sanitize_text;

use crate::manager::Shared;
use crate::snapshot::{ActiveClient, McpConnection};
use crate::supervisor::Operation;
use crate::tool_filter::{FilterRule, ToolFilter};

/// How long a list is used at least before it is fetched again.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// A tool and its server. Cheap to clone.
#[derive(Clone)]
pub struct ToolWithServer {
    pub(crate) server: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) list: Arc<List<Tool>>,
    /// Place of the tool in the list.
    pub(crate) place: usize,
}

/// The known tools of one server, filtered.
#[derive(Debug, Default)]
pub(crate) struct ServerTools {
    /// The list as the server sent it, if it is known.
    pub(crate) list: Option<Arc<List<Tool>>>,
    /// Names of the allowed tools.
    allowed: HashSet<Box<str>>,
    /// Their places in the list, in the server's order.
    order: Vec<usize>,
    /// The rules that deny listed tools.
    pub(crate) denied: HashMap<Box<str>, FilterRule>,
    /// Patterns that match no tool.
    pub(crate) unused_patterns: Vec<String>,
}

/// Difference between two tool lists of one server, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolDiff {
    pub(crate) added: Vec<Arc<str>>,
    pub(crate) removed: Vec<Arc<str>>,
    pub(crate) changed: Vec<Arc<str>>,
}

impl ToolWithServer {
    /// Name of the server.
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }

    /// Public name, by which agents call the tool.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The tool as its server lists it, under its name on the server.
    pub fn tool(&self) -> &Tool {
        /// Fallback for a place outside of the list, which would be a bug.
        static EMPTY: LazyLock<Tool> = LazyLock::new(Tool::default);
        self.list.items.get(self.place).unwrap_or(&EMPTY)
    }

    /// The definition for an agent: the public name, and a sanitized description.
    pub fn definition(&self) -> McpToolDef {
        let definition = McpToolDef::from(self.tool());
        McpToolDef {
            name: self.name.as_ref().to_owned(),
            description: sanitize_text(&definition.description).into_owned(),
            ..definition
        }
    }
}

impl fmt::Debug for ToolWithServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolWithServer")
            .field("server", &self.server)
            .field("name", &self.name)
            .field("tool", &self.tool().name)
            .finish_non_exhaustive()
    }
}

impl ServerTools {
    pub(crate) fn new(list: Option<Arc<List<Tool>>>, filter: &ToolFilter) -> Self {
        let mut tools = ServerTools { list, ..ServerTools::default() };
        let Some(list) = &tools.list else { return tools };
        let mut names = HashSet::default();
        for (place, tool) in list.items.iter().enumerate() {
            if !names.insert(tool.name.as_str()) {
                continue;
            }
            match filter.denied_by(&tool.name) {
                Some(rule) => {
                    tools.denied.insert(tool.name.as_str().into(), rule);
                }
                None => {
                    tools.allowed.insert(tool.name.as_str().into());
                    tools.order.push(place);
                }
            }
        }
        let names: Vec<&str> = names.into_iter().collect();
        tools.unused_patterns = filter.unused_patterns(&names);
        tools
    }

    /// The allowed tools with their places in the list, in the server's order.
    pub(crate) fn allowed(&self) -> impl Iterator<Item = (usize, &Tool)> {
        let list = self.list.as_ref();
        let tool = move |place: &usize| Some((*place, list?.items.get(*place)?));
        self.order.iter().filter_map(tool)
    }

    /// Whether the tool exists and is allowed.
    pub(crate) fn contains(&self, tool: &str) -> bool {
        self.allowed.contains(tool)
    }

    /// How the allowed tools differ from those of `before`.
    pub(crate) fn diff(&self, before: &ServerTools) -> ToolDiff {
        let old: HashMap<&str, &Tool> =
            before.allowed().map(|(_, tool)| (tool.name.as_str(), tool)).collect();
        let mut diff = ToolDiff::default();
        for (_, tool) in self.allowed() {
            match old.get(tool.name.as_str()) {
                None => diff.added.push(tool.name.as_str().into()),
                Some(old) if !is_same_tool(old, tool) => {
                    diff.changed.push(tool.name.as_str().into());
                }
                Some(_) => {}
            }
        }
        let removed = before.allowed().filter(|(_, tool)| !self.contains(&tool.name));
        diff.removed = removed.map(|(_, tool)| tool.name.as_str().into()).collect();
        diff
    }
}

/// Whether two tools have the same description and schemas.
fn is_same_tool(one: &Tool, two: &Tool) -> bool {
    fn raw(schema: Option<&RawValue>) -> Option<&str> {
        schema.map(RawValue::get)
    }
    one.title == two.title
        && one.description == two.description
        // Annotations count: a tool that stops being read-only has changed for the user
        // who allowed it.
        && one.annotations == two.annotations
        && one.input_schema.get() == two.input_schema.get()
        && raw(one.output_schema.as_deref()) == raw(two.output_schema.as_deref())
}

/// Limits how often the tools of a connection are fetched again.
#[derive(Debug, Default)]
pub(crate) struct RefreshLimiter(Mutex<LastRefresh>);

#[derive(Debug, Default, Clone, Copy)]
enum LastRefresh {
    #[default]
    Never,
    InProgress,
    At(Instant),
}

impl RefreshLimiter {
    /// Starts a refresh, unless one is in progress or the last one is too recent.
    pub(crate) fn try_start(&self, now: Instant) -> bool {
        let mut last = self.0.lock();
        let is_due = match *last {
            LastRefresh::Never => true,
            LastRefresh::InProgress => false,
            LastRefresh::At(time) => now.duration_since(time) >= MIN_REFRESH_INTERVAL,
        };
        if is_due {
            *last = LastRefresh::InProgress;
        }
        is_due
    }

    fn finish(&self, now: Instant) {
        *self.0.lock() = LastRefresh::At(now);
    }
}

/// Fetches the tools of a connection again, and passes a changed list to the supervisor.
pub(crate) async fn refresh(
    shared: Arc<Shared>,
    server: Arc<McpConnection>,
    active: Arc<ActiveClient>,
) {
    // Counts as a use, so that the idle timeout does not close the connection under the request.
    let Some(in_flight) = active.in_flight.acquire() else {
        // Otherwise the limiter would stay in progress, and this connection would never
        // be refreshed again.
        return active.refresh_limiter.finish(Instant::now());
    };
    // The client's call timeout bounds this. The client serves its cached list as long as the server allows.
    let listed = tokio::select! {
        () = shared.stop.cancelled() => return,
        listed = active.client.list_tools() => listed,
    };
    // Before the operation below, which may wait for the supervisor.
    drop(in_flight);
    active.refresh_limiter.finish(Instant::now());
    match listed {
        Ok(listed) if !server.tool_list().is_some_and(|known| is_same_list(known, &listed)) => {
            let update = Operation::UpdateTools(server.name().to_owned(), active.epoch);
            if let Err(error) = shared.apply(vec![update]).await {
                tracing::debug!(server = server.name(), %error, "refreshed tools were not applied");
            }
        }
        Ok(_same) => {}
        Err(error) => {
            tracing::debug!(server = server.name(), %error, "cannot refresh tools");
        }
    }
}

fn is_same_list(one: &List<Tool>, two: &List<Tool>) -> bool {
    // As JSON, because raw schemas cannot be compared.
    let json = |list: &List<Tool>| serde_json::to_vec(&list.items).ok();
    one.truncated == two.truncated && one.skipped == two.skipped && json(one) == json(two)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(tools: &[(&str, &str)]) -> Arc<List<Tool>> {
        let tool = |(name, description): &(&str, &str)| -> Tool {
            let json = serde_json::json!({
                "name": name, "description": description, "inputSchema": {"type": "object"},
            });
            serde_json::from_value(json).unwrap()
        };
        Arc::new(List { items: tools.iter().map(tool).collect(), ..List::default() })
    }

    fn names(tools: &ServerTools) -> Vec<&str> {
        tools.allowed().map(|(_, tool)| tool.name.as_str()).collect()
    }

    #[test]
    fn tools_are_filtered_and_duplicates_ignored() {
        let deny = vec!["b".to_owned(), "bb".to_owned()];
        let filter = ToolFilter { deny, ..ToolFilter::default() };
        let list = list(&[("a", ""), ("b", ""), ("a", "again"), ("c", "")]);
        let tools = ServerTools::new(Some(list), &filter);
        assert_eq!(names(&tools), ["a", "c"]);
        assert_eq!(tools.denied.get("b"), Some(&FilterRule::Denied { pattern: "b".to_owned() }));
        assert_eq!(tools.unused_patterns, ["bb"]);
        assert!(tools.contains("c") && !tools.contains("b"));
    }

    #[test]
    fn diff_compares_name_and_description() {
        let tools =
            |tools: &[(&str, &str)]| ServerTools::new(Some(list(tools)), &ToolFilter::default());
        let before = tools(&[("a", "x"), ("b", "x"), ("c", "x")]);
        let after = tools(&[("c", "x"), ("b", "y"), ("d", "x")]);
        let expected = ToolDiff {
            added: vec!["d".into()],
            removed: vec!["a".into()],
            changed: vec!["b".into()],
        };
        assert_eq!(after.diff(&before), expected);
        assert_eq!(after.diff(&after), ToolDiff::default());
        assert_eq!(before.diff(&ServerTools::default()).added.len(), 3);
    }

    #[test]
    fn definition_has_public_name_and_sanitized_description() {
        let list = list(&[("a.b", "look\u{e0041}\u{1b}[1m here\nand there")]);
        let tool = ToolWithServer { server: "s".into(), name: "s_a_b".into(), list, place: 0 };
        let definition = tool.definition();
        assert_eq!(definition.name, "s_a_b");
        assert_eq!(definition.description, "look here\nand there");
        assert_eq!(ToolWithServer { place: 9, ..tool }.tool().name, "");
    }

    #[test]
    fn refreshes_are_exclusive_and_rate_limited() {
        let (limiter, start) = (RefreshLimiter::default(), Instant::now());
        assert!(limiter.try_start(start));
        assert!(!limiter.try_start(start + MIN_REFRESH_INTERVAL * 9), "one is in progress");
        limiter.finish(start);
        assert!(!limiter.try_start(start + MIN_REFRESH_INTERVAL / 2));
        assert!(limiter.try_start(start + MIN_REFRESH_INTERVAL));
    }
}
