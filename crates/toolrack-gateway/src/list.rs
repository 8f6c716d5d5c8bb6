//! The lists of all servers as one: merged, named, and given page by page.
//!
//! **Invariant:** the order is that of the servers and of each server's own list, and it is the same for every
//! client. A URI that several servers list belongs to the first.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use toolrack_manager::{ConnectionState, McpConnection, RackError, ToolWithServer};
use toolrack_mcp::{
    Era, ErrorCode, Listed as _, MetaKey, Prompt, Resource, ResourceTemplate, Revision, Tool,
    is_object_schema, strict_schema,
};
use toolrack_transport::{JsonRpcError, RawJson};

use crate::encode::{Outcome, invalid_params};
use crate::error_mapping as failure;
use crate::gateway::Shared;
use crate::list_cache::{Part, Purpose, fits};
use crate::lock::lock;
use crate::params::Params;
use crate::request::Exchange;
use crate::scope::{Naming, Scope};

/// How long after its beginning a gateway waits for servers that are being started, before it lists their tools.
const FIRST_LIST: Duration = Duration::from_secs(5);

impl Exchange {
    pub(crate) async fn list_tools(&self, params: &Params<'_>) -> Outcome {
        self.shared.settle().await;
        self.shared.manager.refresh().await;
        self.page(Tool::MEMBER, &self.shared.tools(self.era()), params)
    }

    pub(crate) async fn list_prompts(&self, params: &Params<'_>) -> Outcome {
        let Shared { manager, scope, catalogue, .. } = &*self.shared;
        let parts = catalogue.prompts.to_show(manager, scope, self.manner()).await?;
        let named = self.shared.named(&parts);
        let renamed = named.into_iter().map(|(name, (_, prompt))| Prompt { name, ..prompt });
        self.page(Prompt::MEMBER, &written(renamed), params)
    }

    pub(crate) async fn list_resources(&self, params: &Params<'_>) -> Outcome {
        let Shared { manager, scope, catalogue, .. } = &*self.shared;
        let parts = catalogue.resources.to_show(manager, scope, self.manner()).await?;
        let listed = first_of_each(&parts, |it: &Resource| &it.uri);
        self.page(Resource::MEMBER, &written(listed), params)
    }

    pub(crate) async fn list_templates(&self, params: &Params<'_>) -> Outcome {
        let Shared { manager, scope, catalogue, .. } = &*self.shared;
        let parts = catalogue.templates.to_show(manager, scope, self.manner()).await?;
        let listed = first_of_each(&parts, |it: &ResourceTemplate| &it.uri_template);
        self.page(ResourceTemplate::MEMBER, &written(listed), params)
    }

