//! MCP endpoints under `/mcp`: one gateway for all servers, one per server and one per agent, created on first use.
//!
//! The servers of another agent run as processes of their own, because an agent may override a server of the default
//! list. These routes are not part of the API, so the `OpenAPI` document does not contain them.
//!
//! **Invariant:** there are at most as many endpoints as servers and agents in the config file; an endpoint whose
//! server or agent was removed is removed too, with its sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_gateway::{Gateway, HttpGateway, Scope, ServerRequestRouter};
use toolrack_service::{Autostart, Home, LocalService, ServiceOptions, WatchConfig};

use crate::daemon::DaemonError;
use crate::event_recorder::EventRecorder;
use crate::problem::Problem;
use crate::state::App;

/// Maximum number of agents whose servers run beside the daemon's own.
const MAX_AGENTS: usize = 16;

/// Home and options from which services are opened.
#[derive(Debug)]
pub(crate) struct ServiceSource {
    pub(crate) home: Home,
    pub(crate) options: ServiceOptions,
}

/// A service whose server requests are routed to the clients of its gateways.
#[derive(Debug)]
pub(crate) struct OpenService {
    pub(crate) service: Arc<LocalService>,
    request_router: Arc<ServerRequestRouter>,
}

/// The endpoints of one service.
#[derive(Debug)]
struct EndpointSet {
    open_service: OpenService,
    all: HttpGateway,
    servers: Mutex<HashMap<String, HttpGateway>>,
}

/// All MCP endpoints of the daemon.
#[derive(Debug)]
pub(crate) struct Endpoints {
    own: EndpointSet,
    source: ServiceSource,
    /// A cell per agent, so that concurrent first requests open its service once.
    agents: Mutex<HashMap<String, Arc<OnceCell<EndpointSet>>>>,
    recorder: Arc<EventRecorder>,
    tasks: TaskTracker,
    recorder_stop: CancellationToken,
}

impl OpenService {
    /// Opens the service of a home, for `agent` or else for the agent of the options.
    pub(crate) async fn open(
        home: Home,
        options: ServiceOptions,
        agent: Option<&str>,
    ) -> Result<Self, DaemonError> {
        let request_router = match options.handler {
            Some(fallback) => ServerRequestRouter::with_fallback(fallback),
            None => ServerRequestRouter::new(),
        };
        let options = ServiceOptions {
            agent: agent.map(str::to_owned).or(options.agent),
            handler: Some(Arc::clone(&request_router) as _),
            limits: ServerRequestRouter::limits(),
            autostart: Autostart::AllEnabled,
            watch_config: WatchConfig::Yes,
            // The daemon answers at once; a slow server must not delay its start.
            ready_wait: Duration::ZERO,
            ..options
        };
        let service = LocalService::open(home, options).await.map_err(DaemonError::Service)?;
        Ok(Self { service: Arc::new(service), request_router })
    }

    fn endpoint(&self, scope: Scope) -> HttpGateway {
        let manager = Arc::clone(self.service.manager());
        HttpGateway::new(Gateway::new(manager, Arc::clone(&self.request_router), scope))
    }
}

impl EndpointSet {
    fn new(open_service: OpenService) -> Self {
        let all = open_service.endpoint(Scope::All);
        Self { open_service, all, servers: Mutex::default() }
    }

    /// The endpoint of one server. Drops those of removed servers, which ends their sessions.
    fn server(&self, name: &str) -> Option<HttpGateway> {
        let is_configured = |name: &str| self.open_service.service.id_for_name(name).is_some();
        let mut servers = lock(&self.servers);
        servers.retain(|name, _| is_configured(name));
        if !is_configured(name) {
            return None;
        }
        let create = || self.open_service.endpoint(Scope::Server(name.to_owned()));
        Some(servers.entry(name.to_owned()).or_insert_with(create).clone())
    }

    fn endpoints(&self) -> Vec<HttpGateway> {
        let mut endpoints: Vec<HttpGateway> = lock(&self.servers).values().cloned().collect();
        endpoints.push(self.all.clone());
        endpoints
    }

    async fn close(&self) {
        join_all(self.endpoints().iter().map(|endpoint| endpoint.gateway().close())).await;
        self.open_service.service.close().await;
    }
}

impl Endpoints {
    /// Creates the endpoints of `open_service`. Recorder tasks of other agents end with `recorder_stop`.
    pub(crate) fn new(
        open_service: OpenService,
        source: ServiceSource,
        recorder: Arc<EventRecorder>,
        (tasks, recorder_stop): (TaskTracker, CancellationToken),
    ) -> Self {
        let own = EndpointSet::new(open_service);
        Self { own, source, agents: Mutex::default(), recorder, tasks, recorder_stop }
    }

