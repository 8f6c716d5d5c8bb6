//! The tools of a server whose arguments are said beside the message too.
//!
//! **Invariant:** a server without such tools costs a call one look at an empty place.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use toolrack_mcp::{Mirror, Skipped, Tool};

use crate::lock::lock;
use crate::pagination::Listing;

/// What is mirrored, by the name of the tool.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    any: AtomicBool,
    by_tool: Mutex<HashMap<String, Arc<Mirror>>>,
}

impl Mirrors {
    pub(crate) fn of(&self, tool: Option<&str>) -> Option<Arc<Mirror>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.by_tool).get(tool?).map(Arc::clone)
    }

    /// Takes the place of what was known before.
    ///
    /// Spec 2026-07-28, transports §Custom Headers: tools whose annotations break the rules are left
    /// out of the list, and somebody is told.
    pub(crate) fn sift(&self, listing: &mut Listing<Tool>) {
        let mut by_tool = HashMap::new();
        let mut index = 0;
        let skipped = &mut listing.skipped;
        listing.items.retain(|tool| {
            index += 1;
            match Mirror::of(&tool.input_schema) {
                Ok(None) => true,
                Ok(Some(mirror)) => {
                    by_tool.insert(tool.name.clone(), Arc::new(mirror));
                    true
                }
                Err(fault) => {
                    tracing::warn!(tool = tool.name, %fault, "a tool was left out");
                    let (name, reason) = (Some(tool.name.clone()), fault.to_string());
                    skipped.push(Skipped { index: index - 1, name, reason });
                    false
                }
            }
        });
        self.any.store(!by_tool.is_empty(), Ordering::Release);
        *lock(&self.by_tool) = by_tool;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, header: &str) -> Tool {
        let properties = json!({"a": {"type": "string", "x-mcp-header": header}});
        let schema = json!({"type": "object", "properties": properties});
        serde_json::from_value(json!({"name": name, "inputSchema": schema})).unwrap()
    }

    #[test]
    fn bad_tools_are_left_out_and_good_ones_remembered() {
        let items = vec![tool("good", "A"), tool("bad", "A b")];
        let mut listing = Listing { items, ..Listing::default() };
        let mirrors = Mirrors::default();
        mirrors.sift(&mut listing);
        let names: Vec<&str> = listing.items.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["good"]);
        let [skipped] = listing.skipped.as_slice() else { panic!("{:?}", listing.skipped) };
        assert_eq!((skipped.index, skipped.name.as_deref()), (1, Some("bad")));
        assert!(mirrors.of(Some("good")).is_some());
        assert!(mirrors.of(Some("bad")).is_none());
        mirrors.sift(&mut Listing::default());
        assert!(mirrors.of(Some("good")).is_none());
    }
}
