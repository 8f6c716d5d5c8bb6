//! MCP endpoints under `/mcp`: one gateway for all servers, one per server, the same for each agent, created on first
//! use.
//!
//! The servers of another agent run as processes of their own, because an agent may override a server of the default
//! list. These routes are not part of the API, so the `OpenAPI` document does not contain them.
//!
//! **Invariant:** there are at most as many endpoints as servers and agents in the config file; an endpoint whose
//! server or agent was removed is removed too, with its sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_gateway::{Gateway, HttpGateway, Scope, ServerRequestRouter};
use toolrack_service::{
    Autostart, ErrorCode, ErrorDetail, Home, LocalService, ServiceError, ServiceOptions,
    WatchConfig,
};

use crate::access_control::Principal;
use crate::active_keys::ActiveKey;
use crate::event_recorder::EventRecorder;
use crate::extract::PathParams;
use crate::problem::Problem;
use crate::routes::App;

/// Maximum number of agents whose servers run beside the daemon's own.
const MAX_AGENTS: usize = 16;

/// The endpoints of one service. Its server requests are routed to the clients of its gateways.
#[derive(Debug)]
pub(crate) struct EndpointSet {
    pub(crate) service: Arc<LocalService>,
    request_router: Arc<ServerRequestRouter>,
    all: HttpGateway,
    servers: Mutex<HashMap<String, HttpGateway>>,
}

/// All MCP endpoints of the daemon.
#[derive(Debug)]
pub(crate) struct Endpoints {
    pub(crate) own: EndpointSet,
    /// Home and options from which the services of other agents are opened.
    pub(crate) source: (Home, ServiceOptions),
    pub(crate) recorder: Arc<EventRecorder>,
    /// All tasks of the daemon but its connections.
    pub(crate) tasks: TaskTracker,
    /// Stops the event recorder, after everything that emits events.
    pub(crate) recorder_stop: CancellationToken,
    /// A cell per agent, so that concurrent first requests open its service once.
    pub(crate) agents: Mutex<HashMap<String, Arc<OnceCell<EndpointSet>>>>,
}

impl EndpointSet {
    /// Opens the service of a home, for `agent` or else for the agent of the options.
    pub(crate) async fn open(
        home: Home,
        options: ServiceOptions,
        agent: Option<&str>,
    ) -> Result<Self, ServiceError> {
        let request_router = ServerRequestRouter::new();
        let options = ServiceOptions {
            agent: agent.map(str::to_owned).or(options.agent),
            handler: Some(Arc::clone(&request_router) as _),
            limits: ServerRequestRouter::limits(),
            autostart: Autostart::AllEnabled,
            watch_config: WatchConfig::Yes,
            // The daemon answers at once; a slow server must not delay its start.
            ready_wait: Some(Duration::ZERO),
            ..options
        };
        let service = Arc::new(LocalService::open(home, options).await?);
        let all = gateway(&service, &request_router, Scope::All);
        Ok(Self { service, request_router, all, servers: Mutex::default() })
    }

    /// The endpoint of one server, with its tools under their own names. Drops those of removed servers, which ends
    /// their sessions.
    fn server(&self, name: &str) -> Result<HttpGateway, Problem> {
        let is_configured = |name: &str| self.service.id_for_name(name).is_some();
        let mut servers = self.servers.lock();
        servers.retain(|name, _| is_configured(name));
        if !is_configured(name) {
            return Err(Problem::not_found(format!("no server named `{name}`")));
        }
        let scope = || Scope::Server(name.to_owned());
        let create = || gateway(&self.service, &self.request_router, scope());
        Ok(servers.entry(name.to_owned()).or_insert_with(create).clone())
    }

    fn endpoints(&self) -> Vec<HttpGateway> {
        let servers = self.servers.lock();
        servers.values().chain([&self.all]).cloned().collect()
    }

    async fn close(&self) {
        join_all(self.endpoints().iter().map(|endpoint| endpoint.gateway().close())).await;
        self.service.close().await;
    }
}

fn gateway(
    service: &LocalService,
    request_router: &Arc<ServerRequestRouter>,
    scope: Scope,
) -> HttpGateway {
    let (manager, request_router) = (Arc::clone(service.manager()), Arc::clone(request_router));
    HttpGateway::new(Gateway::new(manager, request_router, scope))
}

impl Endpoints {
    /// The endpoint of an agent, or of one of its servers. Starts its servers on first use.
    async fn agent(&self, id: &str, server: Option<&str>) -> Result<HttpGateway, Problem> {
        let select = |endpoints: &EndpointSet| match server {
            Some(server) => endpoints.server(server),
            None => Ok(endpoints.all.clone()),
        };
        self.with_agent(Some(id), select).await?
    }

    /// The service of an agent, or of the daemon itself. Starts the agent's servers on first use.
    pub(crate) async fn service(&self, agent: Option<&str>) -> Result<Arc<LocalService>, Problem> {
        self.with_agent(agent, |endpoints| Arc::clone(&endpoints.service)).await
    }