    /// One page, as the revision of the client has it.
    fn page(&self, member: &str, entries: &[Bytes], params: &Params<'_>) -> Outcome {
        let (from, to) =
            cut(entries.len(), params.cursor.as_deref(), self.shared.options.page_size)?;
        let shown = entries.get(from..to).unwrap_or_default();
        let mut out = format!(r#"{{"{member}":["#).into_bytes();
        out.extend_from_slice(&shown.join(&b','));
        out.push(b']');
        if to < entries.len() {
            out.extend_from_slice(format!(r#","nextCursor":"{}""#, cursor(to)).as_bytes());
        }
        if self.era() == Era::Modern {
            let info = self.shared.server_info(self.caller.revision);
            let meta = json!({ MetaKey::SERVER_INFO: info });
            let tail = r#","resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":"#;
            out.extend_from_slice(format!("{tail}{meta}").as_bytes());
        }
        out.push(b'}');
        Ok(RawJson::new(out))
    }
}

/// A cursor that says where a page begins.
fn cursor(at: usize) -> String {
    format!("from-{at}")
}

/// Where a page begins and ends.
fn cut(
    n_entries: usize,
    wanted: Option<&str>,
    page_size: usize,
) -> Result<(usize, usize), JsonRpcError> {
    let from = match wanted {
        None => Some(0),
        Some(text) => text.strip_prefix("from-").and_then(|it| it.parse().ok()),
    };
    let from =
        from.filter(|it| *it <= n_entries).ok_or_else(|| invalid_params("Invalid cursor"))?;
    Ok((from, n_entries.min(from.saturating_add(page_size.max(1)))))
}

fn written<T: Serialize>(entries: impl IntoIterator<Item = T>) -> Vec<Bytes> {
    let written = entries.into_iter().filter_map(|it| serde_json::to_vec(&it).ok());
    written.map(Bytes::from).collect()
}

fn first_of_each<T>(parts: &[Part<T>], key: impl Fn(&T) -> &str) -> Vec<&T> {
    let mut seen = HashSet::new();
    let all = parts.iter().flat_map(|(_, listing)| &listing.items);
    all.filter(|it| seen.insert(key(it).to_owned())).collect()
}

/// Prompts by the names that clients see, in their order, with the servers they are of.
type NamedPrompts = Vec<(String, (String, Prompt))>;

impl Shared {
    /// The tools as they are listed. Written once for each list of the manager.
    fn tools(&self, era: Era) -> Arc<[Bytes]> {
        let tools = self.manager.all_tools();
        let mut kept = lock(&self.written_tools);
        if !kept.as_ref().is_some_and(|(of, ..)| Arc::ptr_eq(of, &tools)) {
            let naming = self.scope.naming();
            let seen: Vec<Tool> = tools
                .iter()
                .filter(|it| self.scope.has(it.server()))
                .map(|it| shown(it, naming))
                .collect();
            let modern = written(&seen);
            let legacy = seen.iter().zip(&modern).map(|(tool, written)| for_legacy(tool, written));
            let legacy = legacy.collect();
            *kept = Some((tools, modern.into(), legacy));
        }
        let listed = kept.as_ref().map(|(_, modern, legacy)| match era {
            Era::Modern => Arc::clone(modern),
            Era::Legacy => Arc::clone(legacy),
        });
        listed.unwrap_or_default()
    }

    /// Waits for servers that are only being started, while the gateway is new: a list without their tools would be
    /// taken for all there is. Later on, what comes is told when it comes.
    async fn settle(&self) {
        let left = FIRST_LIST.saturating_sub(self.began.elapsed());
        if !left.is_zero() {
            self.manager.ready(left).await;
        }
    }

    /// The same as [`tool`](Self::tool), after a look at servers that do not tell when their tools change.
    pub(crate) async fn tool_of_now(&self, name: &str) -> Result<(String, String), JsonRpcError> {
        match self.tool(name) {
            Ok(found) => Ok(found),
            Err(_unknown) => {
                self.settle().await;
                self.manager.refresh().await;
                self.tool(name)
            }
        }
    }

    /// The server and the name there of a tool that a client knows.
    pub(crate) fn tool(&self, name: &str) -> Result<(String, String), JsonRpcError> {
        if let Scope::Server(server) = &self.scope {
            return Ok((server.clone(), name.to_owned()));
        }
        let found = self.manager.find_tool(name);
        let found = found.filter(|it| **it.name() == *name && self.scope.has(it.server()));
        let found = found.map(|it| ((**it.server()).to_owned(), it.tool().name.clone()));
        found.ok_or_else(|| match self.stopped(name) {
            Some(error) => failure::of_rack(error, self.manner(Era::Modern)),
            None => invalid_params(format!("Unknown tool: {name}")),
        })
    }

    /// Why a tool cannot be called that is not listed, if the only server that could have it does not run.
    fn stopped(&self, name: &str) -> Option<RackError> {
        let servers = self.servers();
        let has = |it: &&Arc<McpConnection>| {
            let tools = it.tool_names();
            let raw: Vec<_> = tools.iter().map(|tool| (it.name(), tool.as_str())).collect();
            self.manager.public_names(&raw).iter().any(|it| it == name)
        };
        let mut having = servers.iter().filter(has);
        let server = having.next().filter(|it| it.client().is_none())?;
        let (server, state) = (server.name().to_owned(), server.state().clone());
        having.next().is_none().then_some(RackError::NotConnected { server, state })
    }

    async fn prompts(&self, purpose: Purpose) -> NamedPrompts {
        self.named(&self.catalogue.prompts.of_all(&self.manager, &self.scope, purpose).await)
    }

    fn named(&self, parts: &[Part<Prompt>]) -> NamedPrompts {
        let all: Vec<(&str, &Prompt)> = parts
            .iter()
            .flat_map(|(server, listing)| listing.items.iter().map(move |it| (server.as_str(), it)))
            .collect();
        let names = match self.scope.naming() {
            Naming::Raw => all.iter().map(|(_, it)| it.name.clone()).collect(),
            Naming::Public => {
                let raw: Vec<_> =
                    all.iter().map(|(server, it)| (*server, it.name.as_str())).collect();
                self.manager.public_names(&raw)
            }
        };
        let prompts = all.into_iter().map(|(server, it)| (server.to_owned(), it.clone()));
        names.into_iter().zip(prompts).collect()
    }

    /// The server and the name there of a prompt that a client knows.
    pub(crate) async fn prompt(&self, name: &str) -> Result<(String, String), JsonRpcError> {
        if let Scope::Server(server) = &self.scope {
            return Ok((server.clone(), name.to_owned()));
        }
        for purpose in [Purpose::Way, Purpose::Show] {
            let found = self.prompts(purpose).await.into_iter().find(|(public, _)| public == name);
            if let Some((_, (server, prompt))) = found {
                return Ok((server, prompt.name));
            }
        }
        Err(invalid_params(format!("Unknown prompt: {name}")))
    }

    /// The servers that may have a resource: the one that lists it, or else those whose templates fit best, or else
    /// all that have resources. Who has it by that has the last word on it.
    pub(crate) async fn owners(&self, uri: &str) -> Vec<String> {
        let known = self.known_owners(uri).await;
        if !known.is_empty() {
            return known;
        }
        let resources = &self.catalogue.resources;
        let listed = resources.of_all(&self.manager, &self.scope, Purpose::Way).await;
        listed.into_iter().map(|(server, _)| server).collect()
    }

    /// The same without those that say nothing of it.
    async fn known_owners(&self, uri: &str) -> Vec<String> {
        if let Scope::Server(server) = &self.scope {
            return vec![server.clone()];
        }
        let (manager, scope) = (&self.manager, &self.scope);
        let listed = self.catalogue.resources.of_all(manager, scope, Purpose::Way).await;
        let first = listed.iter().find(|(_, it)| it.items.iter().any(|it| it.uri == uri));
        if let Some((server, _)) = first {
            return vec![server.clone()];
        }
        let templates = self.catalogue.templates.of_all(manager, scope, Purpose::Way).await;
        let fitting = templates.iter().filter_map(|(server, listing)| {
            let best = listing.items.iter().filter_map(|it| fits(&it.uri_template, uri)).max();
            Some((server.as_str(), best?))
        });
        of_best_fit(fitting)
    }

    /// The server to subscribe to a resource at. While some are being started, one that says nothing of the resource
    /// is not taken for its owner, for that would be remembered.
    pub(crate) async fn teller(&self, uri: &str) -> Result<String, JsonRpcError> {
        let is_starting = |it: &Arc<McpConnection>| *it.state() == ConnectionState::Connecting;
        match self.known_owners(uri).await.into_iter().next() {
            Some(owner) => Ok(owner),
            None if self.servers().iter().any(is_starting) => {
                Err(no_resource(uri, Revision::LATEST))
            }
            None => self.owner(uri).await,
        }
    }

    /// The server that a resource most likely belongs to.
    pub(crate) async fn owner(&self, uri: &str) -> Result<String, JsonRpcError> {
        self.owners(uri).await.into_iter().next().ok_or_else(|| no_resource(uri, Revision::LATEST))
    }
}

/// The servers whose templates spell out most. One that begins with a variable says nothing of whose it is.
fn of_best_fit<'a>(fitting: impl Iterator<Item = (&'a str, usize)>) -> Vec<String> {
    let mut by_fit = BTreeMap::<usize, Vec<String>>::new();
    for (server, length) in fitting.filter(|(_, length)| *length > 0) {
        by_fit.entry(length).or_default().push(server.to_owned());
    }
    by_fit.into_values().next_back().unwrap_or_default()
}

/// Spec 2026-07-28, resources §Error Handling: another code than before.
pub(crate) fn no_resource(uri: &str, revision: Revision) -> JsonRpcError {
    let code = match revision.era() {
        Era::Legacy => ErrorCode::RESOURCE_NOT_FOUND,
        Era::Modern => ErrorCode::INVALID_PARAMS,
    };
    let data = Some(json!({ "uri": uri }));
    JsonRpcError { data, ..JsonRpcError::new(code.0, format!("Resource not found: {uri}")) }
}

fn shown(tool: &ToolWithServer, naming: Naming) -> Tool {
    let name = match naming {
        Naming::Raw => tool.tool().name.clone(),
        Naming::Public => (**tool.name()).to_owned(),
    };
    // What it says of tasks is between its server and us: through us it is called like every other.
    let tool = tool.tool().clone();
    let input_schema = strict_schema(&tool.input_schema).into_owned();
    Tool { name, input_schema, execution: None, ..tool }
}

/// Before 2026-07-28 a schema of results was one of an object, and clients refuse the whole list for another.
fn for_legacy(tool: &Tool, written: &Bytes) -> Bytes {
    match &tool.output_schema {
        Some(schema) if !is_object_schema(schema) => {
            let plain = Tool { output_schema: None, ..tool.clone() };
            serde_json::to_vec(&plain).map_or_else(|_never| written.clone(), Bytes::from)
        }
        _ => written.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other() {
        let check = |n_entries, wanted: Option<&str>, expected: Option<(usize, usize)>| {
            assert_eq!(cut(n_entries, wanted, 3).ok(), expected, "{n_entries} {wanted:?}");
        };
        check(0, None, Some((0, 0)));
        check(3, None, Some((0, 3)));
        check(7, None, Some((0, 3)));
        check(7, Some("from-3"), Some((3, 6)));
        check(7, Some("from-6"), Some((6, 7)));
        check(7, Some("from-7"), Some((7, 7)));
        check(7, Some("from-8"), None);
        check(7, Some(""), None);
        check(7, Some("3"), None);
        assert_eq!(cut(7, Some(&cursor(3)), 3).unwrap(), (3, 6));
    }

    #[test]
    fn those_with_the_best_template_have_the_last_word() {
        let check = |fitting: &[(&'static str, usize)], expected: &[&str]| {
            assert_eq!(of_best_fit(fitting.iter().copied()), expected, "{fitting:?}");
        };
        check(&[("a", 3), ("b", 9)], &["b"]);
        check(&[("a", 9), ("b", 9), ("c", 0)], &["a", "b"]);
        check(&[("a", 0)], &[]);
        check(&[], &[]);
    }

    #[test]
    fn a_schema_of_results_that_is_new_is_kept_from_old_clients() {
        let check = |schema: &str, expected: &str| {
            let json = format!(r#"{{"name":"a","inputSchema":{{}}{schema}}}"#);
            let tool: Tool = serde_json::from_str(&json).unwrap();
            assert_eq!(for_legacy(&tool, &Bytes::from_static(b"as it was")), expected);
        };
        check("", "as it was");
        check(r#","outputSchema":{"type":"object"}"#, "as it was");
        check(r#","outputSchema":{"type":"array"}"#, r#"{"name":"a","inputSchema":{}}"#);
    }

    #[test]
    fn a_missing_resource_has_the_code_of_its_era() {
        assert_eq!(no_resource("u:", Revision::R2025_11_25).code, -32002);
        assert_eq!(no_resource("u:", Revision::R2026_07_28).code, -32602);
    }
}
