//! The tools of one server: which there are, which are let through, and what is odd about the rules.
//!
//! **Invariant:** a name stands for one tool. If a server lists a name twice, the first one counts.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, LazyLock};

use foldhash::HashMap;
use serde_json::value::RawValue;
use toolrack_client::{Listing, McpToolDef};
use toolrack_mcp::Tool;
use toolrack_transport::clean_text;

use crate::tool_filter::{Filter, Rule};

/// A tool together with the server that has it. Cheap to clone.
#[derive(Clone)]
pub struct ToolWithServer {
    server: Arc<str>,
    name: Arc<str>,
    listing: Arc<Listing<Tool>>,
    place: usize,
}

/// The tools of one server, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Toolset {
    listing: Option<Arc<Listing<Tool>>>,
    /// Where the tools stand that are let through, by name.
    open: HashMap<Box<str>, usize>,
    /// The same in the server's order.
    order: Vec<usize>,
    denied: HashMap<Box<str>, Rule>,
    /// Patterns that match no tool.
    unused: Vec<String>,
}

/// How two lists of tools of the same server differ, in names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) added: Vec<Arc<str>>,
    pub(crate) removed: Vec<Arc<str>>,
    pub(crate) changed: Vec<Arc<str>>,
}

impl ToolWithServer {
    pub(crate) fn new(
        server: &Arc<str>,
        name: Arc<str>,
        listing: &Arc<Listing<Tool>>,
        place: usize,
    ) -> Self {
        Self { server: Arc::clone(server), name, listing: Arc::clone(listing), place }
    }

