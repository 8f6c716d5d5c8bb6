//! What every route has at hand.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_service::{LocalService, ServiceError};
use uuid::Uuid;

use crate::event_recorder::Chronicle;
use crate::mcp_endpoints::Endpoints;
use crate::problem::Problem;
use crate::tokens::Keys;

/// Streams of events at once. Further ones are refused.
const MAX_STREAMS: usize = 64;

/// What every route has at hand. Cheap to clone.
pub(crate) type App = Arc<Shared>;

/// One daemon, as its routes see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) service: Arc<LocalService>,
    pub(crate) chronicle: Arc<Chronicle>,
    pub(crate) endpoints: Endpoints,
    pub(crate) keys: Keys,
    pub(crate) addr: Option<SocketAddr>,
    pub(crate) socket: PathBuf,
    pub(crate) started_ms: u64,
    pub(crate) streams: Arc<Semaphore>,
    /// Calls that this API has made and can take back.
    calls: Mutex<HashMap<u64, CancellationToken>>,
    /// Held while a config is read, changed and written, so that two patches do not undo each other.
    pub(crate) patching: Mutex<()>,
    /// Somebody has asked the daemon to end.
    pub(crate) farewell: CancellationToken,
    /// Ends what has no end of its own, such as streams of events.
    pub(crate) stop: CancellationToken,
    /// Work that goes on when its client has gone.
    pub(crate) tasks: TaskTracker,
    is_draining: AtomicBool,
}

/// A call of this API, known as long as it runs.
#[derive(Debug)]
pub(crate) struct OwnCall {
    app: App,
    number: u64,
    pub(crate) recall: CancellationToken,
}

impl Shared {
    pub(crate) fn new(
        endpoints: Endpoints,
        keys: Keys,
        addr: Option<SocketAddr>,
        socket: PathBuf,
    ) -> Self {
        Self {
            service: Arc::clone(endpoints.service()),
            chronicle: Arc::clone(endpoints.chronicle()),
            endpoints,
            keys,
            addr,
            socket,
            started_ms: crate::event_log::wall_clock_ms(),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            calls: Mutex::default(),
            patching: Mutex::default(),
            farewell: CancellationToken::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            is_draining: AtomicBool::new(false),
        }
    }

    /// Whether new work is refused because the daemon is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// The server that a path names, by its id or its name.
    pub(crate) fn server(&self, named: &str) -> Result<Uuid, Problem> {
        let id = named.parse().ok().or_else(|| self.service.id_of(named));
        id.ok_or_else(|| Problem::not_found("no server has this id or name"))
    }

    /// Begins a call that can be taken back.
    pub(crate) fn begin_call(self: &Arc<Self>, number: u64) -> OwnCall {
        let recall = CancellationToken::new();
        self.calls().insert(number, recall.clone());
        OwnCall { app: Arc::clone(self), number, recall }
    }

    /// Takes a call back, and says whether it was one of ours.
    pub(crate) fn recall(&self, number: u64) -> bool {
        let found = self.calls().get(&number).cloned();
        found.is_some_and(|it| {
            it.cancel();
            true
        })
    }

    // One insert or remove each, so a panic elsewhere cannot have torn it.
    fn calls(&self) -> MutexGuard<'_, HashMap<u64, CancellationToken>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OwnCall {
    fn drop(&mut self) {
        self.app.calls().remove(&self.number);
    }
}

/// Does something that touches the disk where it holds up nobody.
pub(crate) async fn blocking<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&Shared) -> Result<T, ServiceError> + Send + 'static,
) -> Result<T, Problem> {
    let app = Arc::clone(app);
    match tokio::task::spawn_blocking(move || work(&app)).await {
        Ok(done) => done.map_err(Problem::from),
        Err(_crashed) => Err(Problem::internal("the work was not finished")),
    }
}
