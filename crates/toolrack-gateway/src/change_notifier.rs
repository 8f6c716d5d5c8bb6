//! What happens at servers, told to every client that wants to hear of it.
//!
//! **Invariant:** nothing is told twice for one change, and many changes in a short time are told as one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use toolrack_client::{Event, McpClient};
use toolrack_manager::{ConnectionState, McpConnection, RackEvent, RackEvents};
use toolrack_mcp::{Era, ListKind};

use crate::gateway::Shared;
use crate::lock::lock;

/// How long changes are gathered before they are told.
const GATHER: Duration = Duration::from_millis(50);
/// How often requests that wait for their clients are looked through.
const SWEEP: Duration = Duration::from_secs(30);

/// Which lists have changed.
#[expect(clippy::struct_excessive_bools, reason = "one for each list")]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Changed {
    tools: bool,
    prompts: bool,
    resources: bool,
}

/// What each server had to list when it was last heard of, so that only those are told of that had something, or have
/// it now.
type Known = HashMap<Arc<str>, Changed>;

impl Changed {
    fn and(self, more: Self) -> Self {
        Self {
            tools: self.tools || more.tools,
            prompts: self.prompts || more.prompts,
            resources: self.resources || more.resources,
        }
    }
}

/// Runs until the gateway or the manager is gone.
pub(crate) async fn spread(shared: Arc<Shared>, events: RackEvents) {
    follow(&shared, events).await;
    // A gateway that is dropped and not closed lets go of them here.
    shared.parked.clear();
}

async fn follow(shared: &Arc<Shared>, mut events: RackEvents) {
    let mut changed = Changed::default();
    let servers = shared.servers();
    let mut known: Known = servers.iter().map(|it| (it.name().into(), contents(it))).collect();
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
                let more = hear(shared, &mut known, event);
                if more != Changed::default() {
                    changed = changed.and(more);
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
    if changed.prompts {
        shared.audience.list_changed(ListKind::Prompts);
    }
    if changed.resources {
        shared.audience.list_changed(ListKind::Resources);
    }
}

/// What an event means for lists. What is not about lists is told at once.
fn hear(shared: &Arc<Shared>, known: &mut Known, event: RackEvent) -> Changed {
    let nothing = Changed::default();
    match event {
        RackEvent::Tools { server, .. } if shared.scope.has(&server) => {
            Changed { tools: true, ..nothing }
        }
        RackEvent::State { server, state } if shared.scope.has(&server) => {
            if state == ConnectionState::Connected {
                shared.switchboard.renewed(&server);
                welcome(shared, &server);
            }
            // A server that is not there shows no prompts and no resources; its tools are remembered.
            let now = shared.manager.server(&server).map(|it| contents(&it)).unwrap_or_default();
            let before = known.insert(server, now).unwrap_or_default();
            Changed { tools: tools_differ(shared), ..now.and(before) }
        }
        // Of a server that is gone nothing else is heard.
        RackEvent::ConfigApplied { plan } => {
            let gone = plan.disconnect.iter().filter(|it| shared.scope.has(it));
            let lost = gone
                .map(|it| Changed { tools: true, ..known.remove(it.as_str()).unwrap_or_default() });
            lost.fold(nothing, Changed::and)
        }
        RackEvent::Said { server, event: Event::SubscriptionEnded { uris } } => {
            if !uris.is_empty() {
                renew(shared, &server);
            }
            nothing
        }
        RackEvent::Said { server, event } if shared.scope.has(&server) => {
            said(shared, &server, event);
            nothing
        }
        RackEvent::Missed(_) => Changed { tools: true, prompts: true, resources: true },
        _ => nothing,
    }
}

fn said(shared: &Shared, server: &str, event: Event) {
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
}

/// Whether the manager lists other tools than were shown last.
fn tools_differ(shared: &Shared) -> bool {
    let now = shared.manager.all_tools();
    lock(&shared.written_tools).as_ref().is_some_and(|(shown, ..)| !Arc::ptr_eq(shown, &now))
}

/// What a server has to list besides tools, as far as it is there.
fn contents(server: &McpConnection) -> Changed {
    let offered = server.client().map(McpClient::capabilities);
    offered.map_or(Changed::default(), |it| Changed {
        tools: false,
        prompts: it.prompts.is_some(),
        resources: it.resources.is_some(),
    })
}

/// A server that was started anew does not know what clients had asked of it before.
fn welcome(shared: &Arc<Shared>, server: &Arc<str>) {
    let (this, server) = (Arc::clone(shared), Arc::clone(server));
    spawn(shared, async move {
        this.restore_level(&server).await;
        this.resubscribe(&server).await;
    });
}

/// A server has ended a subscription that clients rely on.
fn renew(shared: &Arc<Shared>, server: &Arc<str>) {
    let (this, server) = (Arc::clone(shared), Arc::clone(server));
    spawn(shared, async move { this.resubscribe(&server).await });
}

fn spawn(shared: &Shared, work: impl Future<Output = ()> + Send + 'static) {
    let stop = shared.stop.clone();
    shared.tracker.spawn(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
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
