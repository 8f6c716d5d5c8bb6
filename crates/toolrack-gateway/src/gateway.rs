//! `Gateway`: all servers of a manager behind one MCP endpoint, and the state that its clients share.
//!
//! Also decides which server a tool, prompt or resource belongs to ([`Shared::resolve_tool`],
//! [`Shared::resolve_prompt`], [`Shared::resource_servers`]).
//!
//! **Invariant:** every task of a gateway ends when the gateway is closed or its last handle is dropped.
//! **Invariant:** a client sees only servers in its [`Scope`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use toolrack_manager::{ConnectionState, ManagerError, McpConnection, McpManager, ToolWithServer};
use toolrack_mcp::{
    Era, ErrorCode, Implementation, ListKind, LogLevel, Method, ParamHeaders, Prompt, Revision,
    ServerCapabilities, Tool, is_object_schema, strict_schema,
};
use toolrack_transport::{JsonRpcError, sanitize_line, strip_hidden_json};
use uuid::Uuid;

use crate::change_notifier;
use crate::encode::invalid_params;
use crate::error_mapping::{self, ErrorStyle};
use crate::forward::SuspendedRequests;
use crate::list_cache::{ListCache, MAX_ROUTING_AGE, ServerList};
use crate::params::check_uri;
use crate::resource_owner::{Claims, NoOwner, find_owners, list_of, server_that_lists};
use crate::server_requests::ServerRequestRouter;
use crate::subscriptions::{ResourceSubscriptions, Subscriber, WeakList};

/// How long `close` waits for tasks to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long after its start a gateway waits for connecting servers before it lists their tools.
const STARTUP_WAIT: Duration = Duration::from_secs(5);
/// Characters of an unknown name or URI in a message.
const MAX_SHOWN_CHARS: usize = 200;
/// How long a server may take to set its log level.
const SET_LEVEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of a [`Gateway`].
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Name and version that clients see.
    pub server_info: Implementation,
    /// Entries per page of a list.
    pub page_size: usize,
    /// Requests of one client that run at once. Further ones are queued.
    pub max_in_flight: usize,
    /// Queued requests of one client. Further ones are rejected.
    pub max_queued: usize,
    /// Requests of modern clients that are suspended until the client responds to a legacy server. Further ones are
    /// rejected.
    pub max_suspended: usize,
    /// How long a client may take to respond to a server request.
    pub client_response_timeout: Duration,
    /// Size limit of a message from a client.
    pub max_message_bytes: usize,
    /// How long a client on stdio may leave its messages unread before it is disconnected.
    pub write_timeout: Duration,
    /// Kind of servers behind the gateway.
    pub upstream: Upstream,
}

/// Kind of servers behind a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Upstream {
    /// MCP servers, which are not trusted.
    #[default]
    Servers,
    /// One other Toolrack gateway, such as a daemon. It is told which requests belong to the same client, and its
    /// error data is trusted.
    Gateway,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        let server_info = Implementation {
            name: "toolrack".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Implementation::default()
        };
        Self {
            server_info,
            page_size: 1_000,
            max_in_flight: 256,
            max_queued: 1_024,
            max_suspended: 256,
            client_response_timeout: Duration::from_mins(5),
            max_message_bytes: 32 << 20,
            write_timeout: Duration::from_mins(10),
            upstream: Upstream::default(),
        }
    }
}

/// The servers that an endpoint shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// All servers. Tools and prompts have names that are unique across servers.
    #[default]
    All,
    /// One server. Its tools and prompts have their own names.
    Server(String),
}

impl Scope {
    /// Whether the endpoint shows this server.
    pub fn contains(&self, server: &str) -> bool {
        match self {
            Scope::All => true,
            Scope::Server(name) => name == server,
        }
    }
}

/// The servers of a manager behind one MCP endpoint. Clones are handles of the same gateway.
#[derive(Debug, Clone)]
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
    _stop: Arc<DropGuard>,
}

impl Gateway {
    /// Creates a gateway in front of `manager`. Pass the same `router` to the manager as its handler, so that server
    /// requests reach clients, and [`ServerRequestRouter::limits`] as its limits. Call it within a Tokio runtime.
    pub fn new(manager: Arc<McpManager>, router: Arc<ServerRequestRouter>, scope: Scope) -> Self {
        Self::with_options(manager, router, scope, GatewayOptions::default())
    }

