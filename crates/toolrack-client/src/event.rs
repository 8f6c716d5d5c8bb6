//! Client events: list changes, resource updates, log messages, close.
//!
//! **Invariant:** emitting never blocks. A slow receiver loses the oldest events and is told how many.

use std::sync::{Arc, OnceLock};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use toolrack_mcp::LogMessage;
use toolrack_transport::CloseReason;

/// Events buffered for a slow receiver. When full, the oldest is overwritten.
const CAPACITY: usize = 64;

/// An event of a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The tools have changed; `tools()` already returns the new list.
    ToolsChanged,
    /// The prompts may have changed.
    PromptsChanged,
    /// The resources may have changed.
    ResourcesChanged,
    /// A subscribed resource, or a part of it, has changed.
    ResourceUpdated {
        /// URI of the changed resource.
        uri: String,
    },
    /// Log message of the server.
    Log(LogMessage),
    /// A URL elicitation is complete.
    ElicitationComplete {
        /// The server's elicitation id.
        id: String,
    },
    /// The server ended a subscription while the connection stays open. No more updates arrive for it.
    SubscriptionEnded {
        /// Resources of the subscription; empty for the list subscription.
        uris: Vec<String>,
    },
    /// The receiver was too slow and lost this many events.
    Lagged(u64),
    /// The connection has closed. Always the last event.
    Closed(CloseReason),
}

/// Sending half. Allocates nothing until the first `subscribe`.
#[derive(Debug, Default)]
pub(crate) struct EventSender {
    /// A broadcast channel allocates all slots up front, so a slot holds only an `Arc`.
    sender: OnceLock<broadcast::Sender<Arc<Event>>>,
    close_reason: OnceLock<CloseReason>,
}

/// Receiving half.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Arc<Event>>,
    /// Set if the connection had closed before `subscribe`.
    close_reason: Option<CloseReason>,
    is_closed: bool,
}

impl EventSender {
    pub(crate) fn emit(&self, event: Event) {
        if let Some(sender) = self.sender.get() {
            // No receiver is left, which is fine.
            sender.send(Arc::new(event)).unwrap_or(0);
        }
    }

    pub(crate) fn close(&self, reason: &CloseReason) {
        self.close_reason.get_or_init(|| reason.clone());
        self.emit(Event::Closed(reason.clone()));
    }

    pub(crate) fn close_reason(&self) -> Option<&CloseReason> {
        self.close_reason.get()
    }

    pub(crate) fn subscribe(&self) -> Events {
        let sender = self.sender.get_or_init(|| broadcast::channel(CAPACITY).0);
        // Subscribe before reading the close reason: a close in between is then received twice instead of
        // never, and `next` returns it once.
        let receiver = sender.subscribe();
        Events { receiver, close_reason: self.close_reason.get().cloned(), is_closed: false }
    }
}

impl Events {
    /// Returns the next event, in order. `None` after [`Event::Closed`], or when the client is dropped.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        if self.is_closed {
            return None;
        }
        if let Some(reason) = self.close_reason.take() {
            self.is_closed = true;
            return Some(Event::Closed(reason));
        }
        match self.receiver.recv().await {
            Ok(event) => {
                self.is_closed = matches!(*event, Event::Closed(_));
                Some(Arc::unwrap_or_clone(event))
            }
            Err(RecvError::Lagged(missed)) => Some(Event::Lagged(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn rest(mut events: Events) -> Vec<String> {
        let mut received = Vec::new();
        while let Some(event) = events.next().await {
            received.push(match event {
                Event::ResourceUpdated { uri } => uri,
                Event::Lagged(count) => format!("lagged {count}"),
                Event::Closed(reason) => format!("closed: {reason}"),
                other => format!("{other:?}"),
            });
        }
        received
    }

    #[tokio::test]
    async fn events_are_ordered_and_closed_is_last() {
        let sender = EventSender::default();
        sender.emit(Event::PromptsChanged);
        let events = sender.subscribe();
        sender.emit(Event::ToolsChanged);
        sender.close(&CloseReason::Closed);
        sender.emit(Event::ToolsChanged);
        assert_eq!(rest(events).await, ["ToolsChanged", "closed: closed by the client"]);
        assert_eq!(rest(sender.subscribe()).await, ["closed: closed by the client"]);
    }

    #[tokio::test]
    async fn slow_receiver_lags() {
        let sender = EventSender::default();
        let mut events = sender.subscribe();
        for number in 0..CAPACITY + 3 {
            sender.emit(Event::ResourceUpdated { uri: number.to_string() });
        }
        assert!(matches!(events.next().await, Some(Event::Lagged(3))));
        drop(sender);
        let received = rest(events).await;
        assert_eq!((received.len(), received[0].as_str()), (CAPACITY, "3"));
    }
}
