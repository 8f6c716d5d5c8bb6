//! Every server behind one endpoint: the handle that programs hold, and what all its clients share.
//!
//! **Invariant:** every task of a gateway ends when it is closed or the last handle is gone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use toolrack_manager::{Borrowed, ConnectionState, McpConnection, McpManager, ToolWithServer};
use toolrack_mcp::{Era, Implementation, Method, Revision, ServerCapabilities};
use toolrack_transport::JsonRpcError;
use uuid::Uuid;

use crate::change_notifier as news;
use crate::error_mapping::{self as failure, Manner};
use crate::list_cache::Catalogue;
use crate::resource_subscriptions::Subscriptions;
use crate::scope::Scope;
use crate::server_request_router::Switchboard;
use crate::subscriptions::Audience;
use crate::suspended::Parked;

/// How long closing waits for tasks that are told to end.
const END_LIMIT: Duration = Duration::from_secs(10);

/// What can be set about a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Who we say we are.
    pub server: Implementation,
    /// Entries of one page of a list.
    pub page_size: usize,
    /// Requests of one client that are worked on at once. Further ones wait.
    pub max_open: usize,
    /// Requests of one client that wait. One more is refused.
    pub max_waiting: usize,
    /// Requests of modern clients that wait for an answer to what a legacy server asked. One more is refused.
    pub max_parked: usize,
    /// How long a client may take to answer what a server asks.
    pub question_patience: Duration,
    /// The largest message that is taken from a client.
    pub max_message_bytes: usize,
    /// How long a client on stdio may leave its messages unread before it is given up.
    pub write_patience: Duration,
    /// What stands behind it.
    pub behind: Behind,
}

/// What a gateway passes requests on to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behind {
    /// Servers, which may say what they like.
    #[default]
    Servers,
    /// One other gateway of ours, such as a daemon. It is told which requests are of the same client, and its word on
    /// how far a request came is passed on.
    Gateway,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        let server = Implementation {
            name: "toolrack".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Implementation::default()
        };
        Self {
            server,
            page_size: 1_000,
            max_open: 256,
            max_waiting: 1_024,
            max_parked: 256,
            question_patience: Duration::from_mins(5),
            max_message_bytes: 32 << 20,
            write_patience: Duration::from_mins(10),
            behind: Behind::default(),
        }
    }
}

/// The servers of a manager behind one MCP endpoint. Clones are the same gateway.
#[derive(Debug, Clone)]
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
    _stop: Arc<DropGuard>,
}

/// What all clients of a gateway share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) manager: Arc<McpManager>,
    pub(crate) switchboard: Arc<Switchboard>,
    pub(crate) scope: Scope,
    /// Like that of no other gateway, and not to be guessed.
    pub(crate) name: String,
    pub(crate) options: GatewayOptions,
    pub(crate) audience: Audience,
    pub(crate) catalogue: Catalogue,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) parked: Parked,
    /// The tools as they are listed, and the list of the manager that they were written from.
    pub(crate) written_tools: Mutex<Option<WrittenTools>>,
    /// When the first client could come.
    pub(crate) began: Instant,
    pub(crate) tracker: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// Ends what would go on until the client has enough. Cancelled with `stop` at the latest.
    pub(crate) farewell: CancellationToken,
}

/// The list of the manager, and what modern and legacy clients get of it.
pub(crate) type WrittenTools = (Arc<[ToolWithServer]>, Arc<[Bytes]>, Arc<[Bytes]>);

impl Gateway {
    /// A gateway in front of `manager`, which has to have `switchboard` as its handler if servers shall be able
    /// to ask clients, and [`Switchboard::limits`] if there are many of them. Has to be called within a tokio runtime.
    pub fn new(manager: Arc<McpManager>, switchboard: Arc<Switchboard>, scope: Scope) -> Self {
        Self::with_options(manager, switchboard, scope, GatewayOptions::default())
    }

    /// The same with other than the default settings.
    pub fn with_options(
        manager: Arc<McpManager>,
        switchboard: Arc<Switchboard>,
        scope: Scope,
        options: GatewayOptions,
    ) -> Self {
        let stop = CancellationToken::new();
        let guard = Arc::new(stop.clone().drop_guard());
        let shared = Arc::new(Shared {
            manager,
            switchboard,
            scope,
            name: Uuid::new_v4().simple().to_string(),
            parked: Parked::new(options.max_parked, options.question_patience),
            options,
            audience: Audience::default(),
            catalogue: Catalogue::default(),
            subscriptions: Subscriptions::default(),
            written_tools: Mutex::default(),
            began: Instant::now(),
            tracker: TaskTracker::new(),
            farewell: stop.child_token(),
            stop,
        });
        shared.tracker.spawn(news::spread(Arc::clone(&shared), shared.manager.subscribe()));
        Self { shared, _stop: guard }
    }