    /// Creates a gateway with the given options.
    pub fn with_options(
        manager: Arc<McpManager>,
        router: Arc<ServerRequestRouter>,
        scope: Scope,
        options: GatewayOptions,
    ) -> Self {
        let stop = CancellationToken::new();
        let guard = Arc::new(stop.clone().drop_guard());
        let suspended =
            SuspendedRequests::new(options.max_suspended, options.client_response_timeout);
        let shared = Arc::new(Shared {
            manager,
            router,
            scope: Arc::new(scope),
            instance_id: Uuid::new_v4().simple().to_string(),
            suspended,
            options,
            subscribers: WeakList::default(),
            list_cache: ListCache::default(),
            subscriptions: ResourceSubscriptions::default(),
            encoded_tools: Mutex::default(),
            started: Instant::now(),
            tracker: TaskTracker::new(),
            draining: stop.child_token(),
            stop,
        });
        // Subscribed before the task starts, so that no event is lost in between.
        let events = shared.manager.subscribe();
        shared.tracker.spawn(change_notifier::run(Arc::clone(&shared), events));
        Self { shared, _stop: guard }
    }

    /// Closes all sessions and waits for their tasks. The manager stays open.
    pub async fn close(&self) {
        self.shared.stop.cancel();
        self.shared.suspended.close();
        self.shared.tracker.close();
        if timeout(CLOSE_TIMEOUT, self.shared.tracker.wait()).await.is_err() {
            tracing::warn!("gateway tasks did not end in time");
        }
    }
}

/// State that all clients of a gateway share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) manager: Arc<McpManager>,
    pub(crate) router: Arc<ServerRequestRouter>,
    pub(crate) scope: Arc<Scope>,
    /// Unique and unguessable. Prefixes client names towards another gateway.
    pub(crate) instance_id: String,
    pub(crate) options: GatewayOptions,
    /// Clients that are notified of changes.
    pub(crate) subscribers: WeakList<Subscriber>,
    pub(crate) list_cache: ListCache,
    pub(crate) subscriptions: ResourceSubscriptions,
    pub(crate) suspended: SuspendedRequests,
    encoded_tools: Mutex<Option<EncodedTools>>,
    started: Instant,
    pub(crate) tracker: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// Ends `subscriptions/listen` requests, which have no end of their own. Cancelled with `stop` at the latest.
    pub(crate) draining: CancellationToken,
}

/// The tool list as JSON, and the manager's list that it was encoded from.
#[derive(Debug)]
struct EncodedTools {
    source: Arc<[ToolWithServer]>,
    modern: Arc<[Bytes]>,
    legacy: Arc<[Bytes]>,
}

/// Prompts by the names that clients see, each with its server.
type NamedPrompts = Vec<(String, (String, Prompt))>;

