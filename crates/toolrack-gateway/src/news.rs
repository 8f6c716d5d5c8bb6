//! What happens at servers, told to every client that wants to hear of it.
//!
//! **Invariant:** nothing is told twice for one change, and many changes in a short time are told as one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use toolrack_client::{Event, McpClient};
use toolrack_manager::{ConnectionState, RackEvent, RackEvents};
use toolrack_mcp::{Era, ListKind};

use crate::gateway::Shared;
use crate::lock::lock;

/// How long changes are gathered before they are told.
const GATHER: Duration = Duration::from_millis(50);
/// How often requests that wait for their clients are looked through.
const SWEEP: Duration = Duration::from_secs(30);

/// Which lists have changed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Changed {
    tools: bool,
    contents: bool,
}

/// Runs until the gateway or the manager is gone.
pub(crate) async fn spread(shared: Arc<Shared>, events: RackEvents) {
    follow(&shared, events).await;
    // A gateway that is dropped and not closed lets go of them here.
    shared.parked.clear();
}

async fn follow(shared: &Arc<Shared>, mut events: RackEvents) {
    let mut changed = Changed::default();
    let mut tell_at: Option<Instant> = None;
    let mut sweep_at = Instant::now() + SWEEP;
    loop {
        let due = tell_at.unwrap_or(sweep_at);
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = sleep_until(due) => {
                shared.parked.expire();
                sweep_at = Instant::now() + SWEEP;
                if tell_at.take().is_some() {
                    tell(shared, std::mem::take(&mut changed));
                }
            }
            event = events.next() => {
                let Some(event) = event else { return };
                if let Some(more) = hear(shared, event) {
                    changed.tools |= more.tools;
                    changed.contents |= more.contents;
                    tell_at.get_or_insert_with(|| Instant::now() + GATHER);
                }
            }
        }
    }
}

fn tell(shared: &Shared, changed: Changed) {
    if changed.tools {
        shared.audience.list_changed(ListKind::Tools);
    }
    if changed.contents {
        shared.audience.list_changed(ListKind::Prompts);
        shared.audience.list_changed(ListKind::Resources);
    }
}

/// What an event means for lists, if anything. What is not about lists is told at once.
fn hear(shared: &Arc<Shared>, event: RackEvent) -> Option<Changed> {
    match event {
        RackEvent::Tools { server, .. } if shared.scope.has(&server) => {
            Some(Changed { tools: true, contents: false })
        }
        RackEvent::State { server, state } if shared.scope.has(&server) => {
            if state == ConnectionState::Connected {
                shared.switchboard.renewed(&server);
                welcome(shared, &server);
            }
            // A server that is not there shows no prompts and no resources; its tools are remembered.
            Some(Changed { tools: tools_differ(shared), contents: has_contents(shared, &server) })
        }
        RackEvent::Said { server, event } if shared.scope.has(&server) => {
            said(shared, &server, event)
        }
        RackEvent::Missed(_) => Some(Changed { tools: true, contents: true }),
        _ => None,
    }
}

fn said(shared: &Shared, server: &str, event: Event) -> Option<Changed> {
    match event {
        Event::PromptsChanged => {
            shared.catalogue.prompts.forget(server);
            shared.audience.list_changed(ListKind::Prompts);
        }
        Event::ResourcesChanged => {
            shared.catalogue.resources.forget(server);
            shared.catalogue.templates.forget(server);
            shared.audience.list_changed(ListKind::Resources);
        }
        Event::ResourceUpdated { uri } => shared.audience.updated(&uri),
        _ => {}
    }
    None
}

/// Whether the manager lists other tools than were shown last.
fn tools_differ(shared: &Shared) -> bool {
    let now = shared.manager.all_tools();
    lock(&shared.written_tools).as_ref().is_some_and(|(shown, _)| !Arc::ptr_eq(shown, &now))
}

fn has_contents(shared: &Shared, server: &str) -> bool {
    let Ok(connection) = shared.manager.server(server) else { return true };
    let offers = connection.client().map(McpClient::capabilities);
    offers.is_none_or(|it| it.prompts.is_some() || it.resources.is_some())
}

/// A server that was started anew does not know what clients had asked of it before.
fn welcome(shared: &Arc<Shared>, server: &Arc<str>) {
    let (shared, server) = (Arc::clone(shared), Arc::clone(server));
    let tracker = shared.tracker.clone();
    tracker.spawn(async move {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => {}
            () = async {
                shared.restore_level(&server).await;
                shared.resubscribe(&server).await;
            } => {}
        }
    });
}

/// Something that is told by one task at a time, however often it changes: what changes meanwhile is told once more.
#[derive(Debug, Default)]
pub(crate) struct Telling(Mutex<Stage>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    Telling,
    /// It has changed since the task began to tell.
    Again,
}

impl Telling {
    /// It has changed. `true` if a task has to begin to tell it.
    pub(crate) fn begin(&self) -> bool {
        let mut stage = lock(&self.0);
        let before = *stage;
        *stage = if before == Stage::Idle { Stage::Telling } else { Stage::Again };
        before == Stage::Idle
    }

    /// It was told. `true` if the task has to tell it once more, or else it ends.
    pub(crate) fn goes_on(&self) -> bool {
        let mut stage = lock(&self.0);
        let before = *stage;
        *stage = if before == Stage::Again { Stage::Telling } else { Stage::Idle };
        before == Stage::Again
    }
}

impl Shared {
    /// Legacy servers are told when the directories of their only client changed; they may ask for them then.
    pub(crate) async fn roots_changed(&self) {
        for server in self.servers() {
            if let Some(client) = server.client().filter(|it| it.era() == Era::Legacy)
                && let Err(error) = client.roots_changed().await
            {
                tracing::debug!(server = server.name(), %error, "changed roots were not told");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_tells_however_often_it_changes() {
        let telling = Telling::default();
        assert!(telling.begin());
        for _ in 0..1_000 {
            assert!(!telling.begin(), "one is at it");
        }
        assert!(telling.goes_on(), "once more for all of them");
        assert!(!telling.goes_on());
        assert!(telling.begin(), "the task has ended");
        assert!(!telling.goes_on());
    }
}