    /// What this endpoint shows.
    pub fn scope(&self) -> &Scope {
        &self.shared.scope
    }

    /// Ends what has no end of its own, such as subscriptions. Requests that are open go on.
    pub(crate) fn bid_farewell(&self) {
        self.shared.farewell.cancel();
    }

    /// Ends every conversation and waits until nothing is left of them. The manager stays.
    pub async fn close(&self) {
        self.shared.stop.cancel();
        self.shared.parked.clear();
        self.shared.tracker.close();
        if timeout(END_LIMIT, self.shared.tracker.wait()).await.is_err() {
            tracing::warn!("some tasks of the gateway do not end");
        }
    }
}

impl Shared {
    /// The servers that clients see.
    pub(crate) fn servers(&self) -> Vec<Arc<McpConnection>> {
        let mut servers = self.manager.servers();
        servers.retain(|it| self.scope.has(it.name()));
        servers
    }

    /// The connection of a server, started if need be.
    pub(crate) async fn borrow(
        &self,
        server: &str,
        manner: Manner,
    ) -> Result<Borrowed, JsonRpcError> {
        let borrowed = self.manager.borrow(server).await;
        borrowed.map_err(|error| failure::of_rack(error, manner))
    }

    /// How a client of an era is told what failed.
    pub(crate) fn manner(&self, era: Era) -> Manner {
        Manner { era, behind: self.options.behind }
    }

    /// Whether some server offers this. What is not known yet may turn out to be anything, and before the third
    /// revision servers did not have to say what they offer.
    fn is_offered(&self, feature: impl Fn(&ServerCapabilities) -> bool) -> bool {
        self.servers().iter().any(|server| match server.client() {
            Some(client) => {
                client.revision() < Revision::R2025_06_18 || feature(client.capabilities())
            }
            None => *server.state() != ConnectionState::Disabled,
        })
    }

    /// Whether there is anybody who could answer.
    pub(crate) fn offers(&self, method: Method) -> bool {
        match method {
            Method::ListPrompts | Method::GetPrompt => self.is_offered(|it| it.prompts.is_some()),
            Method::ListResources | Method::ListResourceTemplates | Method::ReadResource => {
                self.is_offered(|it| it.resources.is_some())
            }
            Method::Subscribe | Method::Unsubscribe => {
                self.is_offered(|it| it.resources.is_some_and(|it| it.subscribe))
            }
            Method::Complete => self.is_offered(|it| it.completions),
            Method::SetLevel => self.is_offered(|it| it.logging),
            _ => true,
        }
    }

    /// Everything that some server offers.
    pub(crate) fn capabilities(&self, revision: Revision) -> Value {
        let mut offered = Map::new();
        let mut offer = |name: &str, method: Method, value: Value| {
            if self.offers(method) {
                offered.insert(name.to_owned(), value);
            }
        };
        let subscribe = self.offers(Method::Subscribe);
        let resources = json!({ "subscribe": subscribe, "listChanged": true });
        offer("tools", Method::ListTools, json!({ "listChanged": true }));
        offer("resources", Method::ListResources, resources);
        offer("prompts", Method::ListPrompts, json!({ "listChanged": true }));
        offer("logging", Method::SetLevel, json!({}));
        if revision.has_completions_capability() {
            offer("completions", Method::Complete, json!({}));
        }
        // Nobody knows what these mean, so they can only be those of one server.
        let experimental = self.only().and_then(|it| {
            let declared = it.client()?.capabilities().experimental.as_ref()?;
            serde_json::from_str(declared.get()).ok()
        });
        experimental.map(|it| offered.insert("experimental".to_owned(), it));
        Value::Object(offered)
    }

    /// The server that this endpoint stands for, if it is for one alone.
    fn only(&self) -> Option<Arc<McpConnection>> {
        match &self.scope {
            Scope::Server(name) => self.manager.server(name).ok(),
            Scope::All | Scope::Agent(_) => None,
        }
    }

    /// What servers say about their use, each under its name where there are several.
    pub(crate) fn instructions(&self) -> Option<String> {
        let servers = self.servers();
        let said = servers.iter().filter_map(|it| {
            let instructions = it.client()?.instructions()?;
            Some(match self.scope {
                Scope::Server(_) => instructions.to_owned(),
                Scope::All | Scope::Agent(_) => format!("# {}\n\n{instructions}", it.name()),
            })
        });
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| said.join("\n\n"))
    }

    /// Who we are. An endpoint of one server stands for that server.
    pub(crate) fn server_info(&self, revision: Revision) -> Value {
        let only = self.only();
        let its = only.as_ref().and_then(|it| it.client()?.server_info());
        serde_json::to_value(its.unwrap_or(&self.options.server).wire(revision)).unwrap_or_default()
    }
}