/// Servers and their capabilities.
impl Shared {
    /// Runs `task` in the background until the gateway stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(self.stop.clone().run_until_cancelled_owned(task));
    }

    /// The servers in scope.
    pub(crate) fn servers(&self) -> Vec<Arc<McpConnection>> {
        let mut servers = self.manager.servers();
        servers.retain(|server| self.scope.contains(server.name()));
        servers
    }

    pub(crate) fn list_changed(&self, kind: ListKind) {
        self.subscribers.to_vec().iter().for_each(|subscriber| subscriber.list_changed(kind));
    }

    pub(crate) fn resource_updated(&self, uri: &str) {
        self.subscribers.to_vec().iter().for_each(|subscriber| subscriber.resource_updated(uri));
    }

    /// Whether some server supports the method. A server that has not connected yet may support any, and before
    /// 2025-06-18 servers did not have to declare their capabilities.
    pub(crate) fn offers(&self, method: Method) -> bool {
        let is_offered: fn(&ServerCapabilities) -> bool = match method {
            Method::ListPrompts | Method::GetPrompt => |offered| offered.prompts.is_some(),
            Method::ListResources | Method::ListResourceTemplates | Method::ReadResource => {
                |offered| offered.resources.is_some()
            }
            Method::Subscribe | Method::Unsubscribe => {
                |offered| offered.resources.is_some_and(|resources| resources.subscribe)
            }
            Method::Complete => |offered| offered.completions,
            Method::SetLevel => |offered| offered.logging,
            _ => return true,
        };
        self.servers().iter().any(|server| match server.client() {
            Some(client) => {
                client.revision() < Revision::R2025_06_18 || is_offered(client.capabilities())
            }
            None => *server.state() != ConnectionState::Disabled,
        })
    }

    /// The union of the servers' capabilities.
    pub(crate) fn capabilities(&self, revision: Revision) -> Value {
        let mut offered = Map::new();
        let mut offer = |name: &str, method: Method, value: Value| {
            if self.offers(method) {
                offered.insert(name.to_owned(), value);
            }
        };
        let subscribe = self.offers(Method::Subscribe);
        // `listChanged` is always true: servers that connect and disconnect change every list.
        let resources = json!({ "subscribe": subscribe, "listChanged": true });
        offer("tools", Method::ListTools, json!({ "listChanged": true }));
        offer("resources", Method::ListResources, resources);
        offer("prompts", Method::ListPrompts, json!({ "listChanged": true }));
        offer("logging", Method::SetLevel, json!({}));
        // Before, clients just try.
        if revision >= Revision::R2025_03_26 {
            offer("completions", Method::Complete, json!({}));
        }
        // Experimental capabilities have no known meaning and cannot be merged, so only a single server passes them.
        let experimental = self.single_server().and_then(|server| {
            let declared = server.client()?.capabilities().experimental.as_ref()?;
            serde_json::from_str(declared.get()).ok()
        });
        experimental.map(|declared| offered.insert("experimental".to_owned(), declared));
        Value::Object(offered)
    }

    /// The server of an endpoint that shows only one.
    fn single_server(&self) -> Option<Arc<McpConnection>> {
        match &*self.scope {
            Scope::Server(name) => self.manager.server(name).ok(),
            Scope::All => None,
        }
    }

    /// Adds the servers' instructions to a result, each under the name of its server where there are several.
    pub(crate) fn add_instructions(&self, result: &mut Value) {
        let servers = self.servers();
        let sections = servers.iter().filter_map(|server| {
            let instructions = server.client()?.instructions()?;
            Some(match &*self.scope {
                Scope::All => format!("# {}\n\n{instructions}", server.name()),
                Scope::Server(_) => instructions.to_owned(),
            })
        });
        let sections: Vec<String> = sections.collect();
        if let Some(members) = result.as_object_mut().filter(|_| !sections.is_empty()) {
            members.insert("instructions".to_owned(), sections.join("\n\n").into());
        }
    }

    /// `serverInfo`. An endpoint of one server shows that server's.
    pub(crate) fn server_info(&self, revision: Revision) -> Value {
        let single = self.single_server();
        let info = single.as_ref().and_then(|server| server.client()?.server_info());
        let info = info.unwrap_or(&self.options.server_info);
        serde_json::to_value(info.wire(revision)).unwrap_or_default()
    }

    /// Notifies legacy servers that the roots of their only client changed.
    pub(crate) async fn roots_changed(&self) {
        for server in self.servers() {
            // A modern server asks for the roots when it needs them.
            if let Some(client) = server.client().filter(|client| client.era() == Era::Legacy)
                && let Err(error) = client.notify_roots_changed().await
            {
                tracing::debug!(server = server.name(), %error, "roots change not sent");
            }
        }
    }
}

/// Log level. A legacy server has one level for all clients: the lowest that any of them wants. A modern server gets
/// the level with each request; only a gateway behind this one is also told it for the time between requests.
impl Shared {
    /// Sets the level at all servers for a client that wants messages from `level` on.
    pub(crate) async fn set_log_level(&self, level: LogLevel) {
        let lowest = self.router.lowest_log_level().map_or(level, |lowest| lowest.min(level));
        let servers = self.servers();
        join_all(servers.iter().map(|server| self.set_server_log_level(server, lowest))).await;
    }

    /// Sets the level at a server that was restarted.
    pub(crate) async fn restore_log_level(&self, server: &str) {
        if let (Some(lowest), Ok(server)) =
            (self.router.lowest_log_level(), self.manager.server(server))
        {
            self.set_server_log_level(&server, lowest).await;
        }
    }

    async fn set_server_log_level(&self, server: &McpConnection, level: LogLevel) {
        let client = server.client().filter(|client| client.capabilities().logging);
        let Some(client) = client else { return };
        if client.era() == Era::Modern {
            if self.options.upstream == Upstream::Gateway {
                client.subscribe_log(level);
            }
            return;
        }
        match timeout(SET_LEVEL_TIMEOUT, client.set_log_level(level)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(server = server.name(), %error, "log level not set"),
            Err(error) => tracing::debug!(server = server.name(), %error, "log level not set"),
        }
    }
}