    pub(crate) fn service(&self) -> &Arc<LocalService> {
        &self.own.open_service.service
    }

    pub(crate) fn recorder(&self) -> &Arc<EventRecorder> {
        &self.recorder
    }

    /// The endpoint of all servers of the daemon.
    pub(crate) fn all(&self) -> HttpGateway {
        self.own.all.clone()
    }

    /// The endpoint of one server, with its tools under their own names.
    pub(crate) fn server(&self, name: &str) -> Result<HttpGateway, Problem> {
        let unknown = || Problem::not_found(format!("no server named `{name}`"));
        self.own.server(name).ok_or_else(unknown)
    }

    /// The endpoint of an agent. Starts its servers on first use.
    pub(crate) async fn agent(&self, id: &str) -> Result<HttpGateway, Problem> {
        if self.service().agent() == Some(id) {
            return Ok(self.all());
        }
        let cell = self.agent_cell(id)?;
        // A failed open leaves the cell empty, so the next request tries again.
        let endpoints = cell.get_or_try_init(|| self.open_agent(id)).await?;
        Ok(endpoints.all.clone())
    }

    /// The cell of an agent's endpoints. Closes those of removed agents.
    fn agent_cell(&self, id: &str) -> Result<Arc<OnceCell<EndpointSet>>, Problem> {
        let configured = self.service().agents();
        let mut agents = lock(&self.agents);
        let is_removed = |agent: &String| !configured.contains(agent);
        let removed: Vec<String> =
            agents.keys().filter(|agent| is_removed(agent)).cloned().collect();
        for cell in removed.iter().filter_map(|agent| agents.remove(agent)) {
            // In a task: the request of another agent must not wait for these servers to exit.
            self.tasks.spawn(async move { close_cell(&cell).await });
        }
        if !configured.iter().any(|agent| agent == id) {
            return Err(Problem::not_found(format!(
                "no agent `{id}` in the config file; a single server is at `/mcp/server/NAME`"
            )));
        }
        if agents.len() >= MAX_AGENTS && !agents.contains_key(id) {
            return Err(Problem::unavailable("too many agents are active"));
        }
        Ok(Arc::clone(agents.entry(id.to_owned()).or_default()))
    }

    async fn open_agent(&self, id: &str) -> Result<EndpointSet, Problem> {
        let ServiceSource { home, options } = &self.source;
        let open_service = OpenService::open(home.clone(), options.clone(), Some(id)).await;
        let open_service = open_service.map_err(|error| match error {
            DaemonError::Service(error) => Problem::from(error),
            error => Problem::internal(error.to_string()),
        })?;
        let events = open_service.service.subscribe();
        let recording = Arc::clone(&self.recorder).run_for_agent(
            id.to_owned(),
            events,
            self.recorder_stop.clone(),
        );
        self.tasks.spawn(recording);
        Ok(EndpointSet::new(open_service))
    }

    fn agent_cells(&self) -> Vec<Arc<OnceCell<EndpointSet>>> {
        lock(&self.agents).values().cloned().collect()
    }

    /// Ends long-lived streams, so that connections can finish.
    pub(crate) fn drain(&self) {
        let cells = self.agent_cells();
        let sets = cells.iter().filter_map(|cell| cell.get()).chain([&self.own]);
        sets.flat_map(EndpointSet::endpoints).for_each(|endpoint| endpoint.drain());
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

// A poisoned lock is safe to use: each critical section changes the map by single inserts and removes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// The routes of the MCP endpoints.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/mcp", any(handle_all))
        .route("/mcp/{agent}", any(handle_agent))
        .route("/mcp/server/{name}", any(handle_server))
}

async fn handle_all(State(app): State<App>, request: Request) -> Response {
    handle(&app, Ok(app.endpoints.all()), request).await
}

async fn handle_agent(
    State(app): State<App>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    handle(&app, app.endpoints.agent(&id).await, request).await
}

async fn handle_server(
    State(app): State<App>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    handle(&app, app.endpoints.server(&name), request).await
}

async fn handle(app: &App, endpoint: Result<HttpGateway, Problem>, request: Request) -> Response {
    if app.is_draining() {
        return Problem::unavailable("the daemon is shutting down").into_response();
    }
    match endpoint {
        // The access control of the daemon has checked the request.
        Ok(endpoint) => endpoint.handle_checked(request).await.map(Body::new),
        Err(problem) => problem.into_response(),
    }
}
