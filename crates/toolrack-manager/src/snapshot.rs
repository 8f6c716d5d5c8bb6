//! Everything at one moment: all servers, all tools, and the ways from a name to a tool.
//!
//! **Invariant:** a snapshot never changes. The actor publishes the next one, and whoever holds this one goes
//! on with it.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt as _};
use toolrack_config::Names;

use crate::connection::McpConnection;
use crate::error::RackError;
use crate::name::{ToolRef, name_all};
use crate::toolset::ToolWithServer;

/// How many suggestions there are for a name that does not exist.
const MOST_SUGGESTIONS: usize = 3;

/// Everything at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    servers: Vec<Arc<McpConnection>>,
    places: Arc<HashMap<Arc<str>, usize>>,
    index: Arc<Index>,
}

/// All tools that are offered, and where each is.
#[derive(Debug, Default)]
pub(crate) struct Index {
    listed: Arc<[ToolWithServer]>,
    /// By public name: the place in the list, and the place of the server.
    by_name: HashMap<Arc<str>, (usize, usize)>,
}

/// A tool that was found.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) connection: &'a Arc<McpConnection>,
    /// As the server names it.
    pub(crate) tool: &'a str,
}

impl Index {
    /// Names that were there `before` are kept as they are, so that they do not move about in memory.
    pub(crate) fn build(names: &Names, servers: &[Arc<McpConnection>], before: &Index) -> Self {
        let open = || {
            let listed = servers.iter().enumerate().filter(|(_, it)| it.is_listed());
            listed.flat_map(|(at, server)| server.toolset.open().map(move |it| (at, server, it)))
        };
        let raw: Vec<ToolRef<'_>> =
            open().map(|(_, server, (_, tool))| (server.name(), tool.name.as_str())).collect();
        let public = name_all(names, &raw);
        let mut listed = Vec::with_capacity(raw.len());
        let mut by_name = HashMap::with_capacity(raw.len());
        for ((at, server, (place, _)), name) in open().zip(public) {
            let Some(listing) = server.toolset.listing() else { continue };
            let known = before.by_name.get_key_value(name.as_str());
            let name = known.map_or_else(|| name.into(), |(known, _)| Arc::clone(known));
            by_name.insert(Arc::clone(&name), (listed.len(), at));
            listed.push(ToolWithServer::new(&server.name, name, listing, place));
        }
        Self { listed: listed.into(), by_name }
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

    /// Finds what `typed` stands for: a public name, or `server.tool` or `server/tool` in raw names.
    pub(crate) fn resolve<'a>(&'a self, typed: &'a str) -> Result<Target<'a>, RackError> {
        if let Some((place, at)) = self.index.by_name.get(typed)
            && let (Some(listed), Some(connection)) =
                (self.index.listed.get(*place), self.servers.get(*at))
        {
            return Ok(Target { connection, tool: &listed.tool().name });
        }
        let typed = typed.strip_prefix("mcp__").unwrap_or(typed);
        let named = self.splits(typed).find(|it| it.connection.toolset.has(it.tool));
        // A rule can say more than that there is no such tool, and a server may have tools we have not seen.
        let judged = || self.splits(typed).find(|it| is_worth_asking(it));
        named.or_else(judged).ok_or_else(|| RackError::NoSuchTool {
            tool: typed.to_owned(),
            nearest: nearest(typed, self.spellings()),
        })
    }

    /// The tools that a raw name may mean, in the order of the servers, or the one that `typed` stands for.
    pub(crate) fn find(&self, typed: &str) -> Option<ToolWithServer> {
        if let Ok(target) = self.resolve(typed) {
            let (server, tool) = (&target.connection.name, target.tool);
            let is_it = |it: &&ToolWithServer| it.server() == server && it.tool().name == tool;
            return self.index.listed.iter().find(is_it).cloned();
        }
        self.index.listed.iter().find(|it| it.tool().name == typed).cloned()
    }

    /// Every way to read `typed` as a server that exists and something behind it.
    fn splits<'a>(&'a self, typed: &'a str) -> impl Iterator<Item = Target<'a>> {
        ["/", ".", "__", "_"].into_iter().flat_map(move |separator| {
            typed.match_indices(separator).filter_map(move |(at, separator)| {
                let server = typed.get(..at)?;
                let tool = typed.get(at + separator.len()..)?;
                let connection = self.servers.get(*self.places.get(server)?)?;
                Some(Target { connection, tool })
            })
        })
    }

    fn spellings(&self) -> impl Iterator<Item = &str> {
        self.index.listed.iter().map(|it| &**it.name())
    }
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
