//! Every MCP endpoint of the daemon: all its servers, one of them, or those of another agent. Each is made when
//! somebody first asks for it.
//!
//! The servers of another agent are processes of their own, because an agent may have a server of its own in the place
//! of one that all have.
//!
//! **Invariant:** there are no more endpoints than servers and agents of the config file, and one whose server or agent
//! is gone is gone too, with its sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_gateway::{Access, Gateway, HttpGateway, HttpGatewayOptions, Scope, Switchboard};
use toolrack_service::{Autostart, Follow, Home, LocalService, ServiceOptions};

use crate::daemon::DaemonError;
use crate::event_recorder::Chronicle;
use crate::problem::Problem;
use crate::state::App;

/// Agents whose servers run at once, beside those of the daemon itself.
const MAX_AGENTS: usize = 16;

/// What a service is opened from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) home: Home,
    pub(crate) options: ServiceOptions,
}

/// A service whose servers can ask the clients of a gateway.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) service: Arc<LocalService>,
    switchboard: Arc<Switchboard>,
}

/// The endpoints in front of one service.
#[derive(Debug)]
struct Rack {
    opened: Opened,
    all: HttpGateway,
    servers: Mutex<HashMap<String, HttpGateway>>,
}

/// Every MCP endpoint of the daemon.
#[derive(Debug)]
pub(crate) struct Endpoints {
    own: Rack,
    origin: Origin,
    agents: Mutex<HashMap<String, Arc<OnceCell<Rack>>>>,
    chronicle: Arc<Chronicle>,
    tasks: TaskTracker,
    silence: CancellationToken,
}

impl Opened {
    /// Opens the service of a home, for the agent that the options name or for another one.
    pub(crate) async fn open(
        home: Home,
        options: ServiceOptions,
        other: Option<&str>,
    ) -> Result<Self, DaemonError> {
        let switchboard = match options.handler {
            Some(fallback) => Switchboard::with_fallback(fallback),
            None => Switchboard::new(),
        };
        let options = ServiceOptions {
            agent: other.map(str::to_owned).or(options.agent),
            handler: Some(Arc::clone(&switchboard) as _),
            limits: Switchboard::limits(),
            autostart: Autostart::Enabled,
            follow: Follow::Yes,
            ready_wait: Duration::ZERO,
            ..options
        };
        let service = LocalService::open(home, options).await.map_err(DaemonError::Service)?;
        Ok(Self { service: Arc::new(service), switchboard })
    }

    fn endpoint(&self, scope: Scope) -> HttpGateway {
        let rack = Arc::clone(self.service.rack());
        let gateway = Gateway::new(rack, Arc::clone(&self.switchboard), scope);
        // Whoever comes here has been let in already.
        let access = Access::Checked(Arc::new(|_request| Ok(())));
        HttpGateway::with_options(gateway, HttpGatewayOptions { access, ..Default::default() })
    }
}

impl Rack {
    fn new(opened: Opened) -> Self {
        let all = opened.endpoint(Scope::All);
        Self { opened, all, servers: Mutex::default() }
    }

    /// The endpoint of one server. Those of servers that are gone are forgotten, which ends their sessions.
    fn server(&self, name: &str) -> Option<HttpGateway> {
        let is_known = |name: &str| self.opened.service.id_of(name).is_some();
        let mut servers = held(&self.servers);
        servers.retain(|it, _| is_known(it));
        if !is_known(name) {
            return None;
        }
        let make = || self.opened.endpoint(Scope::Server(name.to_owned()));
        Some(servers.entry(name.to_owned()).or_insert_with(make).clone())
    }

    fn endpoints(&self) -> Vec<HttpGateway> {
        let mut endpoints: Vec<HttpGateway> = held(&self.servers).values().cloned().collect();
        endpoints.push(self.all.clone());
        endpoints
    }

    async fn close(&self) {
        join_all(self.endpoints().iter().map(|it| it.gateway().close())).await;
        self.opened.service.close().await;
    }
}

impl Endpoints {
    /// The endpoints in front of `opened`, and later of other agents. Their tasks end with the token at the latest.
    pub(crate) fn new(
        opened: Opened,
        origin: Origin,
        chronicle: Arc<Chronicle>,
        (tasks, silence): (TaskTracker, CancellationToken),
    ) -> Self {
        let own = Rack::new(opened);
        Self { own, origin, agents: Mutex::default(), chronicle, tasks, silence }
    }

