//! Notifies clients of changes at servers, debounced.
//!
//! One task per gateway follows the manager's events. List changes are collected for [`DEBOUNCE`] and sent as one
//! notification per list; other events are acted on at once.
//!
//! **Invariant:** one change causes one notification, and many changes within [`DEBOUNCE`] cause one together.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use toolrack_client::{Event, McpClient};
use toolrack_manager::{ConnectionState, ManagerEvent, ManagerEvents, McpConnection};
use toolrack_mcp::ListKind;

use crate::gateway::Shared;
use crate::subscriptions;

/// How long list changes are collected before clients are notified.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// How often suspended requests are checked for expiry.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(30);

/// The lists besides tools that each server offered when its state last changed. A state change is reported only for
/// lists that the server offered before or offers now.
type OfferedLists = HashMap<Arc<str>, Vec<ListKind>>;

/// Runs until the gateway closes or the manager is gone.
pub(crate) async fn run(shared: Arc<Shared>, mut events: ManagerEvents) {
    let mut changed = BTreeSet::new();
    let servers = shared.servers();
    let mut offered: OfferedLists =
        servers.iter().map(|server| (server.name().into(), offered_lists(server))).collect();
    let mut notify_at: Option<Instant> = None;
    let mut expire_at = Instant::now() + EXPIRY_INTERVAL;
    loop {
        let deadline = notify_at.unwrap_or(expire_at);
        tokio::select! {
            // The timer comes before the events, so that a flood of events cannot starve it.
            biased;
            () = shared.stop.cancelled() => break,
            () = sleep_until(deadline) => {
                shared.suspended.drop_expired();
                expire_at = Instant::now() + EXPIRY_INTERVAL;
                if notify_at.take().is_some() {
                    for kind in std::mem::take(&mut changed) {
                        shared.list_changed(kind);
                    }
                }
            }
            event = events.next() => {
                let Some(event) = event else { break };
                let lists = handle_event(&shared, &mut offered, event);
                if !lists.is_empty() {
                    changed.extend(lists);
                    // The first change sets the deadline: a stream of changes cannot postpone it forever.
                    notify_at.get_or_insert_with(|| Instant::now() + DEBOUNCE);
                }
            }
        }
    }
    // A gateway that is dropped without `close` breaks the cycle of suspended requests here.
    shared.suspended.close();
}

/// Acts on an event and returns the lists that it changes.
fn handle_event(
    shared: &Arc<Shared>,
    offered: &mut OfferedLists,
    event: ManagerEvent,
) -> Vec<ListKind> {
    match event {
        ManagerEvent::ToolsChanged { server, .. } if shared.scope.contains(&server) => {
            vec![ListKind::Tools]
        }
        ManagerEvent::StateChanged { server, state } if shared.scope.contains(&server) => {
            if state == ConnectionState::Connected {
                shared.router.server_restarted(&server);
                let (this, server) = (Arc::clone(shared), Arc::clone(&server));
                // The new process knows neither log level nor subscriptions.
                shared.spawn(async move {
                    this.restore_log_level(&server).await;
                    subscriptions::resubscribe(&this, &server).await;
                });
            }
            // Prompts and resources of a disconnected server disappear; its tools stay listed from the tool cache.
            let connection = shared.manager.server(&server);
            let now = connection.map(|server| offered_lists(&server)).unwrap_or_default();
            let mut lists = offered.insert(server, now.clone()).unwrap_or_default();
            lists.extend(now);
            // Most state changes leave the tools as they are, so only an outdated list is
            // announced.
            lists.extend(shared.have_tools_changed().then_some(ListKind::Tools));
            lists
        }
        // A removed server sends no other event.
        ManagerEvent::ConfigApplied { plan } => {
            let mut lost = Vec::new();
            for server in plan.disconnect.iter().filter(|server| shared.scope.contains(server)) {
                shared.forget_lists(server);
                lost.extend(offered.remove(server.as_str()).unwrap_or_default());
                lost.push(ListKind::Tools);
            }
            lost
        }
        ManagerEvent::ServerEvent { server, event: Event::SubscriptionEnded { uris } } => {
            // No check of the scope: a server outside of it has no subscriptions to renew.
            if !uris.is_empty() {
                let this = Arc::clone(shared);
                shared.spawn(async move { subscriptions::resubscribe(&this, &server).await });
            }
            Vec::new()
        }
        ManagerEvent::ServerEvent { server, event } if shared.scope.contains(&server) => {
            match event {
                Event::PromptsChanged => {
                    shared.list_cache.prompts.invalidate(&server);
                    shared.list_changed(ListKind::Prompts);
                }
                Event::ResourcesChanged => {
                    shared.list_cache.resources.invalidate(&server);
                    shared.list_cache.templates.invalidate(&server);
                    shared.list_changed(ListKind::Resources);
                }
                Event::ResourceUpdated { uri } => shared.resource_updated(&uri),
                _ => {}
            }
            Vec::new()
        }
        // Events were dropped: any list may have changed.
        ManagerEvent::Lagged(_) => vec![ListKind::Tools, ListKind::Prompts, ListKind::Resources],
        _ => Vec::new(),
    }
}

/// The lists besides tools that a connected server offers.
fn offered_lists(server: &McpConnection) -> Vec<ListKind> {
    let Some(capabilities) = server.client().map(McpClient::capabilities) else {
        return Vec::new();
    };
    let prompts = capabilities.prompts.map(|_| ListKind::Prompts);
    let resources = capabilities.resources.map(|_| ListKind::Resources);
    prompts.into_iter().chain(resources).collect()
}