    /// The same, without starting anything: `None` if the agent is not in use.
    pub(crate) fn active_service(
        &self,
        agent: Option<&str>,
    ) -> Result<Option<Arc<LocalService>>, Problem> {
        match agent {
            Some(id) if self.own.service.agent() != agent => {
                let cell = self.agent_cell(id)?;
                Ok(cell.get().map(|endpoints| Arc::clone(&endpoints.service)))
            }
            _ => Ok(Some(Arc::clone(&self.own.service))),
        }
    }

    async fn with_agent<T>(
        &self,
        agent: Option<&str>,
        select: impl FnOnce(&EndpointSet) -> T,
    ) -> Result<T, Problem> {
        let Some(id) = agent.filter(|_| self.own.service.agent() != agent) else {
            return Ok(select(&self.own));
        };
        let open = async || {
            let (home, options) = self.source.clone();
            let endpoints = EndpointSet::open(home, options, Some(id)).await?;
            let (events, stop) = (endpoints.service.subscribe(), self.recorder_stop.clone());
            let recorder = Arc::clone(&self.recorder);
            self.tasks.spawn(recorder.run_for_agent(id.to_owned(), events, stop));
            Ok::<_, Problem>(endpoints)
        };
        // A failed open leaves the cell empty, so the next request tries again.
        let cell = self.agent_cell(id)?;
        Ok(select(cell.get_or_try_init(open).await?))
    }

    /// The cell of an agent's endpoints. Closes those of removed agents.
    fn agent_cell(&self, id: &str) -> Result<Arc<OnceCell<EndpointSet>>, Problem> {
        let configured = self.own.service.agents();
        let mut agents = self.agents.lock();
        for (_, cell) in agents.extract_if(|agent, _| !configured.contains(agent)) {
            // In a task: the request of another agent must not wait for these servers to exit.
            self.tasks.spawn(async move { close_cell(&cell).await });
        }
        if !configured.iter().any(|agent| agent == id) {
            let message = format!("no agent `{id}` in the config file");
            // People try `/mcp/NAME` for a server.
            let hint =
                "agents have an `id` in `[[agents]]`; a single server is at `/mcp/server/NAME`";
            return Err(ErrorDetail::new(ErrorCode::NotFound, message).with_hint(hint).into());
        }
        if agents.len() >= MAX_AGENTS && !agents.contains_key(id) {
            return Err(Problem::unavailable("too many agents are active"));
        }
        Ok(Arc::clone(agents.entry(id.to_owned()).or_default()))
    }

    fn agent_cells(&self) -> Vec<Arc<OnceCell<EndpointSet>>> {
        self.agents.lock().values().cloned().collect()
    }

    fn for_each(&self, act: impl Fn(&HttpGateway)) {
        let cells = self.agent_cells();
        let sets = cells.iter().filter_map(|cell| cell.get()).chain([&self.own]);
        sets.flat_map(EndpointSet::endpoints).for_each(|endpoint| act(&endpoint));
    }

    /// Ends long-lived streams, so that connections can finish.
    pub(crate) fn drain(&self) {
        self.for_each(HttpGateway::drain);
    }

    /// Ends the sessions that were opened with a key.
    pub(crate) fn close_sessions_of(&self, key: &ActiveKey) {
        self.for_each(|endpoint| endpoint.close_sessions_of(&key.id));
    }

    /// Ends all sessions and stops all servers.
    pub(crate) async fn close(&self) {
        let cells = self.agent_cells();
        tokio::join!(self.own.close(), join_all(cells.iter().map(|cell| close_cell(cell))));
    }
}

async fn close_cell(cell: &OnceCell<EndpointSet>) {
    if let Some(endpoints) = cell.get() {
        endpoints.close().await;
    }
}

/// The routes of the MCP endpoints.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/mcp", any(handle))
        .route("/mcp/{agent}", any(handle))
        .route("/mcp/server/{server}", any(handle))
        .route("/mcp/{agent}/server/{server}", any(handle))
}

/// The endpoint that a path names: of an agent, of a server, or of all servers.
#[derive(Debug, Deserialize)]
struct EndpointPath {
    agent: Option<String>,
    server: Option<String>,
}

async fn handle(
    State(app): State<App>,
    Extension(principal): Extension<Principal>,
    PathParams(path): PathParams<EndpointPath>,
    request: Request,
) -> Result<Response, Problem> {
    app.check_running()?;
    let (agent, server) = (path.agent.as_deref(), path.server.as_deref());
    // Before the endpoint is looked up, which may start servers and tells which ones there are.
    principal.check_endpoint(agent.or(app.endpoints.own.service.agent()), server)?;
    let endpoint = match (agent, server) {
        (Some(agent), server) => app.endpoints.agent(agent, server).await?,
        (None, Some(server)) => app.endpoints.own.server(server)?,
        (None, None) => app.endpoints.own.all.clone(),
    };
    let owner = principal.key().map(|key| key.id.as_str());
    // The access control of the daemon has checked the request.
    Ok(endpoint.handle_checked(request, owner).await.map(Body::new))
}
