//! Everything at one moment: all servers, all tools, and the ways from a name to a tool.
//!
//! **Invariant:** a snapshot never changes. The actor publishes the next one, and whoever holds this one goes
//! on with it.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::HashMap;
use toolrack_config::Names;

use crate::error::RackError;
use crate::name_reservations::Given;
use crate::server_snapshot::McpConnection;
use crate::server_tools::ToolWithServer;
use crate::tool_names::{Namer, ToolRef, plainly};

/// How many suggestions there are for a name that does not exist.
const MOST_SUGGESTIONS: usize = 3;

/// Everything at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    servers: Vec<Arc<McpConnection>>,
    places: Arc<HashMap<Arc<str>, usize>>,
    index: Arc<Index>,
}

/// All tools that are known, what they are called, and which of them are offered.
#[derive(Debug, Default)]
pub(crate) struct Index {
    listed: Arc<[ToolWithServer]>,
    /// Also those of servers that were stopped, because a name does not move when a server does.
    known: Vec<ToolWithServer>,
    /// By public name: the place among the known, and the place of the server.
    by_name: HashMap<Arc<str>, (usize, usize)>,
    /// Plain names that nobody has because several servers may be meant: the same places.
    contested: HashMap<String, Vec<(usize, usize)>>,
    given: Given,
    /// What stands between server and tool in public names.
    separator: String,
}

/// A tool that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) connection: &'a Arc<McpConnection>,
    /// As the server names it.
    pub(crate) tool: &'a str,
}

impl Index {
    /// Names that were given `before` are kept as they are, and go to no other server.
    pub(crate) fn build(style: &Names, servers: &[Arc<McpConnection>], before: &Index) -> Self {
        let open = || {
            let all = servers.iter().enumerate();
            all.flat_map(|(at, server)| server.toolset.open().map(move |it| (at, server, it)))
        };
        let raw: Vec<ToolRef<'_>> =
            open().map(|(_, server, (_, tool))| (server.name(), tool.name.as_str())).collect();
        let all: Vec<&str> = servers.iter().map(|it| it.name()).collect();
        // Names of servers that are gone are free again.
        let still_there: HashSet<&str> = all.iter().copied().collect();
        let former = before.given.of_those(|it| still_there.contains(it));
        let named = Namer { style, servers: &all, given: &former }.name_all(&raw);
        let mut index = Self { separator: plainly(&style.separator), ..Self::default() };
        let mut listed = Vec::with_capacity(raw.len());
        for ((at, server, (place, _)), named) in open().zip(named) {
            let Some(listing) = server.toolset.listing() else { continue };
            let here = (index.known.len(), at);
            let name = match former.kept(&named.public) {
                Some(kept) => Arc::clone(kept),
                None => named.public.into(),
            };
            if let Some(plain) = named.contested {
                index.contested.entry(plain).or_default().push(here);
            }
            index.by_name.insert(Arc::clone(&name), here);
            let tool = ToolWithServer::new(&server.name, name, listing, place);
            if server.is_listed() {
                listed.push(tool.clone());
            }
            index.known.push(tool);
        }
        index.listed = listed.into();
        index.given = former.next(&index.known);
        index
    }
}

impl Snapshot {
    pub(crate) fn new(
        servers: Vec<Arc<McpConnection>>,
        places: Arc<HashMap<Arc<str>, usize>>,
        index: Arc<Index>,
    ) -> Self {
        Self { servers, places, index }
    }

    pub(crate) fn servers(&self) -> &[Arc<McpConnection>] {
        &self.servers
    }

    pub(crate) fn tools(&self) -> &Arc<[ToolWithServer]> {
        &self.index.listed
    }

    pub(crate) fn server(&self, name: &str) -> Result<&Arc<McpConnection>, RackError> {
        let found = self.places.get(name).and_then(|place| self.servers.get(*place));
        found.ok_or_else(|| RackError::NoSuchServer {
            server: name.to_owned(),
            nearest: nearest(name, self.servers.iter().map(|it| it.name())),
        })
    }

    /// Finds what `typed` stands for: a public name, or `server.tool` or `server/tool` in raw names. What may stand
    /// for tools of several servers stands for none.
    pub(crate) fn resolve<'a>(&'a self, typed: &'a str) -> Result<Target<'a>, RackError> {
        if let Some(target) = self.index.by_name.get(typed).and_then(|it| self.target(*it)) {
            return Ok(target);
        }
        let typed = match typed.strip_prefix("mcp__") {
            Some(rest) if !self.places.contains_key("mcp") => rest,
            _ => typed,
        };
        let readings = self.readings(typed);
        let owner = self.index.given.owner(typed).and_then(|(server, tool)| {
            let connection = self.server(server).ok()?;
            Some(Target { connection, tool })
        });
        if let Some(places) = self.index.contested.get(typed) {
            let targets = places.iter().filter_map(|it| self.target(*it)).chain(owner);
            return Err(self.ambiguous(typed, targets.chain(longest(&readings))));
        }
        if let Some(owner) = owner {
            return Ok(owner);
        }
        self.judge(typed, &readings)
    }

