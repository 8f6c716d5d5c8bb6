//! Immutable snapshot of all servers and tools, and the resolution of tool names.
//!
//! **Invariant:** a snapshot never changes. The supervisor publishes the next one, and readers of this one keep it.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::HashMap;
use tokio::time::Instant;
use toolrack_client::{List, McpClient};
use toolrack_config::{McpServerConfig, ToolNaming};
use toolrack_mcp::Tool;

use crate::error::{ManagerError, shorten_name, suggestions};
use crate::in_flight::InFlight;
use crate::lifecycle::{ConnectPhase, ConnectionState, Epoch, Lifecycle};
use crate::server_tools::{RefreshLimiter, ServerTools, ToolWithServer};
use crate::tool_filter::{FilterRule, ToolFilter};
use crate::tool_names::{NameGenerator, NameReservations, ToolRef, sanitize_name};

/// Snapshot of one server.
#[derive(Debug, Clone)]
pub struct McpConnection {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<McpServerConfig>,
    pub(crate) lifecycle: Lifecycle,
    /// Progress of the last launch.
    pub(crate) phase: ConnectPhase,
    pub(crate) active: Option<Arc<ActiveClient>>,
    pub(crate) tools: Arc<ServerTools>,
    pub(crate) filter: ToolFilter,
}

/// Client of an open connection.
#[derive(Debug)]
pub(crate) struct ActiveClient {
    pub(crate) client: McpClient,
    pub(crate) in_flight: InFlight,
    pub(crate) epoch: Epoch,
    pub(crate) refresh_limiter: RefreshLimiter,
}

impl McpConnection {
    /// Name of the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Config of the server.
    pub fn config(&self) -> &McpServerConfig {
        &self.config
    }

    /// State of the connection.
    pub fn state(&self) -> &ConnectionState {
        self.lifecycle.state()
    }

    /// Progress, while the server is connecting.
    pub fn phase(&self) -> Option<ConnectPhase> {
        (*self.state() == ConnectionState::Connecting).then_some(self.phase)
    }

    /// Whether the server accepts calls.
    pub fn is_connected(&self) -> bool {
        *self.state() == ConnectionState::Connected
    }

    /// When the next automatic retry is due.
    pub fn retry_at(&self) -> Option<Instant> {
        self.lifecycle.wake_at()
    }

    /// Whether the server is in a crash loop: five starts within a minute, and not stable for two minutes since.
    pub fn is_crash_looping(&self) -> bool {
        self.lifecycle.is_crash_looping(Instant::now())
    }

    /// Number of the current launch, counted from one. `None` if nothing runs.
    pub fn launch(&self) -> Option<u64> {
        self.lifecycle.launch().map(|epoch| epoch.0)
    }

    /// Client of the open connection, for requests other than tool calls.
    pub fn client(&self) -> Option<&McpClient> {
        self.active.as_ref().map(|active| &active.client)
    }

    /// All tools of the server, including denied ones. `None` if they were never fetched.
    pub fn tool_list(&self) -> Option<&Arc<List<Tool>>> {
        self.tools.list.as_ref()
    }

    /// Number of allowed tools.
    pub fn n_tools(&self) -> usize {
        self.tools.allowed().count()
    }

    /// Names of the allowed tools, as on the server.
    pub fn tool_names(&self) -> Vec<String> {
        self.tools.allowed().map(|(_, tool)| tool.name.clone()).collect()
    }

    /// Whether its tools are listed: the server is enabled and wanted, even if it does not run at the moment.
    pub(crate) fn is_offered(&self) -> bool {
        self.lifecycle.is_wanted()
    }

    /// The rule that denies a tool. Also answers for tools that the server does not list.
    pub fn denied_by(&self, tool: &str) -> Option<FilterRule> {
        if self.tools.contains(tool) {
            return None;
        }
        self.tools.denied.get(tool).cloned().or_else(|| self.filter.denied_by(tool))
    }
}

/// Snapshot of all servers.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) servers: Vec<Arc<McpConnection>>,
    pub(crate) index: Arc<Index>,
}

/// Where a tool is: its position among the known tools, and the position of its server.
type Position = (usize, usize);

/// All known tools by public name.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Position of each server in the snapshot.
    positions: HashMap<Arc<str>, usize>,
    /// The tools that are offered.
    pub(crate) listed: Arc<[ToolWithServer]>,
    /// Includes the tools of stopped servers, because stopping a server must not free its names.
    known: Vec<ToolWithServer>,
    by_name: HashMap<Arc<str>, Position>,
    /// Base names that no tool got because several servers could be meant.
    ambiguous: HashMap<String, Vec<Position>>,
    reservations: NameReservations,
    /// Separator between server and tool in public names.
    separator: String,
}

/// A name resolved to a server and a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResolvedTool<'a> {
    pub(crate) connection: &'a Arc<McpConnection>,
    /// Name on the server.
    pub(crate) tool: &'a str,
}

