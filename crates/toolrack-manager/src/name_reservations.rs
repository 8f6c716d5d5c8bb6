//! Which names were given to which server, in this process.
//!
//! **Invariant:** as long as a server is in the config, a name that it was given is given to no other server,
//! whether it runs or not, and whether it still has the tool or not.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt as _};

use crate::server_tools::ToolWithServer;

/// How many names are remembered of a server that has no such tools any more. A server that gives
/// itself ever new names costs no memory, and loses nothing but its own.
const MOST_FORMER: usize = 1024;

/// Names, and the tool that each was given to last.
#[derive(Debug, Default)]
pub(crate) struct Given {
    owners: HashMap<Arc<str>, Owner>,
}

#[derive(Debug, Clone)]
struct Owner {
    server: Arc<str>,
    tool: Box<str>,
}

impl Given {
    /// The names of servers that still exist.
    pub(crate) fn of_those(&self, exist: impl Fn(&str) -> bool) -> Self {
        let kept = self.owners.iter().filter(|(_, it)| exist(&it.server));
        Self { owners: kept.map(|(name, it)| (Arc::clone(name), it.clone())).collect() }
    }

    /// What is remembered when these tools have their names.
    pub(crate) fn next(&self, present: &[ToolWithServer]) -> Self {
        let mut owners = HashMap::with_capacity(present.len().max(self.owners.len()));
        for tool in present {
            let owner =
                Owner { server: Arc::clone(tool.server()), tool: tool.tool().name.as_str().into() };
            owners.insert(Arc::clone(tool.name()), owner);
        }
        let mut n_former: HashMap<&Arc<str>, usize> = HashMap::new();
        for (name, owner) in &self.owners {
            if owners.contains_key(name) {
                continue;
            }
            let count = n_former.entry(&owner.server).or_default();
            *count += 1;
            if *count <= MOST_FORMER {
                owners.insert(Arc::clone(name), owner.clone());
            }
        }
        Self { owners }
    }

    /// The server and the tool that a name was given to.
    pub(crate) fn owner(&self, name: &str) -> Option<(&str, &str)> {
        self.owners.get(name).map(|it| (&*it.server, &*it.tool))
    }

    /// The name itself, if it was ever given, so that it does not move about in memory.
    pub(crate) fn kept(&self, name: &str) -> Option<&Arc<str>> {
        self.owners.get_key_value(name).map(|(name, _)| name)
    }

    /// Whether a server may have a name: nobody had it, or it did.
    pub(crate) fn allows(&self, name: &str, server: &str) -> bool {
        self.owners.get(name).is_none_or(|it| *it.server == *server)
    }
}

#[cfg(test)]
mod tests {
    use toolrack_client::Listing;
    use toolrack_mcp::Tool;

    use super::*;

    fn tools(names: impl Iterator<Item = String>) -> Vec<ToolWithServer> {
        let tool = |name: String| -> Tool {
            let json = serde_json::json!({"name": name, "inputSchema": {"type": "object"}});
            serde_json::from_value(json).unwrap()
        };
        let items: Vec<Tool> = names.map(tool).collect();
        let listing = Arc::new(Listing { items, ..Listing::default() });
        let public = |place: usize| format!("s_{}", listing.items[place].name);
        (0..listing.items.len())
            .map(|it| ToolWithServer::new(&"s".into(), public(it).into(), &listing, it))
            .collect()
    }

    #[test]
    fn a_name_stays_with_its_server_as_long_as_that_exists() {
        let given = Given::default().next(&tools(["a".to_owned()].into_iter()));
        let later = given.next(&[]).of_those(|_| true);
        assert_eq!(later.owner("s_a"), Some(("s", "a")));
        assert!(later.allows("s_a", "s") && !later.allows("s_a", "other"));
        assert!(later.allows("s_b", "other"));
        let gone = later.of_those(|it| it != "s");
        assert!(gone.allows("s_a", "other") && gone.owner("s_a").is_none());
    }

    #[test]
    fn a_server_with_ever_new_names_costs_no_memory() {
        let mut given = Given::default();
        for round in 0..5 {
            let names = (0..1000).map(|it| format!("{round}-{it}"));
            given = given.next(&tools(names));
        }
        assert!(given.owners.len() <= 1000 + MOST_FORMER, "{}", given.owners.len());
    }
}