    /// What is meant, if the longest name of a server counts and no other server has such a tool.
    fn judge<'a>(&'a self, typed: &str, readings: &[Target<'a>]) -> Result<Target<'a>, RackError> {
        let longest: Vec<Target<'a>> = longest(readings).collect();
        let has = |it: &&Target<'_>| it.connection.toolset.has(it.tool);
        let is_of = |server: &Arc<McpConnection>| longest.iter().all(|it| is_same(it, server));
        let mut rivals = longest.iter().chain(readings.iter().filter(has));
        if !rivals.all(|it| is_of(it.connection)) {
            let holders = readings.iter().filter(has).copied();
            return Err(self.ambiguous(typed, holders.chain(longest)));
        }
        // A rule can say more than that there is no such tool, and a server may have tools we have not seen.
        let found =
            longest.iter().find(has).or_else(|| longest.iter().find(|it| is_worth_asking(it)));
        found.copied().ok_or_else(|| RackError::NoSuchTool {
            tool: typed.to_owned(),
            nearest: nearest(typed, self.spellings()),
        })
    }

    /// The tools that a raw name may mean, in the order of the servers, or the one that `typed` stands for. A raw
    /// name that reads like a tool of one server is never that of another.
    pub(crate) fn find(&self, typed: &str) -> Option<ToolWithServer> {
        let mut listed = self.index.listed.iter();
        match self.resolve(typed) {
            Ok(target) => {
                let (server, tool) = (&target.connection.name, target.tool);
                listed.find(|it| it.server() == server && it.tool().name == tool).cloned()
            }
            Err(RackError::NoSuchTool { .. }) => {
                let readings = self.readings(typed);
                let is_own = |it: &ToolWithServer| {
                    longest(&readings).all(|reading| reading.connection.name == *it.server())
                };
                listed.find(|it| it.tool().name == typed && is_own(it)).cloned()
            }
            Err(_several) => None,
        }
    }

    fn target(&self, (place, at): (usize, usize)) -> Option<Target<'_>> {
        let (tool, connection) = (self.index.known.get(place)?, self.servers.get(at)?);
        Some(Target { connection, tool: &tool.tool().name })
    }

    fn ambiguous<'a>(&self, typed: &str, targets: impl Iterator<Item = Target<'a>>) -> RackError {
        let mut readings: Vec<String> = targets.map(|it| self.exactly(&it)).collect();
        readings.sort_unstable();
        readings.dedup();
        RackError::Ambiguous { tool: typed.to_owned(), readings }
    }

    /// A name that means this tool and no other: no server has a slash in its name.
    fn exactly(&self, target: &Target<'_>) -> String {
        let (server, tool) = (target.connection.name(), target.tool);
        let dotted = format!("{server}.{tool}");
        let is_clear = self.readings(&dotted).iter().all(|it| is_same(it, target.connection));
        if is_clear { dotted } else { format!("{server}/{tool}") }
    }

    /// Every way to read `typed` as a server that exists and something behind it, in the strictest way of writing
    /// that fits at all: `server/tool`, then `server.tool`, then as in public names.
    fn readings<'a>(&'a self, typed: &'a str) -> Vec<Target<'a>> {
        for separator in ["/", "."] {
            let found: Vec<Target<'a>> = typed
                .match_indices(separator)
                .filter_map(|(at, separator)| {
                    let (server, tool) = (typed.get(..at)?, typed.get(at + separator.len()..)?);
                    let connection = self.servers.get(*self.places.get(server)?)?;
                    Some(Target { connection, tool })
                })
                .collect();
            if !found.is_empty() {
                return found;
            }
        }
        let separators = [self.index.separator.as_str(), "__", "_"];
        let of_server = |connection: &'a Arc<McpConnection>| {
            let rest = [connection.name(), &plainly(connection.name())]
                .into_iter()
                .find_map(|it| typed.strip_prefix(it));
            let tools = separators.into_iter().filter_map(move |it| rest?.strip_prefix(it));
            tools.map(move |tool| Target { connection, tool })
        };
        self.servers.iter().flat_map(of_server).collect()
    }

    fn spellings(&self) -> impl Iterator<Item = &str> {
        self.index.listed.iter().map(|it| &**it.name())
    }
}

/// The readings with the longest name of a server.
fn longest<'a>(readings: &[Target<'a>]) -> impl Iterator<Item = Target<'a>> {
    let length = |it: &Target<'_>| it.connection.name().chars().count();
    let most = readings.iter().map(length).max();
    readings.iter().filter(move |it| Some(length(it)) == most).copied()
}

fn is_same(target: &Target<'_>, server: &Arc<McpConnection>) -> bool {
    target.connection.name == server.name
}

/// Whether a tool that is not open may still exist, or is known to be denied.
fn is_worth_asking(target: &Target<'_>) -> bool {
    let toolset = &target.connection.toolset;
    toolset.listing().is_none() || toolset.denial(target.tool).is_some()
}

/// The candidates that look most like `name`, best first.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut close: Vec<(f64, &str)> = candidates
        .map(|it| (strsim::normalized_damerau_levenshtein(name, it), it))
        .filter(|(likeness, _)| *likeness > 0.7)
        .collect();
    close.sort_by(|one, two| two.0.total_cmp(&one.0).then(one.1.cmp(two.1)));
    close.into_iter().take(MOST_SUGGESTIONS).map(|(_, it)| it.to_owned()).collect()
}

#[cfg(test)]
mod tests;
