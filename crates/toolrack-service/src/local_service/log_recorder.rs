//! The task that remembers what servers said and how they fared.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use toolrack_manager::{ConnectionState, RackEvent, RackEvents};
use uuid::Uuid;

use super::Inner;
use crate::server_logs::{LogKind, LogLine};

/// So much is written at once.
const MOST_LINES: usize = 256;

impl Inner {
    /// Remembers what happens until the service ends, and what has happened until then.
    pub(super) async fn record(self: Arc<Self>, mut events: RackEvents) {
        loop {
            let first = tokio::select! {
                biased;
                event = events.next() => event,
                () = self.stop.cancelled() => None,
            };
            let Some(first) = first else { return };
            let mut happened: HashMap<Uuid, Vec<LogLine>> = HashMap::new();
            self.note(&first, &mut happened);
            for _ in 0..MOST_LINES {
                let Ok(Some(event)) = timeout(Duration::ZERO, events.next()).await else { break };
                self.note(&event, &mut happened);
            }
            if !happened.is_empty() {
                self.remember(happened).await;
            }
        }
    }

    fn note(&self, event: &RackEvent, happened: &mut HashMap<Uuid, Vec<LogLine>>) {
        let Some((server, line)) = line_of(event) else { return };
        let view = self.view.load();
        // A server that nobody configured is not remembered.
        if let Some(known) = view.named(server) {
            happened.entry(known.config.id).or_default().push(line);
        }
    }

    async fn remember(self: &Arc<Self>, happened: HashMap<Uuid, Vec<LogLine>>) {
        let written = self.blocking(move |inner| {
            for (id, lines) in happened {
                if let Err(error) = inner.logs.append(id, &lines) {
                    tracing::debug!(%error, "what a server said is not remembered");
                }
            }
            Ok(())
        });
        if let Err(error) = written.await {
            tracing::debug!(%error, "what servers said is not remembered");
        }
    }
}

/// What is worth remembering of an event, and of whom.
fn line_of(event: &RackEvent) -> Option<(&str, LogLine)> {
    match event {
        RackEvent::State { server, state } => {
            let (kind, text) = match (state, state.failure()) {
                (ConnectionState::NeedsAuth(failure), _) => {
                    (LogKind::NeedsLogin, failure.reason().to_owned())
                }
                (_, Some(failure)) => (LogKind::Failure, failure.reason().to_owned()),
                (ConnectionState::Connecting, _) => (LogKind::Start, "starting".to_owned()),
                (ConnectionState::Connected, _) => (LogKind::Ready, "connected".to_owned()),
                _ => return None,
            };
            Some((server, LogLine::now(kind, text)))
        }
        RackEvent::Stderr { server, line } => {
            Some((server, LogLine::now(LogKind::Stderr, line.to_string())))
        }
        RackEvent::Install { server, line } => {
            Some((server, LogLine::now(LogKind::Install, line.to_string())))
        }
        _ => None,
    }
}
