//! The one task that makes the manager follow what is configured, and the file if it is to be followed.
//!
//! **Invariant:** views are applied in order, and one that is applied is said so, whatever became of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use toolrack_config::McpServerConfig;
use toolrack_manager::{ConnectionState, FileWatch, RackError, RackEvent, RackEvents};
use uuid::Uuid;

use super::{Inner, LocalService};
use crate::config_snapshot::View;
use crate::document;
use crate::error::ServiceError;
use crate::local_service::Autostart;
use crate::server_logs::{LogKind, LogLine};

impl LocalService {
    /// Reads the file again now, and waits until the servers follow. Says what is odd about the file.
    ///
    /// # Errors
    ///
    /// When the file cannot be used; the servers then stay as they are.
    pub async fn reload(&self) -> Result<Vec<String>, ServiceError> {
        let stored = self.inner.blocking(Inner::refresh).await?;
        self.inner.catch_up().await?;
        Ok(stored.warnings.iter().map(ToString::to_string).collect())
    }
}

impl Inner {
    /// Applies every new view until the service ends. `last` is the one that the manager has.
    pub(super) async fn follow(self: Arc<Self>, mut last: Arc<View>) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.bell.notified() => {}
            }
            if let Err(error) = self.blocking(Inner::refresh).await {
                // Whoever watches the file has said so already.
                tracing::debug!(%error, "the last good config stays");
            }
            let next = self.view.load_full();
            if next.number == last.number {
                continue;
            }
            if let Err(error) = self.apply(&last, &next).await {
                tracing::debug!(%error, "the manager does not follow");
            }
            last = next;
            self.applied.send_replace(last.number);
        }
    }

    async fn apply(self: &Arc<Self>, last: &View, next: &View) -> Result<(), RackError> {
        let renamed = self.running_under_another_name(last, next);
        let (old, new) = (last.configs(), next.configs());
        match self.autostart {
            Autostart::Enabled => drop(self.manager.reconcile(&old, &new).await?),
            Autostart::Nothing => self.adopt(&old, &new).await?,
        }
        for name in renamed {
            self.restart_soon(name);
        }
        Ok(())
    }

    /// Takes over what is configured, and starts nothing that did not run before.
    async fn adopt(
        &self,
        old: &[McpServerConfig],
        new: &[McpServerConfig],
    ) -> Result<(), RackError> {
        self.manager.adopt(new).await?;
        let is_gone = |name: &&String| !new.iter().any(|it| it.name == **name);
        for name in old.iter().map(|it| &it.name).filter(is_gone) {
            self.manager.remove(name).await?;
        }
        Ok(())
    }

    /// The new names of servers that run under their old ones. Where everything is started, these are too.
    fn running_under_another_name(&self, last: &View, next: &View) -> Vec<String> {
        if self.autostart == Autostart::Enabled {
            return Vec::new();
        }
        let runs = |name: &str| self.manager.server(name).is_ok_and(|it| it.is_connected());
        let old_name = |id: Uuid| last.get(id).map(|it| it.server.name.clone());
        let renamed = next.servers.iter().filter(|it| {
            let old = old_name(it.config.id);
            it.server.enabled && old.is_some_and(|old| old != it.server.name && runs(&old))
        });
        renamed.map(|it| it.server.name.clone()).collect()
    }

    /// Rings whenever the file changes. One that cannot be used is told with
    /// [`RackEvent::ConfigRejected`](toolrack_manager::RackEvent::ConfigRejected) and changes nothing.
    pub(super) fn watch(self: &Arc<Self>, path: &Path) -> std::io::Result<FileWatch> {
        let inner = Arc::downgrade(self);
        let read = move |path: &Path, text: &str| {
            document::read(&path.display().to_string(), text).map_err(|it| it.to_string())?;
            if let Some(inner) = inner.upgrade() {
                inner.bell.notify_one();
            }
            // The manager hears of the servers from the follower, so to the watch there are none.
            Ok(Vec::new())
        };
        self.manager.watch_file(path, Vec::new(), Arc::new(read))
    }
}

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
