//! Lists of servers that do not tell when theirs change: fetched again when somebody asks for them.
//!
//! **Invariant:** a server is asked once at a time and once in a while, and nobody waits long for that. What is known
//! is used until something else is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};
use toolrack_client::Listing;
use toolrack_mcp::Tool;

use crate::call::Called;
use crate::error::RackError;
use crate::manager::{McpManager, Shared};
use crate::server_snapshot::{Link, McpConnection};
use crate::snapshot::Snapshot;
use crate::supervisor::Order;

/// How long a list is used at least, whatever its server says.
const FLOOR: Duration = Duration::from_secs(1);
/// How long whoever asks for the tools waits for a new list.
const WAIT: Duration = Duration::from_secs(1);

/// When the tools of a connection were asked for last.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<State>);

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Never,
    Now,
    At(Instant),
}

impl Asked {
    /// Takes the turn to ask, if nobody is asking and the last time is long enough ago.
    fn begin(&self, now: Instant) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = match *state {
            State::Never => true,
            State::Now => false,
            State::At(last) => now.duration_since(last) >= FLOOR,
        };
        if is_due {
            *state = State::Now;
        }
        is_due
    }

    fn end(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::At(now);
    }
}

/// Whether a server has tools and does not tell when they change.
fn is_silent(link: &Link) -> bool {
    link.client.capabilities().tools.as_ref().is_some_and(|it| !it.list_changed)
}

/// Whether two lists say the same, to the letter.
fn is_same(one: &Listing<Tool>, two: &Listing<Tool>) -> bool {
    let written = |it: &Listing<Tool>| serde_json::to_vec(&it.items).ok();
    one.cut == two.cut && one.skipped == two.skipped && written(one) == written(two)
}

impl McpManager {
    /// Asks servers that do not tell when their tools change for them again, if what is known may be out of date, and
    /// waits for a moment. A list that comes later counts from then on.
    ///
    /// # Cancel safety
    /// Dropping the future only ends the wait.
    pub async fn refresh(&self) {
        let servers = self.servers();
        let mut fetches = Vec::new();
        for server in servers {
            let Some(link) = server.link.clone().filter(|it| is_silent(it)) else { continue };
            if link.asked.begin(Instant::now()) {
                let fetch = fetch(Arc::clone(&self.shared), server, link);
                fetches.push(self.shared.tracker.spawn(fetch));
            }
        }
        if !fetches.is_empty() && timeout(WAIT, join_all(fetches)).await.is_err() {
            tracing::debug!("a list of tools takes its time; what is known is used");
        }
    }

    /// The present, for a call of a tool that somebody is known to have.
    pub(crate) fn look(&self, called: Called<'_>) -> Result<Arc<Snapshot>, Unheard> {
        let snapshot = self.shared.snapshot.load_full();
        if is_unheard_of(&snapshot, called) { Err(Unheard) } else { Ok(snapshot) }
    }

    /// The present, for a call of a tool that nobody is known to have.
    pub(crate) async fn look_again(&self) -> Arc<Snapshot> {
        self.refresh().await;
        self.shared.snapshot.load_full()
    }
}

/// Nobody is known to have a tool.
pub(crate) struct Unheard;

/// Whether nobody is known to have the tool that is called.
fn is_unheard_of(snapshot: &Snapshot, called: Called<'_>) -> bool {
    let has = |server: &McpConnection, tool: &str| server.toolset.has(tool);
    match called {
        Called::Public(name) => match snapshot.resolve(name) {
            Ok(target) => !has(target.connection, target.tool),
            Err(refusal) => matches!(refusal, RackError::NoSuchTool { .. }),
        },
        Called::Of { server, tool } => snapshot.server(server).is_ok_and(|it| !has(it, tool)),
    }
}

async fn fetch(shared: Arc<Shared>, server: Arc<McpConnection>, link: Arc<Link>) {
    let Some(visit) = link.usage.enter() else { return link.asked.end(Instant::now()) };
    // Bounded by the time of a call. The client keeps a list as long as its server allows.
    let listed = tokio::select! {
        () = shared.stop.cancelled() => return,
        listed = link.client.list_tools() => listed,
    };
    drop(visit);
    link.asked.end(Instant::now());
    match listed {
        Ok(listed) if !server.listing().is_some_and(|it| is_same(it, &listed)) => {
            let learned = shared.order(vec![Order::Learn(server.name().to_owned(), link.epoch)]);
            if let Err(error) = learned.await {
                tracing::debug!(server = server.name(), %error, "a new list of tools came too late");
            }
        }
        Ok(_same) => {}
        Err(error) => {
            tracing::debug!(server = server.name(), %error, "the tools could not be fetched again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_once_at_a_time_and_once_in_a_while() {
        let (asked, start) = (Asked::default(), Instant::now());
        assert!(asked.begin(start));
        assert!(!asked.begin(start + FLOOR * 9), "it is being asked");
        asked.end(start);
        assert!(!asked.begin(start + FLOOR / 2));
        assert!(asked.begin(start + FLOOR));
    }
}