/// Names: the tool list, and which server a tool, prompt or resource belongs to.
impl Shared {
    /// The tool list as JSON. Encoded once for each list of the manager.
    pub(crate) fn tools(&self, era: Era) -> Arc<[Bytes]> {
        let tools = self.manager.all_tools();
        // Held while encoding: many clients that ask for a new list at once encode it only once.
        let mut cached = self.encoded_tools.lock();
        // Compared by pointer: the manager publishes a new list with every change.
        let encoded = match cached.take() {
            Some(encoded) if Arc::ptr_eq(&encoded.source, &tools) => encoded,
            _ => self.encode_tools(tools),
        };
        let encoded = cached.insert(encoded);
        match era {
            Era::Modern => Arc::clone(&encoded.modern),
            Era::Legacy => Arc::clone(&encoded.legacy),
        }
    }

    fn encode_tools(&self, source: Arc<[ToolWithServer]>) -> EncodedTools {
        let in_scope = source.iter().filter(|tool| self.scope.contains(tool.server()));
        let listed = |tool: &ToolWithServer| {
            let name = match &*self.scope {
                Scope::All => (**tool.name()).to_owned(),
                Scope::Server(_) => tool.tool().name.clone(),
            };
            let tool = tool.tool().clone();
            // Strict clients reject the whole list because of one malformed schema.
            let input_schema = strict_schema(&tool.input_schema).into_owned();
            // Task support is between the server and us: clients call the tool like any other.
            Tool { name, input_schema, execution: None, ..tool }
        };
        let tools: Vec<Tool> = in_scope.map(listed).collect();
        let modern = encode_all(&tools);
        let legacy = tools.iter().zip(&modern).map(|(tool, json)| legacy_tool(tool, json));
        let legacy = legacy.collect();
        EncodedTools { source, modern: modern.into(), legacy }
    }

    /// Whether the manager's tools are no longer those that clients were last shown.
    pub(crate) fn have_tools_changed(&self) -> bool {
        let tools = self.manager.all_tools();
        let encoded = self.encoded_tools.lock();
        // Without an encoded list no client has seen any tools, so there is no change to announce.
        encoded.as_ref().is_some_and(|encoded| !Arc::ptr_eq(&encoded.source, &tools))
    }

    /// Drops the lists of a removed server, which may be large. The removal is announced, so a client that saw its
    /// tools asks again.
    pub(crate) fn forget_lists(&self, server: &str) {
        self.list_cache.invalidate(server);
        self.encoded_tools.lock().take();
    }

    /// Asks servers without `list_changed` for their tools.
    pub(crate) async fn refresh_tools(&self) {
        // Connecting servers are waited for while the gateway is new: clients would take a list without their tools
        // for complete. Later, list changes announce new tools.
        let remaining = STARTUP_WAIT.saturating_sub(self.started.elapsed());
        if !remaining.is_zero() {
            self.manager.ready(remaining).await;
        }
        self.manager.refresh_tools().await;
    }

    /// The server and raw name of a tool. An unknown tool is looked up again after a refresh.
    pub(crate) async fn find_tool(&self, name: &str) -> Result<(String, String), JsonRpcError> {
        if let Ok(found) = self.resolve_tool(name) {
            return Ok(found);
        }
        self.refresh_tools().await;
        self.resolve_tool(name)
    }

    /// The server and raw name of a tool.
    pub(crate) fn resolve_tool(&self, name: &str) -> Result<(String, String), JsonRpcError> {
        if let Scope::Server(server) = &*self.scope {
            return Ok((server.clone(), name.to_owned()));
        }
        // `find_tool` also accepts other spellings. Clients have to use the public name, the only one they are shown.
        let found = self.manager.find_tool(name);
        let found = found
            .filter(|tool| **tool.name() == *name && self.scope.contains(tool.server()))
            .map(|tool| ((**tool.server()).to_owned(), tool.tool().name.clone()));
        found.ok_or_else(|| match self.not_connected(name) {
            Some(error) => {
                let style = ErrorStyle { era: Era::Modern, upstream: self.options.upstream };
                error_mapping::from_manager_error(error, style)
            }
            None => invalid_params(format!("Unknown tool: {}", shorten(name))),
        })
    }

