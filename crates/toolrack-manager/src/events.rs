//! What the manager tells whoever listens: states, tools, calls, and what servers write to their error output.
//!
//! **Invariant:** telling never waits. A slow listener loses the oldest events and is told how many; nobody
//! listening costs a call one look at a counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_util::sync::CancellationToken;
use toolrack_transport::Delivery;

use crate::connection_state::{ConnectPhase, ConnectionState};

/// How many events wait for a slow listener. When it is full, the oldest is overwritten.
const CAPACITY: usize = 1024;

/// Something that happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RackEvent {
    /// A server stands elsewhere now.
    State {
        /// Which server.
        server: Arc<str>,
        /// Where it stands.
        state: ConnectionState,
    },
    /// A server that is being connected has come further.
    Phase {
        /// Which server.
        server: Arc<str>,
        /// How far.
        phase: ConnectPhase,
    },
    /// What installs a server's package said. It is cleaned for people to see.
    Install {
        /// Which server.
        server: Arc<str>,
        /// What was said.
        line: Arc<str>,
    },
    /// The tools of a server are others now. The names are those that the server gives.
    Tools {
        /// Which server.
        server: Arc<str>,
        /// Tools that were not there before.
        added: Vec<Arc<str>>,
        /// Tools that are there no more.
        removed: Vec<Arc<str>>,
        /// Tools that are described otherwise.
        changed: Vec<Arc<str>>,
    },
    /// A call was sent on its way.
    CallStarted {
        /// Tells calls apart.
        id: u64,
        /// Where to.
        server: Arc<str>,
        /// Which tool, as the server names it.
        tool: Arc<str>,
    },
    /// A call has its outcome.
    CallFinished {
        /// As in [`RackEvent::CallStarted`].
        id: u64,
        /// Where to.
        server: Arc<str>,
        /// Which tool, as the server names it.
        tool: Arc<str>,
        /// How it ended.
        outcome: CallOutcome,
        /// How far the request came.
        delivery: Delivery,
        /// From the caller's request to the outcome.
        duration: Duration,
        /// The size of the arguments.
        argument_bytes: usize,
        /// The size of the result.
        result_bytes: usize,
    },
    /// A server wrote a line to its error output. It is cleaned for people to see.
    Stderr {
        /// Which server.
        server: Arc<str>,
        /// What it wrote.
        line: Arc<str>,
    },
    /// Something is odd and works all the same, such as a pattern that matches no tool.
    Warning {
        /// Which server, if it is about one.
        server: Option<Arc<str>>,
        /// What is odd.
        message: String,
    },
    /// A server told something else: changes of its prompts and resources, log messages.
    Said {
        /// Which server.
        server: Arc<str>,
        /// What it told.
        event: toolrack_client::Event,
    },
    /// A config file could not be used; the servers stay as they were.
    ConfigRejected {
        /// Everything that is wrong with it.
        message: String,
    },
    /// A changed config file was put into effect.
    ConfigApplied {
        /// Connected, disconnected, reconnected and otherwise adjusted servers.
        plan: toolrack_config::Plan,
    },
    /// This listener was too slow.
    Missed(u64),
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOutcome {
    /// With a result.
    Done,
    /// The tool ran and said that it failed.
    ToolError,
    /// Without a result.
    Failed,
    /// The caller gave up before.
    Abandoned,
}

/// The telling end.
#[derive(Debug)]
pub(crate) struct Bulletin {
    sender: broadcast::Sender<RackEvent>,
    n_listeners: Arc<AtomicUsize>,
    /// Raised when nothing more will be told.
    over: CancellationToken,
}

/// The listening end.
#[derive(Debug)]
pub struct RackEvents {
    receiver: broadcast::Receiver<RackEvent>,
    n_listeners: Arc<AtomicUsize>,
    over: CancellationToken,
}

impl Default for Bulletin {
    fn default() -> Self {
        let (sender, _receiver) = broadcast::channel(CAPACITY);
        Self { sender, n_listeners: Arc::default(), over: CancellationToken::new() }
    }
}

impl Bulletin {
    pub(crate) fn has_listeners(&self) -> bool {
        self.n_listeners.load(Ordering::Relaxed) > 0
    }

    /// Tells an event, which is only made if somebody listens.
    pub(crate) fn tell(&self, event: impl FnOnce() -> RackEvent) {
        if self.has_listeners() {
            // The last listener may have gone meanwhile, and that is fine.
            self.sender.send(event()).unwrap_or(0);
        }
    }

    pub(crate) fn listen(&self) -> RackEvents {
        let receiver = self.sender.subscribe();
        self.n_listeners.fetch_add(1, Ordering::Relaxed);
        let (n_listeners, over) = (Arc::clone(&self.n_listeners), self.over.clone());
        RackEvents { receiver, n_listeners, over }
    }

    /// Listeners hear what was told until now, and then that it is over.
    pub(crate) fn close(&self) {
        self.over.cancel();
    }
}

impl RackEvents {
    /// The next event, in order. `None` once the manager is closed or gone, and everything before that was heard.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<RackEvent> {
        let event = tokio::select! {
            biased;
            event = self.receiver.recv() => event,
            // The last event may have come in between.
            () = self.over.cancelled() => match self.receiver.try_recv() {
                Ok(event) => Ok(event),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => Err(RecvError::Closed),
            },
        };
        match event {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(missed)) => Some(RackEvent::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for RackEvents {
    fn drop(&mut self) {
        self.n_listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: usize) -> RackEvent {
        RackEvent::Stderr { server: "s".into(), line: number.to_string().into() }
    }

    #[tokio::test]
    async fn a_slow_listener_is_told_what_it_missed() {
        let bulletin = Bulletin::default();
        bulletin.tell(|| panic!("nobody listens, so no event is made"));
        let mut events = bulletin.listen();
        for number in 0..CAPACITY + 3 {
            bulletin.tell(|| line(number));
        }
        assert!(matches!(events.next().await, Some(RackEvent::Missed(3))));
        let Some(RackEvent::Stderr { line, .. }) = events.next().await else { panic!() };
        assert_eq!(&*line, "3");
        drop(bulletin);
        for _ in 0..CAPACITY - 1 {
            assert!(events.next().await.is_some());
        }
        assert!(events.next().await.is_none());
    }

    #[tokio::test]
    async fn a_listener_hears_everything_and_then_that_it_is_over() {
        let bulletin = Bulletin::default();
        let mut events = bulletin.listen();
        bulletin.tell(|| line(1));
        bulletin.close();
        assert!(matches!(events.next().await, Some(RackEvent::Stderr { .. })));
        assert!(events.next().await.is_none());
        assert!(bulletin.listen().next().await.is_none());
    }

    #[test]
    fn listeners_are_counted() {
        let bulletin = Bulletin::default();
        let (one, two) = (bulletin.listen(), bulletin.listen());
        assert!(bulletin.has_listeners());
        drop((one, two));
        assert!(!bulletin.has_listeners());
    }
}