    pub(crate) fn service(&self) -> &Arc<LocalService> {
        &self.own.opened.service
    }

    pub(crate) fn chronicle(&self) -> &Arc<Chronicle> {
        &self.chronicle
    }

    /// All servers of the daemon.
    pub(crate) fn all(&self) -> HttpGateway {
        self.own.all.clone()
    }

    /// One of them, under the names that it gives itself.
    pub(crate) fn server(&self, name: &str) -> Result<HttpGateway, Problem> {
        let unknown = || Problem::not_found(format!("there is no server `{name}`"));
        self.own.server(name).ok_or_else(unknown)
    }

    /// The servers of an agent, which are started if they do not run yet.
    pub(crate) async fn agent(&self, id: &str) -> Result<HttpGateway, Problem> {
        if self.service().agent() == Some(id) {
            return Ok(self.all());
        }
        let place = self.place(id)?;
        let rack = place.get_or_try_init(|| self.open(id)).await?;
        Ok(rack.all.clone())
    }

    /// Where the servers of an agent are, or will be.
    fn place(&self, id: &str) -> Result<Arc<OnceCell<Rack>>, Problem> {
        let known = self.service().agents();
        let mut agents = held(&self.agents);
        let is_gone = |it: &String| !known.contains(it);
        let gone: Vec<String> = agents.keys().filter(|it| is_gone(it)).cloned().collect();
        for rack in gone.iter().filter_map(|it| agents.remove(it)) {
            self.tasks.spawn(async move { close(&rack).await });
        }
        if !known.iter().any(|it| it == id) {
            return Err(Problem::not_found(format!(
                "there is no agent `{id}` in the config file; one server is at `/mcp/server/NAME`"
            )));
        }
        if agents.len() >= MAX_AGENTS && !agents.contains_key(id) {
            return Err(Problem::unavailable("the servers of too many agents run"));
        }
        Ok(Arc::clone(agents.entry(id.to_owned()).or_default()))
    }

    async fn open(&self, id: &str) -> Result<Rack, Problem> {
        let Origin { home, options } = &self.origin;
        let opened = Opened::open(home.clone(), options.clone(), Some(id)).await;
        let opened = opened.map_err(|error| match error {
            DaemonError::Service(error) => Problem::from(error),
            error => Problem::internal(error.to_string()),
        })?;
        let events = opened.service.subscribe();
        let listening =
            Arc::clone(&self.chronicle).listen_beside(id.to_owned(), events, self.silence.clone());
        self.tasks.spawn(listening);
        Ok(Rack::new(opened))
    }

    fn others(&self) -> Vec<Arc<OnceCell<Rack>>> {
        held(&self.agents).values().cloned().collect()
    }

    /// Ends streams that have no end of their own.
    pub(crate) fn drain(&self) {
        let others = self.others();
        let racks = others.iter().filter_map(|it| it.get()).chain([&self.own]);
        racks.flat_map(Rack::endpoints).for_each(|it| it.drain());
    }

    /// Ends every session and every server.
    pub(crate) async fn close(&self) {
        let others = self.others();
        tokio::join!(self.own.close(), join_all(others.iter().map(|it| close(it))));
    }
}

async fn close(place: &OnceCell<Rack>) {
    if let Some(rack) = place.get() {
        rack.close().await;
    }
}

// One insert or remove each, so a panic elsewhere cannot have torn it.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

// `/mcp`: the servers themselves, for clients that speak MCP. It is no part of the API, so its description is not
// either.

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/mcp", any(all))
        .route("/mcp/{agent}", any(agent))
        .route("/mcp/server/{name}", any(server))
}

async fn all(State(app): State<App>, request: Request) -> Response {
    serve(&app, Ok(app.endpoints.all()), request).await
}

async fn agent(State(app): State<App>, Path(id): Path<String>, request: Request) -> Response {
    serve(&app, app.endpoints.agent(&id).await, request).await
}

async fn server(State(app): State<App>, Path(name): Path<String>, request: Request) -> Response {
    serve(&app, app.endpoints.server(&name), request).await
}

async fn serve(app: &App, endpoint: Result<HttpGateway, Problem>, request: Request) -> Response {
    if app.is_draining() {
        return Problem::unavailable("the daemon is about to end").into_response();
    }
    match endpoint {
        Ok(endpoint) => endpoint.handle(request).await.map(Body::new),
        Err(problem) => problem.into_response(),
    }
}
