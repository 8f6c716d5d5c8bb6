//! Waiting for servers: for all of them, and for the one that a call is for.
//!
//! **Invariant:** every wait has an end, which is the manager's own at the latest.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use toolrack_transport::after;

use crate::connection_state::ConnectionState;
use crate::error::RackError;
use crate::lifecycle::event::Epoch;
use crate::manager::{McpManager, Shared, is_settled, start_limit};
use crate::retry_policy::{Route, Standing, Waits, route};
use crate::server_snapshot::McpConnection;
use crate::snapshot::Snapshot;
use crate::supervisor::Command;

/// What a start may take beyond its own limit: its turn, its end, and hearing of it.
const START_SLACK: Duration = Duration::from_secs(15);

impl McpManager {
    /// Waits until no server is being connected any more, for so long at most, and gives those that take no calls:
    /// what is still being connected, and what has failed. Each says why with its state.
    ///
    /// A server that is disabled, was stopped, or is started by its first call is not among them.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn ready(&self, within: Duration) -> Vec<Arc<McpConnection>> {
        let deadline = after(Instant::now(), within);
        self.shared.until(deadline, |it| it.servers().iter().all(|it| is_settled(it))).await;
        let is_missing =
            |it: &Arc<McpConnection>| !is_settled(it) || it.state().failure().is_some();
        self.servers().into_iter().filter(is_missing).collect()
    }

    /// Waits until a start has come to an end, whichever.
    pub(crate) async fn settled(&self, name: &str) -> Result<Arc<McpConnection>, RackError> {
        let limit = start_limit(&self.server(name)?.config).saturating_add(START_SLACK);
        let deadline = after(Instant::now(), limit);
        let is_done = |it: &Snapshot| it.server(name).map_or(true, |server| is_settled(server));
        if !self.shared.until(deadline, is_done).await && self.shared.stop.is_cancelled() {
            return Err(RackError::Closed);
        }
        self.server(name)
    }
}

impl Shared {
    /// Waits until `fact` holds, and until `deadline` or the end of the manager at the latest. `true` if it holds.
    pub(crate) async fn until(
        &self,
        deadline: Instant,
        mut fact: impl FnMut(&Snapshot) -> bool,
    ) -> bool {
        let mut version = self.version.subscribe();
        loop {
            if fact(&self.snapshot.load()) {
                return true;
            }
            if self.stop.is_cancelled() {
                return false;
            }
            match timeout_at(deadline, version.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return fact(&self.snapshot.load()),
            }
        }
    }

    /// A server that takes requests, after it was started if need be. The launch to `avoid` lets nobody in.
    pub(crate) async fn reach(
        &self,
        server: &str,
        avoid: Option<Epoch>,
    ) -> Result<Arc<McpConnection>, RackError> {
        let connection = Arc::clone(self.snapshot.load().server(server)?);
        if connection.link.as_ref().is_some_and(|it| avoid != Some(it.epoch)) {
            return Ok(connection);
        }
        let waits = self.waits(&connection);
        self.ready(&connection.name, avoid, waits).await
    }

    pub(crate) fn waits(&self, connection: &McpConnection) -> Waiting {
        let now = Instant::now();
        let startup = start_limit(&connection.config);
        Waiting { began: now, waits: Waits::begin(now, startup, self.patience.retry) }
    }

    /// Waits until a server takes calls, or is known not to in time.
    pub(crate) async fn ready(
        &self,
        server: &Arc<str>,
        avoid: Option<Epoch>,
        waiting: Waiting,
    ) -> Result<Arc<McpConnection>, RackError> {
        let mut version = self.version.subscribe();
        let mut demanded: Option<Standing> = None;
        loop {
            version.borrow_and_update();
            if self.stop.is_cancelled() {
                return Err(RackError::Closed);
            }
            let connection = Arc::clone(self.snapshot.load().server(server)?);
            let standing = connection.standing;
            let until = match route(standing, avoid, &waiting.waits, Instant::now()) {
                Route::Send => return Ok(connection),
                Route::Refuse => return Err(refused(&connection, waiting.began)),
                Route::Wait(until) => until,
                Route::Demand(until) => {
                    if demanded.replace(standing) != Some(standing) {
                        let demand = self.commands.send(Command::Demand(Arc::clone(server)));
                        let sent = timeout_at(until, demand).await;
                        sent.map_or(Ok(()), |sent| sent.map_err(|_gone| RackError::Closed))?;
                    }
                    until
                }
            };
            if let Ok(Err(_gone)) = timeout_at(until, version.changed()).await {
                return Err(RackError::Closed);
            }
        }
    }
}

/// How long a call waits for its server, and since when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    began: Instant,
    waits: Waits,
}

fn refused(connection: &McpConnection, began: Instant) -> RackError {
    let (server, state) = (connection.name().to_owned(), connection.state().clone());
    let waited = began.elapsed();
    match state {
        ConnectionState::Connecting | ConnectionState::Connected => {
            RackError::NotReady { server, state, waited }
        }
        state => RackError::NotConnected { server, state },
    }
}