    /// The server that has it.
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }

    /// The public name, by which agents call it.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The tool as its server describes it, under the name that the server gives.
    pub fn tool(&self) -> &Tool {
        /// A place outside of its list would be a bug of ours; nobody has to fall over it.
        static NOTHING: LazyLock<Tool> = LazyLock::new(|| Tool {
            name: String::new(),
            title: None,
            description: None,
            input_schema: RawValue::NULL.to_owned(),
            output_schema: None,
            annotations: None,
            icons: None,
            execution: None,
            meta: None,
        });
        self.listing.items.get(self.place).unwrap_or(&NOTHING)
    }

    /// The tool as an agent needs it: under its public name, with a description that is safe to show.
    pub fn definition(&self) -> McpToolDef {
        let plain = McpToolDef::from(self.tool());
        McpToolDef {
            name: self.name.as_ref().to_owned(),
            description: clean_text(&plain.description).into_owned(),
            ..plain
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

impl Toolset {
    pub(crate) fn new(listing: Option<Arc<Listing<Tool>>>, filter: &Filter) -> Self {
        let mut toolset = Toolset { listing, ..Toolset::default() };
        let Some(listing) = &toolset.listing else { return toolset };
        let mut names = HashSet::new();
        for (place, tool) in listing.items.iter().enumerate() {
            if !names.insert(tool.name.as_str()) {
                continue;
            }
            match filter.verdict(&tool.name) {
                Some(rule) => {
                    toolset.denied.insert(tool.name.as_str().into(), rule);
                }
                None => {
                    toolset.open.insert(tool.name.as_str().into(), place);
                    toolset.order.push(place);
                }
            }
        }
        let names: Vec<&str> = names.into_iter().collect();
        toolset.unused = filter.unused(&names);
        toolset
    }

    /// The list that the server gave, if it is known.
    pub(crate) fn listing(&self) -> Option<&Arc<Listing<Tool>>> {
        self.listing.as_ref()
    }

    /// The tools that are let through, in the server's order, with their places in the list.
    pub(crate) fn open(&self) -> impl Iterator<Item = (usize, &Tool)> {
        let listing = self.listing.as_ref();
        let tool = move |place: &usize| Some((*place, listing?.items.get(*place)?));
        self.order.iter().filter_map(tool)
    }

    pub(crate) fn n_open(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn has(&self, tool: &str) -> bool {
        self.open.contains_key(tool)
    }

    pub(crate) fn denial(&self, tool: &str) -> Option<&Rule> {
        self.denied.get(tool)
    }

    pub(crate) fn unused_patterns(&self) -> &[String] {
        &self.unused
    }

    /// How the open tools differ from those of `before`.
    pub(crate) fn difference(&self, before: &Toolset) -> Difference {
        let old: HashMap<&str, &Tool> =
            before.open().map(|(_, tool)| (tool.name.as_str(), tool)).collect();
        let mut difference = Difference::default();
        for (_, tool) in self.open() {
            match old.get(tool.name.as_str()) {
                None => difference.added.push(tool.name.as_str().into()),
                Some(old) if !is_same(old, tool) => {
                    difference.changed.push(tool.name.as_str().into());
                }
                Some(_) => {}
            }
        }
        let removed = before.open().filter(|(_, tool)| !self.has(&tool.name));
        difference.removed = removed.map(|(_, tool)| tool.name.as_str().into()).collect();
        difference
    }
}

impl Difference {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// Whether two tools are described alike.
fn is_same(one: &Tool, two: &Tool) -> bool {
    fn raw(it: Option<&RawValue>) -> Option<&str> {
        it.map(RawValue::get)
    }
    one.title == two.title
        && one.description == two.description
        && one.annotations == two.annotations
        && one.input_schema.get() == two.input_schema.get()
        && raw(one.output_schema.as_deref()) == raw(two.output_schema.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn listing(tools: &[(&str, &str)]) -> Arc<Listing<Tool>> {
        let tool = |(name, description): &(&str, &str)| -> Tool {
            let json = serde_json::json!({
                "name": name, "description": description, "inputSchema": {"type": "object"},
            });
            serde_json::from_value(json).unwrap()
        };
        Arc::new(Listing { items: tools.iter().map(tool).collect(), ..Listing::default() })
    }

    fn names(toolset: &Toolset) -> Vec<&str> {
        toolset.open().map(|(_, tool)| tool.name.as_str()).collect()
    }

    #[test]
    fn tools_are_let_through_once_and_by_the_rules() {
        let filter = Filter::new(&[], &["b".to_owned(), "bb".to_owned()]);
        let listing = listing(&[("a", ""), ("b", ""), ("a", "again"), ("c", "")]);
        let toolset = Toolset::new(Some(listing), &filter);
        assert_eq!(names(&toolset), ["a", "c"]);
        assert_eq!(toolset.denial("b"), Some(&Rule::Denied { pattern: "b".to_owned() }));
        assert_eq!(toolset.unused_patterns(), ["bb"]);
        assert!(toolset.has("c") && !toolset.has("b"));
    }

    #[test]
    fn lists_are_compared_by_name_and_description() {
        let set = |tools: &[(&str, &str)]| Toolset::new(Some(listing(tools)), &Filter::default());
        let before = set(&[("a", "x"), ("b", "x"), ("c", "x")]);
        let after = set(&[("c", "x"), ("b", "y"), ("d", "x")]);
        let expected = Difference {
            added: vec!["d".into()],
            removed: vec!["a".into()],
            changed: vec!["b".into()],
        };
        assert_eq!(after.difference(&before), expected);
        assert!(after.difference(&after).is_empty());
        assert_eq!(before.difference(&Toolset::default()).added.len(), 3);
    }

    #[test]
    fn a_definition_has_the_public_name_and_a_clean_description() {
        let listing = listing(&[("a.b", "look\u{e0041}\u{1b}[1m here\nand there")]);
        let tool = ToolWithServer::new(&"s".into(), "s_a_b".into(), &listing, 0);
        let definition = tool.definition();
        assert_eq!(definition.name, "s_a_b");
        assert_eq!(definition.description, "look here\nand there");
        assert_eq!(ToolWithServer { place: 9, ..tool }.tool().name, "");
    }
}