    /// Error for an unlisted tool, if the only server that could have it is not running. If several could have it, the
    /// name is in doubt and the tool counts as unknown.
    fn not_connected(&self, name: &str) -> Option<ManagerError> {
        let servers = self.servers();
        let has_tool = |server: &&Arc<McpConnection>| {
            let tools = server.tool_names();
            let raw: Vec<_> = tools.iter().map(|tool| (server.name(), tool.as_str())).collect();
            self.manager.public_names(&raw).iter().any(|public| public == name)
        };
        let mut candidates = servers.iter().filter(has_tool);
        let server = candidates.next().filter(|server| server.client().is_none())?;
        let (server, state) = (server.name().to_owned(), server.state().clone());
        candidates.next().is_none().then_some(ManagerError::NotConnected { server, state })
    }

    /// The server's headers that repeat tool arguments (`x-mcp-header`), if the tool has any.
    pub(crate) fn param_headers(&self, name: &str) -> Option<ParamHeaders> {
        let (server, tool) = self.resolve_tool(name).ok()?;
        let connection = self.manager.server(&server).ok()?;
        let tool = connection.tool_list()?.items.iter().find(|listed| listed.name == tool)?;
        ParamHeaders::from_schema(&tool.input_schema).ok().flatten()
    }

    /// The prompts of all lists under the names that clients see.
    pub(crate) fn name_prompts(&self, lists: &[ServerList<Prompt>]) -> NamedPrompts {
        let prompts: Vec<(&str, &Prompt)> = lists
            .iter()
            .flat_map(|(server, list)| list.items.iter().map(move |prompt| (&**server, prompt)))
            .collect();
        let raw = prompts.iter().map(|(server, prompt)| (*server, prompt.name.as_str()));
        let names = match &*self.scope {
            Scope::All => self.manager.public_names(&raw.collect::<Vec<_>>()),
            Scope::Server(_) => raw.map(|(_, name)| name.to_owned()).collect(),
        };
        let prompts =
            prompts.into_iter().map(|(server, prompt)| (server.to_owned(), prompt.clone()));
        names.into_iter().zip(prompts).collect()
    }

    /// The server and raw name of a prompt. Cached lists are tried first, then fresh ones.
    pub(crate) async fn resolve_prompt(
        &self,
        name: &str,
    ) -> Result<(String, String), JsonRpcError> {
        if let Scope::Server(server) = &*self.scope {
            return Ok((server.clone(), name.to_owned()));
        }
        for max_age in [MAX_ROUTING_AGE, Duration::ZERO] {
            let prompts = self.name_prompts(&self.list_cache.prompts.all(self, max_age).await);
            let found = prompts.into_iter().find(|(public, _)| public == name);
            if let Some((_, (server, prompt))) = found {
                return Ok((server, prompt.name));
            }
        }
        Err(invalid_params(format!("Unknown prompt: {}", shorten(name))))
    }

    /// The servers to ask for a resource, the likeliest first.
    pub(crate) async fn resource_servers(&self, uri: &str) -> Result<Vec<String>, NoOwner> {
        if let Scope::Server(server) = &*self.scope {
            return Ok(vec![server.clone()]);
        }
        let resources = self.list_cache.resources.all(self, MAX_ROUTING_AGE).await;
        if let Some(server) = server_that_lists(uri, &resources) {
            return Ok(vec![server.to_owned()]);
        }
        let templates = self.list_cache.templates.all(self, MAX_ROUTING_AGE).await;
        // Read after the lists: a server that connects meanwhile counts as unknown.
        let servers = self.servers();
        let claims: Vec<Claims<'_>> = servers
            .iter()
            .filter_map(|server| {
                let is_known = match server.client() {
                    Some(client) => client.capabilities().resources.is_some(),
                    None => *server.state() == ConnectionState::Connecting,
                };
                is_known.then(|| Claims {
                    server: server.name(),
                    resources: list_of(server.name(), &resources),
                    templates: list_of(server.name(), &templates),
                })
            })
            .collect();
        find_owners(uri, &claims)
    }

    /// The server at which to subscribe to a resource, or to complete its URI.
    pub(crate) async fn first_resource_server(&self, uri: &str) -> Result<String, JsonRpcError> {
        let servers = self.resource_servers(check_uri(uri)?).await;
        let servers = servers.map_err(|reason| no_owner(uri, Revision::LATEST, &reason))?;
        let server = servers.into_iter().next();
        server.ok_or_else(|| resource_not_found(uri, Revision::LATEST))
    }
}

