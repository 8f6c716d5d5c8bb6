//! Public names of tools: what agents see, and how it is made from what servers say.
//!
//! Where a plain name could be read as that of a tool of another server, nobody gets it. What begins with the name
//! of a server is for that server alone, whether it runs or not, so no server can take a name from another one.
//!
//! **Invariant:** the mapping is one to one, and depends on nothing but the names of servers and tools, and who was
//! given which name before: not on the order in which servers came, nor on whether they run.

use std::collections::{HashMap, HashSet};

use toolrack_config::Names;

use crate::name_reservations::Given;

/// What a tool is called where it lives: server and tool, as they are.
pub(crate) type ToolRef<'a> = (&'a str, &'a str);

/// A shorter limit leaves no room for the digits that keep names apart.
const LEAST_LIMIT: usize = 24;

/// How many hexadecimal digits are tried, in this order, where the plain name does not do.
const DIGITS: [usize; 2] = [8, 16];

/// Makes names in the style that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Namer<'a> {
    pub(crate) style: &'a Names,
    /// All servers there are, also those without tools.
    pub(crate) servers: &'a [&'a str],
    /// Who was given which name before.
    pub(crate) given: &'a Given,
}

/// What a tool is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) public: String,
    /// The plain name, if the tool does not have it because another server might be meant by it.
    pub(crate) contested: Option<String>,
}

impl Namer<'_> {
    /// The names of `tools`, in their order. The same tool twice gets one name.
    pub(crate) fn name_all(&self, tools: &[ToolRef<'_>]) -> Vec<Named> {
        let rivals = self.rivals(tools);
        let mut open: Vec<ToolRef<'_>> = tools.to_vec();
        open.sort_unstable();
        open.dedup();
        let mut names: HashMap<ToolRef<'_>, String> = HashMap::with_capacity(open.len());
        let mut taken: HashSet<String> = HashSet::with_capacity(open.len());
        let rounds = std::iter::once(0).chain(DIGITS);
        for n_digits in rounds {
            let is_free = |(server, _): ToolRef<'_>, name: &str| {
                let is_meant = |it: &Vec<String>| !it.iter().any(|it| name.starts_with(it));
                (n_digits > 0 || rivals.get(server).is_none_or(is_meant))
                    && self.given.allows(name, server)
            };
            open = self.settle(open, n_digits, is_free, (&mut names, &mut taken));
        }
        // Only names made to collide come here. They are sorted, so numbers are as stable as the set.
        for tool in open {
            let name = self.numbered(tool, &taken);
            taken.insert(name.clone());
            names.insert(tool, name);
        }
        let settled = |tool: &ToolRef<'_>| {
            let public = names.get(tool)?.clone();
            let plain = Some(self.plain(*tool)).filter(|it| it.len() <= self.limit());
            Some(Named { contested: plain.filter(|it| *it != public), public })
        };
        tools.iter().filter_map(settled).collect()
    }

    /// What names of other servers begin with that could also be the beginning of a name of this one.
    fn rivals<'a>(&'a self, tools: &[ToolRef<'a>]) -> HashMap<&'a str, Vec<String>> {
        let mut servers: Vec<&str> = tools.iter().map(|(server, _)| *server).collect();
        servers.extend(self.servers);
        servers.sort_unstable();
        servers.dedup();
        let prefixes: Vec<(&str, String)> =
            servers.into_iter().map(|it| (it, self.plain((it, "")))).collect();
        let rivals_of = |(server, prefix): &(&'a str, String)| {
            let others = prefixes.iter().filter(|(other, _)| other != server);
            let rivals = others.filter(|(_, it)| it.starts_with(prefix.as_str()));
            (*server, rivals.map(|(_, it)| it.clone()).collect())
        };
        prefixes.iter().map(rivals_of).collect()
    }

    /// Lets every tool propose a name. Those that are free, that nobody else proposes and nobody has, are settled;
    /// gives the others.
    fn settle<'a>(
        &self,
        open: Vec<ToolRef<'a>>,
        n_digits: usize,
        is_free: impl Fn(ToolRef<'_>, &str) -> bool,
        (names, taken): (&mut HashMap<ToolRef<'a>, String>, &mut HashSet<String>),
    ) -> Vec<ToolRef<'a>> {
        let proposals: Vec<Option<String>> =
            open.iter().map(|tool| self.propose(*tool, n_digits)).collect();
        let mut n_proposers: HashMap<&str, usize> = HashMap::with_capacity(proposals.len());
        for name in proposals.iter().flatten() {
            *n_proposers.entry(name.as_str()).or_default() += 1;
        }
        let is_alone = |name: &str| n_proposers.get(name) == Some(&1) && !taken.contains(name);
        let is_settled = |(tool, name): (&ToolRef<'_>, &Option<String>)| {
            name.as_deref().is_some_and(|name| is_alone(name) && is_free(*tool, name))
        };
        let settled: Vec<bool> = open.iter().zip(&proposals).map(is_settled).collect();
        let mut left = Vec::new();
        for ((tool, name), is_settled) in open.into_iter().zip(proposals).zip(settled) {
            match name {
                Some(name) if is_settled => {
                    taken.insert(name.clone());
                    names.insert(tool, name);
                }
                _ => left.push(tool),
            }
        }
        left
    }

    /// The plain name, if it is short enough, or the name with so many digits.
    fn propose(&self, tool: ToolRef<'_>, n_digits: usize) -> Option<String> {
        let plain = self.plain(tool);
        if n_digits == 0 {
            return (plain.len() <= self.limit()).then_some(plain);
        }
        let digits = format!("{:016x}", hash(tool));
        Some(self.cut(&plain, digits.get(..n_digits).unwrap_or(&digits)))
    }

    fn plain(&self, (server, tool): ToolRef<'_>) -> String {
        let separator = self.style.separator.chars();
        server.chars().chain(separator).chain(tool.chars()).map(allowed).collect()
    }

    fn numbered(&self, tool: ToolRef<'_>, taken: &HashSet<String>) -> String {
        let plain = self.plain(tool);
        let names = (2_u64..).map(|number| self.cut(&plain, &number.to_string()));
        let mut free =
            names.filter(|name| !taken.contains(name) && self.given.allows(name, tool.0));
        free.next().unwrap_or_default()
    }

    /// As much of `plain` as there is room for before the suffix. Plain names are ASCII.
    fn cut(&self, plain: &str, suffix: &str) -> String {
        let room = self.limit().saturating_sub(suffix.len() + 1);
        let start = plain.get(..room.min(plain.len())).unwrap_or(plain);
        format!("{start}_{suffix}")
    }

    fn limit(&self) -> usize {
        self.style.limit.max(LEAST_LIMIT)
    }
}

