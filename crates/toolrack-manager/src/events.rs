//! Events of the manager for subscribers: states, tools, calls, and stderr of servers.
//!
//! **Invariant:** emitting never waits. A slow subscriber loses the oldest events and gets their number. Without
//! subscribers, a call costs one atomic load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_util::sync::CancellationToken;
use toolrack_transport::Delivery;

use crate::lifecycle::{ConnectPhase, ConnectionState};

/// How many events wait for a slow subscriber. When the queue is full, the oldest is overwritten.
const CAPACITY: usize = 1024;

/// Event of the manager.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ManagerEvent {
    /// The connection state of a server changed.
    StateChanged {
        /// Name of the server.
        server: Arc<str>,
        /// The new state.
        state: ConnectionState,
    },
    /// A server that is connecting entered the next phase.
    PhaseChanged {
        /// Name of the server.
        server: Arc<str>,
        /// The new phase.
        phase: ConnectPhase,
    },
    /// The installer of a server's package printed a line. It is sanitized.
    InstallerOutput {
        /// Name of the server.
        server: Arc<str>,
        /// The line.
        line: Arc<str>,
    },
    /// The tools of a server changed. Names are those on the server.
    ToolsChanged {
        /// Name of the server.
        server: Arc<str>,
        /// New tools.
        added: Vec<Arc<str>>,
        /// Tools that no longer exist.
        removed: Vec<Arc<str>>,
        /// Tools whose description or schema changed.
        changed: Vec<Arc<str>>,
    },
    /// A call started.
    CallStarted {
        /// Id of the call.
        id: u64,
        /// Name of the server.
        server: Arc<str>,
        /// Name of the tool on its server.
        tool: Arc<str>,
    },
    /// A call finished.
    CallFinished {
        /// Id of the call, as in [`ManagerEvent::CallStarted`].
        id: u64,
        /// Name of the server.
        server: Arc<str>,
        /// Name of the tool on its server.
        tool: Arc<str>,
        /// Result of the call.
        outcome: CallOutcome,
        /// Whether the server may have received the request.
        delivery: Delivery,
        /// Time from the caller's request to the outcome.
        duration: Duration,
        /// Size of the arguments.
        argument_bytes: usize,
        /// Size of the result.
        result_bytes: usize,
    },
    /// A server wrote a line to stderr. It is sanitized.
    Stderr {
        /// Name of the server.
        server: Arc<str>,
        /// The line.
        line: Arc<str>,
    },
    /// Something is suspicious but works, such as a pattern that matches no tool.
    Warning {
        /// Name of the server, if the warning is about one.
        server: Option<Arc<str>>,
        /// The warning.
        message: String,
    },
    /// A server sent a notification: changed prompts or resources, log messages.
    ServerEvent {
        /// Name of the server.
        server: Arc<str>,
        /// The notification.
        event: toolrack_client::Event,
    },
    /// A config file is invalid; the servers stay as they are.
    ConfigRejected {
        /// All errors of the file.
        message: String,
    },
    /// A changed config is in effect.
    ConfigApplied {
        /// Servers that were connected, disconnected, reconnected or adjusted.
        plan: toolrack_config::ConfigDiff,
    },
    /// This subscriber was too slow and lost this many events.
    Lagged(u64),
}

/// Result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOutcome {
    /// The tool returned a result.
    Done,
    /// The tool ran and reported an error.
    ToolError,
    /// The call failed without a result.
    Failed,
    /// The caller dropped the call.
    Cancelled,
}

/// Sending half: broadcasts events to all subscribers.
#[derive(Debug, Clone)]
pub(crate) struct EventSender {
    sender: broadcast::Sender<ManagerEvent>,
    n_subscribers: Arc<AtomicUsize>,
    /// Cancelled after the last event.
    closed: CancellationToken,
}

/// Subscription to the events of a manager.
#[derive(Debug)]
pub struct ManagerEvents {
    receiver: broadcast::Receiver<ManagerEvent>,
    n_subscribers: Arc<AtomicUsize>,
    closed: CancellationToken,
}

impl Default for EventSender {
    fn default() -> Self {
        let (sender, _receiver) = broadcast::channel(CAPACITY);
        Self { sender, n_subscribers: Arc::default(), closed: CancellationToken::new() }
    }
}

impl EventSender {
    /// One atomic load: `receiver_count` of the channel takes a lock, and every call asks.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.n_subscribers.load(Ordering::Relaxed) > 0
    }

    /// Emits an event, which is built only if there are subscribers.
    pub(crate) fn emit(&self, event: impl FnOnce() -> ManagerEvent) {
        if self.has_subscribers() {
            // Fails if the last subscriber was dropped meanwhile, which is fine.
            self.sender.send(event()).unwrap_or(0);
        }
    }

    pub(crate) fn subscribe(&self) -> ManagerEvents {
        let receiver = self.sender.subscribe();
        // After the channel's own subscribe: an event that passes the count check
        // finds the receiver.
        self.n_subscribers.fetch_add(1, Ordering::Relaxed);
        let (n_subscribers, closed) = (Arc::clone(&self.n_subscribers), self.closed.clone());
        ManagerEvents { receiver, n_subscribers, closed }
    }

    /// Subscribers get all events emitted so far, and then the end of the stream.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }
}

impl ManagerEvents {
    /// The next event, in order. `None` after the last event of a manager that is closed or dropped.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<ManagerEvent> {
        let event = tokio::select! {
            biased;
            // First, so that queued events are delivered before the end of the stream.
            event = self.receiver.recv() => event,
            // An event may have arrived between the two polls.
            () = self.closed.cancelled() => match self.receiver.try_recv() {
                Ok(event) => Ok(event),
                Err(TryRecvError::Lagged(n_lost)) => Err(RecvError::Lagged(n_lost)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => Err(RecvError::Closed),
            },
        };
        match event {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(n_lost)) => Some(ManagerEvent::Lagged(n_lost)),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for ManagerEvents {
    fn drop(&mut self) {
        self.n_subscribers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: usize) -> ManagerEvent {
        ManagerEvent::Stderr { server: "s".into(), line: number.to_string().into() }
    }

    #[tokio::test]
    async fn slow_subscriber_gets_the_number_of_lost_events() {
        let sender = EventSender::default();
        sender.emit(|| panic!("an event is built without subscribers"));
        let mut events = sender.subscribe();
        for number in 0..CAPACITY + 3 {
            sender.emit(|| line(number));
        }
        assert!(matches!(events.next().await, Some(ManagerEvent::Lagged(3))));
        let Some(ManagerEvent::Stderr { line, .. }) = events.next().await else { panic!() };
        assert_eq!(&*line, "3");
        drop(sender);
        for _ in 0..CAPACITY - 1 {
            assert!(events.next().await.is_some());
        }
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn subscriber_gets_all_events_and_then_the_end() {
        let sender = EventSender::default();
        let mut events = sender.subscribe();
        sender.emit(|| line(1));
        sender.close();
        assert!(matches!(events.next().await, Some(ManagerEvent::Stderr { .. })));
        assert!(events.next().await.is_none());
        assert!(sender.subscribe().next().await.is_none());
    }

    #[test]
    fn subscribers_are_counted() {
        let sender = EventSender::default();
        let (one, two) = (sender.subscribe(), sender.subscribe());
        assert!(sender.has_subscribers());
        drop((one, two));
        assert!(!sender.has_subscribers());
    }
}
