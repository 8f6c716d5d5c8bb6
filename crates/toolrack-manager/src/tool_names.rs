//! Public tool names: how they are generated from the names of servers and tools, and reserved for their server.
//!
//! A base name that could also be read as a tool of another server is given to neither: everything that starts with
//! the name of a server belongs to that server, whether it runs or not. So no server can take a name from another.
//!
//! **Invariant:** the mapping is one to one. It depends only on the names of servers and tools and on earlier
//! reservations, not on the order in which servers were added, nor on which of them run.
//! **Invariant:** while a server is in the config, a name that it was given is given to no other server, even if the
//! server does not run or no longer has the tool.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::HashMapExt as _;
use toolrack_config::ToolNaming;

use crate::server_tools::ToolWithServer;

/// Name of a server, and name of the tool on that server.
pub(crate) type ToolRef<'a> = (&'a str, &'a str);

/// Shortest length limit. A shorter one leaves no room for the digits that make names unique.
const MIN_LENGTH_LIMIT: usize = 24;

/// Numbers of hexadecimal hash digits to try, in this order, if the base name is not unique.
const HASH_DIGITS: [usize; 2] = [8, 16];

/// How many names stay reserved for tools that a server no longer has. Bounds the memory of a server that keeps
/// renaming its tools; it can lose only its own names.
const MAX_FORMER_NAMES: usize = 1024;

/// Generates public names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameGenerator<'a> {
    pub(crate) style: &'a ToolNaming,
    /// All servers, including those without tools.
    pub(crate) servers: &'a [&'a str],
    pub(crate) reservations: &'a NameReservations,
}

/// Public name of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GeneratedName {
    pub(crate) public: String,
    /// The base name, if the tool did not get it because it could mean another server.
    pub(crate) ambiguous: Option<String>,
}