impl Index {
    /// Names that `before` assigned stay with their server.
    pub(crate) fn build(
        style: &ToolNaming,
        servers: &[Arc<McpConnection>],
        before: &Index,
    ) -> Self {
        let allowed = || {
            let all = servers.iter().enumerate();
            all.flat_map(|(at, server)| server.tools.allowed().map(move |tool| (at, server, tool)))
        };
        let tools: Vec<ToolRef<'_>> =
            allowed().map(|(_, server, (_, tool))| (server.name(), tool.name.as_str())).collect();
        let names: Vec<&str> = servers.iter().map(|server| server.name()).collect();
        // Names of servers that were removed are free again.
        let existing: HashSet<&str> = names.iter().copied().collect();
        let reserved = before.reservations.for_servers(|server| existing.contains(server));
        let generator = NameGenerator { style, servers: &names, reservations: &reserved };
        let generated = generator.name_all(&tools);
        let positions =
            servers.iter().enumerate().map(|(at, server)| (Arc::clone(&server.name), at));
        let mut index = Self {
            positions: positions.collect(),
            separator: sanitize_name(&style.separator),
            ..Self::default()
        };
        let mut listed = Vec::with_capacity(tools.len());
        for ((at, server, (place, _)), generated) in allowed().zip(generated) {
            let Some(list) = &server.tools.list else { continue };
            let position = (index.known.len(), at);
            // Reuses the allocation: the index is rebuilt on each change, and its
            // names seldom change.
            let name = match reserved.existing(&generated.public) {
                Some(existing) => Arc::clone(existing),
                None => generated.public.into(),
            };
            if let Some(base_name) = generated.ambiguous {
                index.ambiguous.entry(base_name).or_default().push(position);
            }
            index.by_name.insert(Arc::clone(&name), position);
            let (server_name, list) = (Arc::clone(&server.name), Arc::clone(list));
            let tool = ToolWithServer { server: server_name, name, list, place };
            // A stopped server keeps its names in `known`, so that another server cannot
            // take them meanwhile.
            if server.is_offered() {
                listed.push(tool.clone());
            }
            index.known.push(tool);
        }
        index.listed = listed.into();
        index.reservations = reserved.updated(&index.known);
        index
    }
}

impl Snapshot {
    pub(crate) fn server(&self, name: &str) -> Result<&Arc<McpConnection>, ManagerError> {
        let found = self.index.positions.get(name).and_then(|at| self.servers.get(*at));
        found.ok_or_else(|| {
            ManagerError::no_such_server(name, self.servers.iter().map(|server| server.name()))
        })
    }

    /// Resolves a public name, `server.tool` or `server/tool`. A name that could mean tools of several servers is an
    /// error: a call must never reach another server than the caller means.
    pub(crate) fn resolve<'a>(&'a self, name: &'a str) -> Result<ResolvedTool<'a>, ManagerError> {
        // The exact public name first: agents use it, and it is one lookup.
        if let Some(tool) = self.index.by_name.get(name).and_then(|at| self.tool_at(*at)) {
            return Ok(tool);
        }
        // Some clients write `mcp__server__tool`.
        let name = match name.strip_prefix("mcp__") {
            // With a server named `mcp`, the prefix may be its name.
            Some(rest) if !self.index.positions.contains_key("mcp") => rest,
            _ => name,
        };
        let readings = self.readings(name);
        let owner = self.index.reservations.owner(name).and_then(|(server, tool)| {
            let connection = self.server(server).ok()?;
            Some(ResolvedTool { connection, tool })
        });
        // Names every server that could be meant, including one that has dropped the tool.
        if let Some(positions) = self.index.ambiguous.get(name) {
            let tools = positions.iter().filter_map(|at| self.tool_at(*at)).chain(owner);
            return Err(self.ambiguous(name, tools.chain(longest(&readings))));
        }
        // The server that had this name last, even if it has dropped the tool: the name does not move to another one.
        if let Some(owner) = owner {
            return Ok(owner);
        }
        self.choose(name, &readings)
    }