/// A name or URI that a client asks for, as messages show it.
fn shorten(name: &str) -> String {
    sanitize_line(name, MAX_SHOWN_CHARS)
}

/// Error for a resource for which no server is asked.
pub(crate) fn no_owner(uri: &str, revision: Revision, reason: &NoOwner) -> JsonRpcError {
    let error = resource_not_found(uri, revision);
    let (reason, hint) = reason.describe();
    let message = format!("{}: {reason}; {hint}", error.message);
    JsonRpcError { message, data: Some(json!({ "uri": uri, "hint": hint })), ..error }
}

/// Spec 2026-07-28, resources §Error Handling: the modern era has another code than the legacy one.
pub(crate) fn resource_not_found(uri: &str, revision: Revision) -> JsonRpcError {
    let code = match revision.era() {
        Era::Legacy => ErrorCode::RESOURCE_NOT_FOUND,
        Era::Modern => ErrorCode::INVALID_PARAMS,
    };
    let data = Some(json!({ "uri": uri }));
    let message = format!("Resource not found: {}", shorten(uri));
    JsonRpcError { data, ..JsonRpcError::new(code.0, message) }
}

/// JSON of each entry of a list, without hidden text.
pub(crate) fn encode_all<T: serde::Serialize>(entries: impl IntoIterator<Item = T>) -> Vec<Bytes> {
    entries.into_iter().filter_map(|entry| encode_entry(&entry)).collect()
}

fn encode_entry(entry: &impl serde::Serialize) -> Option<Bytes> {
    let json = serde_json::to_vec(entry).ok()?;
    Some(strip_hidden_json(&json).unwrap_or(json).into())
}

/// Before 2026-07-28 an output schema described an object, and clients reject the whole list if one does not.
fn legacy_tool(tool: &Tool, modern: &Bytes) -> Bytes {
    match &tool.output_schema {
        Some(schema) if !is_object_schema(schema) => {
            let without_schema = Tool { output_schema: None, ..tool.clone() };
            encode_entry(&without_schema).unwrap_or_else(|| modern.clone())
        }
        _ => modern.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_contains_only_its_servers() {
        let check = |scope: &Scope, a: bool, b: bool| {
            assert_eq!((scope.contains("a"), scope.contains("b")), (a, b), "{scope:?}");
        };
        check(&Scope::All, true, true);
        check(&Scope::Server("b".to_owned()), false, true);
    }

    #[test]
    fn legacy_clients_get_only_object_output_schemas() {
        let check = |schema: &str, expected: &str| {
            let json = format!(r#"{{"name":"a","inputSchema":{{}}{schema}}}"#);
            let tool: Tool = serde_json::from_str(&json).unwrap();
            assert_eq!(legacy_tool(&tool, &Bytes::from_static(b"unchanged")), expected);
        };
        check("", "unchanged");
        check(r#","outputSchema":{"type":"object"}"#, "unchanged");
        check(r#","outputSchema":{"type":"array"}"#, r#"{"name":"a","inputSchema":{}}"#);
    }

    #[test]
    fn list_entries_have_no_hidden_text() {
        let tool = |description: &str| {
            let json = format!(
                r#"{{"name":"a","title":"t","description":"{description}","inputSchema":{{"type":"object","description":"{description}"}},"outputSchema":{{"type":"array"}}}}"#
            );
            serde_json::from_str::<Tool>(&json).unwrap()
        };
        let hidden = tool("Adds\u{e0049}\u{e0067}\\u202e\\u001b[8m numbers");
        let entries = encode_all([&hidden]);
        assert_eq!(entries, encode_all([&tool("Adds numbers")]));
        let unchanged = Bytes::from_static(b"unchanged");
        let (legacy, expected) = (legacy_tool(&hidden, &unchanged), tool("Adds numbers"));
        assert_eq!(legacy, legacy_tool(&expected, &unchanged));
    }

    #[test]
    fn missing_resource_has_the_code_of_the_era() {
        assert_eq!(resource_not_found("u:", Revision::R2025_11_25).code, -32002);
        assert_eq!(resource_not_found("u:", Revision::R2026_07_28).code, -32602);
        let long = resource_not_found(&"u".repeat(1 << 16), Revision::R2025_11_25);
        assert!(long.message.len() < 300, "{}", long.message);
    }
}