impl NameGenerator<'_> {
    /// Names of `tools`, in their order. The same tool twice gets one name.
    pub(crate) fn name_all(&self, tools: &[ToolRef<'_>]) -> Vec<GeneratedName> {
        let rivals = self.rival_prefixes(tools);
        // Sorted, so that the result does not depend on the order of servers.
        let mut unnamed: Vec<ToolRef<'_>> = tools.to_vec();
        unnamed.sort_unstable();
        unnamed.dedup();
        let mut names: HashMap<ToolRef<'_>, String> = HashMap::with_capacity(unnamed.len());
        let mut taken: HashSet<String> = HashSet::with_capacity(unnamed.len());
        // Base names first, then names with more and more hash digits.
        let rounds = std::iter::once(0).chain(HASH_DIGITS);
        for n_digits in rounds {
            let is_available = |(server, _): ToolRef<'_>, name: &str| {
                let has_no_rival = |prefixes: &Vec<String>| {
                    !prefixes.iter().any(|prefix| name.starts_with(prefix))
                };
                // Only base names must avoid the prefixes: they are what an agent composes from
                // server and tool.
                (n_digits > 0 || rivals.get(server).is_none_or(has_no_rival))
                    && self.reservations.is_available(name, server)
            };
            unnamed = self.assign(unnamed, n_digits, is_available, (&mut names, &mut taken));
        }
        // Only names that were made to collide get here. They are sorted, so their numbers are as stable as the set.
        for tool in unnamed {
            let name = self.numbered(tool, &taken);
            taken.insert(name.clone());
            names.insert(tool, name);
        }
        let generated = |tool: &ToolRef<'_>| {
            let public = names.get(tool)?.clone();
            // A base name over the limit was never offered, so it is not ambiguous but unknown.
            let base = Some(self.base_name(*tool)).filter(|base| base.len() <= self.limit());
            Some(GeneratedName { ambiguous: base.filter(|base| *base != public), public })
        };
        tools.iter().filter_map(generated).collect()
    }

    /// For each server, the prefixes of other servers that its own names could also start with: with servers `db` and
    /// `db_prod`, the tool `prod_query` of `db` must not become `db_prod_query`.
    fn rival_prefixes<'a>(&'a self, tools: &[ToolRef<'a>]) -> HashMap<&'a str, Vec<String>> {
        let mut servers: Vec<&str> = tools.iter().map(|(server, _)| *server).collect();
        // Also servers that do not run or list nothing yet: a name must not depend on which
        // servers are up.
        servers.extend(self.servers);
        servers.sort_unstable();
        servers.dedup();
        let prefixes: Vec<(&str, String)> =
            servers.into_iter().map(|server| (server, self.base_name((server, "")))).collect();
        let rivals_of = |(server, prefix): &(&'a str, String)| {
            let others = prefixes.iter().filter(|(other, _)| other != server);
            let rivals = others.filter(|(_, other)| other.starts_with(prefix.as_str()));
            (*server, rivals.map(|(_, rival)| rival.clone()).collect())
        };
        prefixes.iter().map(rivals_of).collect()
    }

    /// Assigns each tool its candidate with `n_digits` digits, if it is available and no other tool has it or is a
    /// candidate for it. Returns the tools that got no name.
    fn assign<'a>(
        &self,
        unnamed: Vec<ToolRef<'a>>,
        n_digits: usize,
        is_available: impl Fn(ToolRef<'_>, &str) -> bool,
        (names, taken): (&mut HashMap<ToolRef<'a>, String>, &mut HashSet<String>),
    ) -> Vec<ToolRef<'a>> {
        let candidates: Vec<Option<String>> =
            unnamed.iter().map(|tool| self.candidate(*tool, n_digits)).collect();
        // If two tools want the same name neither gets it, or the result would depend on which one comes first.
        let mut n_claims: HashMap<&str, usize> = HashMap::with_capacity(candidates.len());
        for name in candidates.iter().flatten() {
            *n_claims.entry(name.as_str()).or_default() += 1;
        }
        let is_unique = |name: &str| n_claims.get(name) == Some(&1) && !taken.contains(name);
        let is_assigned = |(tool, name): (&ToolRef<'_>, &Option<String>)| {
            name.as_deref().is_some_and(|name| is_unique(name) && is_available(*tool, name))
        };
        let assigned: Vec<bool> = unnamed.iter().zip(&candidates).map(is_assigned).collect();
        let mut rest = Vec::new();
        for ((tool, name), is_assigned) in unnamed.into_iter().zip(candidates).zip(assigned) {
            match name {
                Some(name) if is_assigned => {
                    taken.insert(name.clone());
                    names.insert(tool, name);
                }
                _ => rest.push(tool),
            }
        }
        rest
    }

    /// The base name, if it is short enough, or the name with this many hash digits.
    fn candidate(&self, tool: ToolRef<'_>, n_digits: usize) -> Option<String> {
        let base = self.base_name(tool);
        if n_digits == 0 {
            return (base.len() <= self.limit()).then_some(base);
        }
        let digits = format!("{:016x}", hash(tool));
        Some(self.with_suffix(&base, digits.get(..n_digits).unwrap_or(&digits)))
    }

    /// Server, separator and tool, in characters that every model accepts.
    fn base_name(&self, (server, tool): ToolRef<'_>) -> String {
        sanitize_name(&[server, &self.style.separator, tool].concat())
    }

    fn numbered(&self, tool: ToolRef<'_>, taken: &HashSet<String>) -> String {
        let base = self.base_name(tool);
        let names = (2_u64..).map(|number| self.with_suffix(&base, &number.to_string()));
        let mut available = names
            .filter(|name| !taken.contains(name) && self.reservations.is_available(name, tool.0));
        available.next().unwrap_or_default()
    }

    /// The base name, truncated so that the suffix fits. Base names are ASCII.
    fn with_suffix(&self, base: &str, suffix: &str) -> String {
        let room = self.limit().saturating_sub(suffix.len() + 1);
        let start = base.get(..room.min(base.len())).unwrap_or(base);
        format!("{start}_{suffix}")
    }

    fn limit(&self) -> usize {
        self.style.limit.max(MIN_LENGTH_LIMIT)
    }
}