    /// Chooses the reading with the longest server name, unless another server has a tool that also matches.
    fn choose<'a>(
        &'a self,
        name: &str,
        readings: &[ResolvedTool<'a>],
    ) -> Result<ResolvedTool<'a>, ManagerError> {
        let longest: Vec<ResolvedTool<'a>> = longest(readings).collect();
        let exists = |reading: &&ResolvedTool<'_>| reading.connection.tools.contains(reading.tool);
        let is_only_server = |server: &Arc<McpConnection>| {
            longest.iter().all(|reading| reading.connection.name == server.name)
        };
        let mut rivals = longest.iter().chain(readings.iter().filter(exists));
        if !rivals.all(|reading| is_only_server(reading.connection)) {
            let existing = readings.iter().filter(exists).copied();
            return Err(self.ambiguous(name, existing.chain(longest)));
        }
        // A tool that may exist is passed on: the call then fails with the rule that denies it, or finds a tool that
        // was not listed yet. Both are better than "no such tool".
        let found = longest
            .iter()
            .find(exists)
            .or_else(|| longest.iter().find(|reading| may_exist(reading)));
        found.copied().ok_or_else(|| {
            let names = self.index.listed.iter().map(|tool| &**tool.name());
            let suggestions = suggestions(name, names);
            ManagerError::NoSuchTool { tool: shorten_name(name), suggestions }
        })
    }

    /// Finds a listed tool by any name that [`resolve`](Self::resolve) accepts, or by its name on the server; then the
    /// first server that has it wins. A name that reads like a tool of one server never finds that of another.
    pub(crate) fn find(&self, name: &str) -> Option<ToolWithServer> {
        let mut listed = self.index.listed.iter();
        match self.resolve(name) {
            Ok(resolved) => {
                let (server, tool) = (&resolved.connection.name, resolved.tool);
                listed.find(|found| found.server() == server && found.tool().name == tool).cloned()
            }
            Err(ManagerError::NoSuchTool { .. }) => {
                let readings = self.readings(name);
                let is_own = |found: &ToolWithServer| {
                    longest(&readings).all(|reading| reading.connection.name == *found.server())
                };
                listed.find(|found| found.tool().name == name && is_own(found)).cloned()
            }
            Err(_ambiguous) => None,
        }
    }

    fn tool_at(&self, (tool_at, server_at): Position) -> Option<ResolvedTool<'_>> {
        let (tool, connection) = (self.index.known.get(tool_at)?, self.servers.get(server_at)?);
        Some(ResolvedTool { connection, tool: &tool.tool().name })
    }

    fn ambiguous<'a>(
        &self,
        name: &str,
        tools: impl Iterator<Item = ResolvedTool<'a>>,
    ) -> ManagerError {
        let mut candidates: Vec<String> = tools.map(|tool| self.qualified_name(&tool)).collect();
        candidates.sort_unstable();
        candidates.dedup();
        ManagerError::Ambiguous { tool: shorten_name(name), candidates }
    }

    /// A name that resolves to this tool only. The form with a slash always does: server names contain no slash.
    fn qualified_name(&self, tool: &ResolvedTool<'_>) -> String {
        let (server, name) = (tool.connection.name(), tool.tool);
        let dotted = format!("{server}.{name}");
        let readings = self.readings(&dotted);
        let is_unique = readings.iter().all(|reading| reading.connection.name() == server);
        if is_unique { dotted } else { format!("{server}/{name}") }
    }

    /// All ways to split `name` into an existing server and a tool. Only the strictest notation that matches counts:
    /// `server/tool`, then `server.tool`, then the notations of public names.
    fn readings<'a>(&'a self, name: &'a str) -> Vec<ResolvedTool<'a>> {
        // A caller can send any name. Only a prefix as long as the name of a server is looked up.
        let max_server_bytes = self.servers.iter().map(|server| server.name().len()).max();
        let max_server_bytes = max_server_bytes.unwrap_or_default();
        // These two are written by people and never occur in public names, so a match is
        // meant as such.
        for separator in ["/", "."] {
            let found: Vec<ResolvedTool<'a>> = name
                .match_indices(separator)
                .take_while(|(at, _)| *at <= max_server_bytes)
                .filter_map(|(at, separator)| {
                    let (server, tool) = (name.get(..at)?, name.get(at + separator.len()..)?);
                    let connection = self.servers.get(*self.index.positions.get(server)?)?;
                    Some(ResolvedTool { connection, tool })
                })
                .collect();
            if !found.is_empty() {
                return found;
            }
        }
        // `__` and `_` are accepted beside the configured separator, and server names as they are or sanitized.
        let separators = [self.index.separator.as_str(), "__", "_"];
        let readings_of = |connection: &'a Arc<McpConnection>| {
            let rest = [connection.name(), &sanitize_name(connection.name())]
                .into_iter()
                .find_map(|server| name.strip_prefix(server));
            let tools =
                separators.into_iter().filter_map(move |separator| rest?.strip_prefix(separator));
            tools.map(move |tool| ResolvedTool { connection, tool })
        };
        self.servers.iter().flat_map(readings_of).collect()
    }
}

/// The readings with the longest server name.
fn longest<'a>(readings: &[ResolvedTool<'a>]) -> impl Iterator<Item = ResolvedTool<'a>> {
    let length = |reading: &ResolvedTool<'_>| reading.connection.name().chars().count();
    // With servers `db` and `db_prod`, `db_prod_query` belongs to the longer one.
    let max = readings.iter().map(length).max();
    readings.iter().filter(move |reading| Some(length(reading)) == max).copied()
}

/// Whether a tool that is not allowed may still exist, or is known to be denied.
fn may_exist(reading: &ResolvedTool<'_>) -> bool {
    let tools = &reading.connection.tools;
    tools.list.is_none() || tools.denied.contains_key(reading.tool)
}

#[cfg(test)]
mod tests;
