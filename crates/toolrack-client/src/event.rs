//! What a client tells whoever subscriptions: changes, log messages, the end.
//!
//! **Invariant:** telling never waits. A slow listener loses the oldest events and is told how many.

use std::sync::{Arc, OnceLock};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use toolrack_mcp::LogMessage;
use toolrack_transport::Ending;

/// How many events wait for a slow listener. When it is full, the oldest is overwritten.
const CAPACITY: usize = 64;

/// Something that happened on a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The tools are others now; `tools()` already gives them.
    ToolsChanged,
    /// The prompts may be others now.
    PromptsChanged,
    /// The resources may be others now.
    ResourcesChanged,
    /// A resource that was subscribed to, or a part of it, has changed.
    ResourceUpdated {
        /// Which.
        uri: String,
    },
    /// The server said something for the log.
    Log(LogMessage),
    /// The page that the user was sent to has done its part.
    ElicitationComplete {
        /// As the server named it.
        id: String,
    },
    /// The server ended a subscription although the transport goes on: changes of these are no longer told.
    SubscriptionEnded {
        /// The resources that were subscribed to; empty if it was the subscription to lists.
        uris: Vec<String>,
    },
    /// This listener was too slow.
    Lagged(u64),
    /// The transport has ended, and nothing comes after this.
    Closed(Ending),
}

/// The telling end. Costs nothing until somebody subscriptions.
#[derive(Debug, Default)]
pub(crate) struct EventSender {
    /// The channel has its places from the beginning, so they are as small as can be.
    sender: OnceLock<broadcast::Sender<Arc<Event>>>,
    close_reason: OnceLock<Ending>,
}

/// The listening end.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Arc<Event>>,
    /// The transport had already ended when the listener came.
    close_reason: Option<Ending>,
    is_closed: bool,
}

impl EventSender {
    pub(crate) fn emit(&self, event: Event) {
        if let Some(sender) = self.sender.get() {
            // Nobody may be listening any more, and that is fine.
            sender.send(Arc::new(event)).unwrap_or(0);
        }
    }

    pub(crate) fn close(&self, reason: &Ending) {
        self.close_reason.get_or_init(|| reason.clone());
        self.emit(Event::Closed(reason.clone()));
    }

    pub(crate) fn close_reason(&self) -> Option<&Ending> {
        self.close_reason.get()
    }

    pub(crate) fn subscribe(&self) -> Events {
        let sender = self.sender.get_or_init(|| broadcast::channel(CAPACITY).0);
        // The receiver comes first: an ending between the two lines is then seen twice, not never,
        // and the second time it is not given.
        let receiver = sender.subscribe();
        Events { receiver, close_reason: self.close_reason.get().cloned(), is_closed: false }
    }
}

impl Events {
    /// The next event, in order. `None` once [`Event::Closed`] has been given or the client is gone.
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
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            seen.push(match event {
                Event::ResourceUpdated { uri } => uri,
                Event::Lagged(count) => format!("missed {count}"),
                Event::Closed(reason) => format!("ended: {reason}"),
                other => format!("{other:?}"),
            });
        }
        seen
    }

    #[tokio::test]
    async fn events_come_in_order_and_the_end_is_last() {
        let sender = EventSender::default();
        sender.emit(Event::PromptsChanged);
        let events = sender.subscribe();
        sender.emit(Event::ToolsChanged);
        sender.close(&Ending::Closed);
        sender.emit(Event::ToolsChanged);
        assert_eq!(rest(events).await, ["ToolsChanged", "ended: closed by us"]);
        assert_eq!(rest(sender.subscribe()).await, ["ended: closed by us"]);
    }

    #[tokio::test]
    async fn a_slow_listener_is_told_what_it_missed() {
        let sender = EventSender::default();
        let mut events = sender.subscribe();
        for number in 0..CAPACITY + 3 {
            sender.emit(Event::ResourceUpdated { uri: number.to_string() });
        }
        assert!(matches!(events.next().await, Some(Event::Lagged(3))));
        drop(sender);
        let seen = rest(events).await;
        assert_eq!((seen.len(), seen[0].as_str()), (CAPACITY, "3"));
    }
}
