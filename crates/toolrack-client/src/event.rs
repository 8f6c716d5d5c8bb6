//! What a client tells whoever listens: changes, log messages, the end.
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
    /// The server ended a subscription although the line goes on: changes of these are no longer told.
    SubscriptionEnded {
        /// The resources that were subscribed to; empty if it was the subscription to lists.
        uris: Vec<String>,
    },
    /// This listener was too slow.
    Missed(u64),
    /// The line has ended, and nothing comes after this.
    Ended(Ending),
}

/// The telling end. Costs nothing until somebody listens.
#[derive(Debug, Default)]
pub(crate) struct Bulletin {
    /// The channel has its places from the beginning, so they are as small as can be.
    sender: OnceLock<broadcast::Sender<Arc<Event>>>,
    ending: OnceLock<Ending>,
}

/// The listening end.
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Arc<Event>>,
    /// The line had already ended when the listener came.
    ending: Option<Ending>,
    over: bool,
}

impl Bulletin {
    pub(crate) fn tell(&self, event: Event) {
        if let Some(sender) = self.sender.get() {
            // Nobody may be listening any more, and that is fine.
            sender.send(Arc::new(event)).unwrap_or(0);
        }
    }

    pub(crate) fn end(&self, ending: &Ending) {
        self.ending.get_or_init(|| ending.clone());
        self.tell(Event::Ended(ending.clone()));
    }

    pub(crate) fn ending(&self) -> Option<&Ending> {
        self.ending.get()
    }

    pub(crate) fn listen(&self) -> Events {
        let sender = self.sender.get_or_init(|| broadcast::channel(CAPACITY).0);
        // The receiver comes first: an ending between the two lines is then seen twice, not never,
        // and the second time it is not given.
        let receiver = sender.subscribe();
        Events { receiver, ending: self.ending.get().cloned(), over: false }
    }
}

impl Events {
    /// The next event, in order. `None` once [`Event::Ended`] has been given or the client is gone.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        if self.over {
            return None;
        }
        if let Some(ending) = self.ending.take() {
            self.over = true;
            return Some(Event::Ended(ending));
        }
        match self.receiver.recv().await {
            Ok(event) => {
                self.over = matches!(*event, Event::Ended(_));
                Some(Arc::unwrap_or_clone(event))
            }
            Err(RecvError::Lagged(missed)) => Some(Event::Missed(missed)),
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
                Event::Missed(count) => format!("missed {count}"),
                Event::Ended(ending) => format!("ended: {ending}"),
                other => format!("{other:?}"),
            });
        }
        seen
    }

    #[tokio::test]
    async fn events_come_in_order_and_the_end_is_last() {
        let bulletin = Bulletin::default();
        bulletin.tell(Event::PromptsChanged);
        let events = bulletin.listen();
        bulletin.tell(Event::ToolsChanged);
        bulletin.end(&Ending::Closed);
        bulletin.tell(Event::ToolsChanged);
        assert_eq!(rest(events).await, ["ToolsChanged", "ended: closed by us"]);
        assert_eq!(rest(bulletin.listen()).await, ["ended: closed by us"]);
    }

    #[tokio::test]
    async fn a_slow_listener_is_told_what_it_missed() {
        let bulletin = Bulletin::default();
        let mut events = bulletin.listen();
        for number in 0..CAPACITY + 3 {
            bulletin.tell(Event::ResourceUpdated { uri: number.to_string() });
        }
        assert!(matches!(events.next().await, Some(Event::Missed(3))));
        drop(bulletin);
        let seen = rest(events).await;
        assert_eq!((seen.len(), seen[0].as_str()), (CAPACITY, "3"));
    }
}
