//! Shared state of all routes (`AppState`).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_service::{LocalService, ServiceError};
use uuid::Uuid;

use crate::event_recorder::EventRecorder;
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
    pub(crate) addr: Option<SocketAddr>,
    pub(crate) socket: PathBuf,
    pub(crate) started_ms: u64,
    pub(crate) event_streams: Arc<Semaphore>,
    /// Cancellation tokens of the calls made through this API.
    calls: Mutex<HashMap<u64, CancellationToken>>,
    /// Serializes read-modify-write of a server config, so that concurrent patches do not overwrite each other.
    pub(crate) config_edit_lock: Mutex<()>,
    /// Cancelled when a client requests a stop.
    pub(crate) stop_requested: CancellationToken,
    /// Cancelled at shutdown. Ends endless responses such as event streams.
    pub(crate) shutdown: CancellationToken,
    /// Work that continues after its client disconnects.
    pub(crate) tasks: TaskTracker,
    is_draining: AtomicBool,
}

/// A call made through this API. Unregistered on drop.
#[derive(Debug)]
pub(crate) struct CancellableCall {
    app: App,
    number: u64,
    pub(crate) cancel: CancellationToken,
}

impl AppState {
    pub(crate) fn new(
        endpoints: Endpoints,
        tokens: Tokens,
        addr: Option<SocketAddr>,
        socket: PathBuf,
    ) -> Self {
        Self {
            service: Arc::clone(endpoints.service()),
            recorder: Arc::clone(endpoints.recorder()),
            endpoints,
            tokens,
            addr,
            socket,
            started_ms: crate::event_log::unix_time_ms(),
            event_streams: Arc::new(Semaphore::new(MAX_EVENT_STREAMS)),
            calls: Mutex::default(),
            config_edit_lock: Mutex::default(),
            stop_requested: CancellationToken::new(),
            shutdown: CancellationToken::new(),
            tasks: TaskTracker::new(),
            is_draining: AtomicBool::new(false),
        }
    }

    /// Whether new calls are refused because the daemon is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Resolves a server by id or name.
    pub(crate) fn resolve_server(&self, id_or_name: &str) -> Result<Uuid, Problem> {
        let id = id_or_name.parse().ok().or_else(|| self.service.id_for_name(id_or_name));
        id.ok_or_else(|| Problem::not_found("no server with this id or name"))
    }

    /// Registers a call, so that `cancel_call` can find it.
    pub(crate) fn register_call(self: &Arc<Self>, number: u64) -> CancellableCall {
        let cancel = CancellationToken::new();
        self.calls().insert(number, cancel.clone());
        CancellableCall { app: Arc::clone(self), number, cancel }
    }

    /// Cancels a call. Returns `false` if it was not made through this API or has finished.
    pub(crate) fn cancel_call(&self, number: u64) -> bool {
        let cancel = self.calls().get(&number).cloned();
        cancel.is_some_and(|cancel| {
            cancel.cancel();
            true
        })
    }

    // A poisoned lock is safe to use: each critical section is a single insert, get or remove.
    fn calls(&self) -> MutexGuard<'_, HashMap<u64, CancellationToken>> {
        self.calls.lock()
    }
}

impl Drop for CancellableCall {
    fn drop(&mut self) {
        self.app.calls().remove(&self.number);
    }
}

/// Runs disk work on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&AppState) -> Result<T, ServiceError> + Send + 'static,
) -> Result<T, Problem> {
    let app = Arc::clone(app);
    match tokio::task::spawn_blocking(move || work(&app)).await {
        Ok(result) => result.map_err(Problem::from),
        Err(_panicked) => Err(Problem::internal("the operation did not complete")),
    }
}