/// A name in characters that every model accepts.
pub(crate) fn sanitize_name(name: &str) -> String {
    let is_accepted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name.chars().map(|c| if is_accepted(c) { c } else { '_' }).collect()
}

/// FNV-1a. Written out, because a library may change its hash with a release, and names must stay the same.
fn hash((server, tool): ToolRef<'_>) -> u64 {
    // 0xff occurs in no UTF-8 text, so `a` + `bc` and `ab` + `c` differ.
    let bytes = server.bytes().chain([0xff]).chain(tool.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Public names, and the tool that each was last given to. Kept in memory only.
///
/// An agent may still use a name that it saw earlier. If the name moved to another server meanwhile, its call would
/// reach a server that it does not mean.
#[derive(Debug, Default)]
pub(crate) struct NameReservations {
    owners: foldhash::HashMap<Arc<str>, Owner>,
}

#[derive(Debug, Clone)]
struct Owner {
    server: Arc<str>,
    tool: Box<str>,
}

impl NameReservations {
    /// The reservations of servers for which `exists` holds.
    pub(crate) fn for_servers(&self, exists: impl Fn(&str) -> bool) -> Self {
        let kept = self.owners.iter().filter(|(_, owner)| exists(&owner.server));
        Self { owners: kept.map(|(name, owner)| (Arc::clone(name), owner.clone())).collect() }
    }

    /// The reservations after `tools` got their names.
    pub(crate) fn updated(&self, tools: &[ToolWithServer]) -> Self {
        let mut owners = foldhash::HashMap::with_capacity(tools.len().max(self.owners.len()));
        for tool in tools {
            let owner =
                Owner { server: Arc::clone(tool.server()), tool: tool.tool().name.as_str().into() };
            // Current names first: they are never dropped, only former ones count
            // against the limit.
            owners.insert(Arc::clone(tool.name()), owner);
        }
        let mut n_former: foldhash::HashMap<&Arc<str>, usize> = foldhash::HashMap::new();
        for (name, owner) in &self.owners {
            if owners.contains_key(name) {
                continue;
            }
            // Counted per server, so that one server cannot displace the names of another.
            let count = n_former.entry(&owner.server).or_default();
            *count += 1;
            if *count <= MAX_FORMER_NAMES {
                owners.insert(Arc::clone(name), owner.clone());
            }
        }
        Self { owners }
    }

    /// Server and tool that a name was given to.
    pub(crate) fn owner(&self, name: &str) -> Option<(&str, &str)> {
        self.owners.get(name).map(|owner| (&*owner.server, &*owner.tool))
    }

    /// The name as it was allocated before, so that rebuilding the index does not allocate it again.
    pub(crate) fn existing(&self, name: &str) -> Option<&Arc<str>> {
        self.owners.get_key_value(name).map(|(name, _)| name)
    }

    /// Whether a server may get a name: it is not reserved, or reserved for this server.
    pub(crate) fn is_available(&self, name: &str, server: &str) -> bool {
        self.owners.get(name).is_none_or(|owner| *owner.server == *server)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toolrack_client::List;
    use toolrack_mcp::Tool;

    use super::*;

    fn name_all(style: &ToolNaming, tools: &[ToolRef<'_>]) -> Vec<String> {
        let reservations = &NameReservations::default();
        let generator = NameGenerator { style, servers: &[], reservations };
        generator.name_all(tools).into_iter().map(|generated| generated.public).collect()
    }

    #[track_caller]
    fn check(style: &ToolNaming, tools: &[ToolRef<'_>], expected: &[&str]) {
        assert_eq!(name_all(style, tools), expected, "{tools:?}");
    }

    #[test]
    fn public_name_is_server_and_tool() {
        let style = ToolNaming::default();
        check(&style, &[("postgres", "query"), ("git", "log")], &["postgres_query", "git_log"]);
        check(&style, &[("my server", "a.b/c")], &["my_server_a_b_c"]);
        check(&style, &[("größe", "ok")], &["gr__e_ok"]);
        check(&style, &[("", "")], &["_"]);
        let double = ToolNaming { separator: "__".to_owned(), ..ToolNaming::default() };
        check(&double, &[("postgres", "query")], &["postgres__query"]);
    }

    #[test]
    fn colliding_names_get_hash_digits() {
        let style = ToolNaming::default();
        let tools = [("a", "b_c"), ("a_b", "c"), ("a", "other")];
        let names = name_all(&style, &tools);
        assert_eq!(names[2], "a_other");
        assert!(names[0].starts_with("a_b_c_") && names[0].len() == "a_b_c_".len() + 8);
        assert_ne!(names[0], names[1]);
        // A tool whose base name equals the hashed name of another keeps it; the other gets more digits.
        let spoiler = names[0].strip_prefix("a_b_").unwrap();
        let crowded = name_all(&style, &[tools[0], tools[1], ("a_b", spoiler)]);
        assert_eq!((&crowded[2], &crowded[1]), (&names[0], &names[1]));
        assert_eq!(crowded[0].len(), "a_b_c_".len() + 16);
    }

    /// Expects the `tools` that get their base name, among `servers`.
    #[track_caller]
    fn check_base_names(servers: &[&str], tools: &[ToolRef<'_>], expected: &[&str]) {
        let style = ToolNaming::default();
        let reservations = &NameReservations::default();
        let generator = NameGenerator { style: &style, servers, reservations };
        let all = generator.name_all(tools);
        let base_names: Vec<&str> = all
            .iter()
            .filter(|generated| generated.ambiguous.is_none())
            .map(|generated| generated.public.as_str())
            .collect();
        assert_eq!(base_names, expected, "{tools:?}");
    }

    #[test]
    fn name_with_the_prefix_of_another_server_is_not_assigned() {
        let (short, long) = (("db", "prod_query"), ("db_prod", "query"));
        check_base_names(&["db"], &[short], &["db_prod_query"]);
        check_base_names(&["db", "db_prod"], &[long], &["db_prod_query"]);
        // Both have it, and neither gets it; their other tools keep their names.
        check_base_names(
            &["db", "db_prod"],
            &[short, long, ("db", "list"), ("db_prod", "list")],
            &["db_list", "db_prod_list"],
        );
        // The other server does not run, or has no such tool.
        check_base_names(&["db", "db_prod"], &[short], &[]);
        check_base_names(&["db", "db.prod"], &[short], &[]);
        check_base_names(&["db", "db_production"], &[short], &["db_prod_query"]);
        // Two servers with the same sanitized name.
        check_base_names(&["a.b", "a_b"], &[("a.b", "x"), ("a_b", "y")], &[]);
    }

    #[test]
    fn long_names_are_truncated_and_stay_unique() {
        let style = ToolNaming::default();
        let (one, two) = ("x".repeat(70) + "1", "x".repeat(70) + "2");
        let names = name_all(&style, &[("s", &one), ("s", &two), ("s", "short")]);
        assert!(names.iter().all(|name| name.len() <= 64), "{names:?}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 3);
        let exact = "x".repeat(62);
        check(&style, &[("s", &exact)], &[&format!("s_{exact}")]);
        let wide = ToolNaming { limit: 128, ..ToolNaming::default() };
        check(&wide, &[("s", &one)], &[&format!("s_{one}")]);
    }

    #[test]
    fn same_tool_twice_has_one_name() {
        check(&ToolNaming::default(), &[("a", "b"), ("a", "b")], &["a_b", "a_b"]);
    }

    fn arbitrary_tools() -> impl Strategy<Value = Vec<(String, String)>> {
        // Few letters make many collisions; the digits of the hash of ("a", "b_c") are among the tools.
        let word = prop_oneof!["[ab_.ü]{0,4}", "[a-z]{60,80}", "b_c_[0-9a-f]{8}", any::<String>()];
        prop::collection::vec((word.clone(), word), 0..24)
    }

    fn as_refs(tools: &[(String, String)]) -> Vec<ToolRef<'_>> {
        tools.iter().map(|(server, tool)| (server.as_str(), tool.as_str())).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn mapping_is_one_to_one_and_stable(
            tools in arbitrary_tools(),
            limit in 0_usize..140,
            separator in "[_-]{0,3}",
            seed in any::<u64>(),
        ) {
            let style = ToolNaming { separator, limit };
            let tools = as_refs(&tools);
            let names = name_all(&style, &tools);
            prop_assert_eq!(names.len(), tools.len());
            let mut back: HashMap<&str, ToolRef<'_>> = HashMap::new();
            for (name, tool) in names.iter().zip(&tools) {
                prop_assert!(name.len() <= limit.max(MIN_LENGTH_LIMIT));
                prop_assert_eq!(&sanitize_name(name), name);
                let first = *back.entry(name).or_insert(*tool);
                prop_assert_eq!(first, *tool, "{} stands for two tools", name);
            }
            // Any other order gives every tool the same name.
            let mut shuffled: Vec<usize> = (0..tools.len()).collect();
            shuffled.sort_by_key(|at| (seed ^ (*at as u64)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let reordered: Vec<ToolRef<'_>> = shuffled.iter().map(|at| tools[*at]).collect();
            let expected: Vec<&String> = shuffled.iter().map(|at| &names[*at]).collect();
            let renamed = name_all(&style, &reordered);
            prop_assert_eq!(renamed.iter().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn unrelated_tool_changes_no_name(tools in arbitrary_tools()) {
            let style = ToolNaming::default();
            let tools = as_refs(&tools);
            let before = name_all(&style, &tools);
            let with_another: Vec<ToolRef<'_>> =
                tools.iter().copied().chain([("unrelated", "quite-different")]).collect();
            prop_assert_eq!(&name_all(&style, &with_another)[..tools.len()], &before[..]);
        }
    }

    fn tools_named(names: impl Iterator<Item = String>) -> Vec<ToolWithServer> {
        let tool = |name: String| -> Tool {
            let json = serde_json::json!({"name": name, "inputSchema": {"type": "object"}});
            serde_json::from_value(json).unwrap()
        };
        let items: Vec<Tool> = names.map(tool).collect();
        let list = Arc::new(List { items, ..List::default() });
        let public = |place: usize| format!("s_{}", list.items[place].name);
        (0..list.items.len())
            .map(|place| ToolWithServer {
                server: "s".into(),
                name: public(place).into(),
                list: Arc::clone(&list),
                place,
            })
            .collect()
    }

    #[test]
    fn name_is_reserved_while_its_server_exists() {
        let reservations =
            NameReservations::default().updated(&tools_named(["a".to_owned()].into_iter()));
        let later = reservations.updated(&[]).for_servers(|_| true);
        assert_eq!(later.owner("s_a"), Some(("s", "a")));
        assert!(later.is_available("s_a", "s") && !later.is_available("s_a", "other"));
        assert!(later.is_available("s_b", "other"));
        let removed = later.for_servers(|server| server != "s");
        assert!(removed.is_available("s_a", "other") && removed.owner("s_a").is_none());
    }

    #[test]
    fn reservations_of_a_server_are_bounded() {
        let mut reservations = NameReservations::default();
        for round in 0..5 {
            let names = (0..1000).map(|number| format!("{round}-{number}"));
            reservations = reservations.updated(&tools_named(names));
        }
        let n_reserved = reservations.owners.len();
        assert!(n_reserved <= 1000 + MAX_FORMER_NAMES, "{n_reserved}");
    }
}