/// A name in letters that every model accepts.
pub(crate) fn plainly(name: &str) -> String {
    name.chars().map(allowed).collect()
}

/// What every model accepts in a name.
fn allowed(character: char) -> char {
    match character {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' => character,
        _ => '_',
    }
}

/// FNV-1a, because names must stay the same with the next release of whatever library.
fn hash((server, tool): ToolRef<'_>) -> u64 {
    // A byte that is in no text keeps `a` + `bc` and `ab` + `c` apart.
    let bytes = server.bytes().chain([0xff]).chain(tool.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name_all(style: &Names, tools: &[ToolRef<'_>]) -> Vec<String> {
        beside(style, &[], tools)
    }

    fn beside(style: &Names, servers: &[&str], tools: &[ToolRef<'_>]) -> Vec<String> {
        let namer = Namer { style, servers, given: &Given::default() };
        namer.name_all(tools).into_iter().map(|it| it.public).collect()
    }

    #[track_caller]
    fn check(style: &Names, tools: &[ToolRef<'_>], expected: &[&str]) {
        assert_eq!(name_all(style, tools), expected, "{tools:?}");
    }

    #[test]
    fn a_public_name_is_the_server_and_the_tool() {
        let style = Names::default();
        check(&style, &[("postgres", "query"), ("git", "log")], &["postgres_query", "git_log"]);
        check(&style, &[("my server", "a.b/c")], &["my_server_a_b_c"]);
        check(&style, &[("größe", "ok")], &["gr__e_ok"]);
        check(&style, &[("", "")], &["_"]);
        let double = Names { separator: "__".to_owned(), ..Names::default() };
        check(&double, &[("postgres", "query")], &["postgres__query"]);
    }

    #[test]
    fn names_that_would_be_equal_are_told_apart_by_digits() {
        let style = Names::default();
        let tools = [("a", "b_c"), ("a_b", "c"), ("a", "other")];
        let names = name_all(&style, &tools);
        assert_eq!(names[2], "a_other");
        assert!(names[0].starts_with("a_b_c_") && names[0].len() == "a_b_c_".len() + 8);
        assert_ne!(names[0], names[1]);
        // Whoever is named like the digits of another keeps its name, and the other gets more digits.
        let spoiler = names[0].strip_prefix("a_b_").unwrap();
        let crowded = name_all(&style, &[tools[0], tools[1], ("a_b", spoiler)]);
        assert_eq!((&crowded[2], &crowded[1]), (&names[0], &names[1]));
        assert_eq!(crowded[0].len(), "a_b_c_".len() + 16);
    }

    /// Which of `tools` have a plain name beside all of `servers`.
    #[track_caller]
    fn check_plain(servers: &[&str], tools: &[ToolRef<'_>], expected: &[&str]) {
        let style = Names::default();
        let namer = Namer { style: &style, servers, given: &Given::default() };
        let all = namer.name_all(tools);
        let plain = all.iter().filter(|it| it.contested.is_none());
        assert_eq!(plain.map(|it| it.public.as_str()).collect::<Vec<_>>(), expected, "{tools:?}");
    }

    #[test]
    fn what_begins_like_another_server_is_not_given_to_this_one() {
        let (short, long) = (("db", "prod_query"), ("db_prod", "query"));
        check_plain(&["db"], &[short], &["db_prod_query"]);
        check_plain(&["db", "db_prod"], &[long], &["db_prod_query"]);
        // Both have it, and nobody gets it; the others of both keep theirs.
        check_plain(
            &["db", "db_prod"],
            &[short, long, ("db", "list"), ("db_prod", "list")],
            &["db_list", "db_prod_list"],
        );
        // The other one does not run, or does not have such a tool.
        check_plain(&["db", "db_prod"], &[short], &[]);
        check_plain(&["db", "db.prod"], &[short], &[]);
        check_plain(&["db", "db_production"], &[short], &["db_prod_query"]);
        // Two servers that are written alike in public names.
        check_plain(&["a.b", "a_b"], &[("a.b", "x"), ("a_b", "y")], &[]);
    }

    #[test]
    fn long_names_are_cut_and_told_apart() {
        let style = Names::default();
        let (one, two) = ("x".repeat(70) + "1", "x".repeat(70) + "2");
        let names = name_all(&style, &[("s", &one), ("s", &two), ("s", "short")]);
        assert!(names.iter().all(|name| name.len() <= 64), "{names:?}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 3);
        let exact = "x".repeat(62);
        check(&style, &[("s", &exact)], &[&format!("s_{exact}")]);
        let wide = Names { limit: 128, ..Names::default() };
        check(&wide, &[("s", &one)], &[&format!("s_{one}")]);
    }

    #[test]
    fn the_same_tool_twice_has_one_name() {
        check(&Names::default(), &[("a", "b"), ("a", "b")], &["a_b", "a_b"]);
    }

    fn tools() -> impl Strategy<Value = Vec<(String, String)>> {
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
        fn the_mapping_is_one_to_one_and_stable(
            tools in tools(),
            limit in 0_usize..140,
            separator in "[_-]{0,3}",
            seed in any::<u64>(),
        ) {
            let style = Names { separator, limit };
            let tools = as_refs(&tools);
            let names = name_all(&style, &tools);
            prop_assert_eq!(names.len(), tools.len());
            let mut back: HashMap<&str, ToolRef<'_>> = HashMap::new();
            for (name, tool) in names.iter().zip(&tools) {
                prop_assert!(name.len() <= limit.max(LEAST_LIMIT));
                prop_assert!(name.chars().all(|it| allowed(it) == it));
                let first = *back.entry(name).or_insert(*tool);
                prop_assert_eq!(first, *tool, "{} stands for two tools", name);
            }
            // Any other order gives every tool the same name.
            let mut shuffled: Vec<usize> = (0..tools.len()).collect();
            shuffled.sort_by_key(|it| (seed ^ (*it as u64)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let reordered: Vec<ToolRef<'_>> = shuffled.iter().map(|it| tools[*it]).collect();
            let expected: Vec<&String> = shuffled.iter().map(|it| &names[*it]).collect();
            let renamed = name_all(&style, &reordered);
            prop_assert_eq!(renamed.iter().collect::<Vec<_>>(), expected);
        }

        /// A server that comes along changes no name, unless one of its tools is named like it.
        #[test]
        fn names_do_not_depend_on_tools_that_are_named_otherwise(tools in tools()) {
            let style = Names::default();
            let tools = as_refs(&tools);
            let before = name_all(&style, &tools);
            let with_another: Vec<ToolRef<'_>> =
                tools.iter().copied().chain([("unheard-of", "quite-different")]).collect();
            prop_assert_eq!(&name_all(&style, &with_another)[..tools.len()], &before[..]);
        }
    }
}
