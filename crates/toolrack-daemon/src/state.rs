//! Shared state of all routes (`AppState`).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use toolrack_service::LocalService;
use uuid::Uuid;

use crate::event_recorder::EventRecorder;
use crate::http_server::Shutdown;
use crate::instance_lock::DaemonInfo;
use crate::mcp_endpoints::Endpoints;
use crate::problem::Problem;
use crate::tokens::Tokens;

/// Maximum number of concurrent event streams. Further ones get a 503.
const MAX_EVENT_STREAMS: usize = 64;

/// The axum state. Cheap to clone.
pub(crate) type App = Arc<AppState>;

/// State of one daemon, shared by its routes.
#[derive(Debug)]
pub(crate) struct AppState {
    pub(crate) service: Arc<LocalService>,
    pub(crate) recorder: Arc<EventRecorder>,
    pub(crate) endpoints: Endpoints,
    pub(crate) tokens: Tokens,
    pub(crate) info: DaemonInfo,
    pub(crate) started_ms: u64,
    pub(crate) event_streams: Arc<Semaphore>,
    /// Cancellation tokens of the calls made through this API.
    calls: Mutex<HashMap<u64, CancellationToken>>,
    /// Serializes read-modify-write of a server config, so that concurrent patches do not overwrite each other.
    pub(crate) config_edit_lock: Mutex<()>,
    /// Cancelled when a client requests a stop.
    pub(crate) stop_requested: CancellationToken,
    pub(crate) shutdown: Shutdown,
}

/// A call made through this API. Unregistered on drop.
#[derive(Debug)]
pub(crate) struct CancellableCall {
    app: App,
    number: u64,
    pub(crate) cancel: CancellationToken,
}

impl AppState {
    pub(crate) fn new(endpoints: Endpoints, tokens: Tokens, info: DaemonInfo) -> Self {
        Self {
            service: Arc::clone(&endpoints.own.service),
            recorder: Arc::clone(&endpoints.recorder),
            endpoints,
            tokens,
            info,
            started_ms: toolrack_platform::unix_time_ms(),
            event_streams: Arc::new(Semaphore::new(MAX_EVENT_STREAMS)),
            calls: Mutex::default(),
            config_edit_lock: Mutex::default(),
            stop_requested: CancellationToken::new(),
            shutdown: Shutdown::default(),
        }
    }

    /// Refuses new work once the daemon is shutting down.
    pub(crate) fn check_running(&self) -> Result<(), Problem> {
        if self.shutdown.graceful.is_cancelled() {
            return Err(Problem::unavailable("the daemon is shutting down"));
        }
        Ok(())
    }

    /// Resolves a server by id or name.
    pub(crate) fn resolve_server(&self, id_or_name: &str) -> Result<Uuid, Problem> {
        let id = id_or_name.parse().ok().or_else(|| self.service.id_for_name(id_or_name));
        id.ok_or_else(unknown_server)
    }

    /// Registers a call, so that `cancel_call` can find it.
    pub(crate) fn register_call(self: &Arc<Self>, number: u64) -> CancellableCall {
        let cancel = CancellationToken::new();
        self.calls.lock().insert(number, cancel.clone());
        CancellableCall { app: Arc::clone(self), number, cancel }
    }

    /// Cancels a call. Returns `false` if it was not made through this API or has finished.
    pub(crate) fn cancel_call(&self, number: u64) -> bool {
        let cancel = self.calls.lock().get(&number).cloned();
        cancel.inspect(CancellationToken::cancel).is_some()
    }
}

impl Drop for CancellableCall {
    fn drop(&mut self) {
        self.app.calls.lock().remove(&self.number);
    }
}

/// Runs disk work on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static, E: Into<Problem> + Send + 'static>(
    app: &App,
    work: impl FnOnce(&AppState) -> Result<T, E> + Send + 'static,
) -> Result<T, Problem> {
    let app = Arc::clone(app);
    match tokio::task::spawn_blocking(move || work(&app)).await {
        Ok(result) => result.map_err(E::into),
        Err(_panicked) => Err(Problem::internal("the operation did not complete")),
    }
}

pub(crate) fn unknown_server() -> Problem {
    Problem::not_found("no server with this id or name")
}
