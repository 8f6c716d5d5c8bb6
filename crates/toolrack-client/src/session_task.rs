//! The one task behind a conversation: it answers the server and keeps the list of tools up to date.
//!
//! **Invariant:** no arm of the loop waits. It ends when the line has ended or the client is gone, and
//! takes everything along that it started.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use toolrack_mcp::{ListKind, Tool};

use crate::error::CallError;
use crate::event::Event;
use crate::list_debounce::Refresh;
use crate::server_requests::Desk;
use crate::session::{Feature, Session};

/// How often calls are renewed while the user or a model is being waited for.
const RENEW: Duration = Duration::from_secs(1);

/// How many of the newest requests are renewed. Older ones have been open for long anyway.
const N_RENEWED: u64 = 1024;

/// Runs until the conversation is over.
pub(crate) async fn attend(session: Arc<Session>) {
    let mut attendant = Attendant {
        desk: Desk::default(),
        refresh: Refresh::default(),
        fetching: JoinSet::new(),
        restoring: JoinSet::new(),
        changes_seen: session.mailbox.changes(ListKind::Tools),
        renewals_seen: session.mailbox.renewals(),
        renew_at: None,
        session,
    };
    attendant.run().await;
    attendant.desk.clear().await;
    attendant.fetching.shutdown().await;
    attendant.restoring.shutdown().await;
}

struct Attendant {
    session: Arc<Session>,
    desk: Desk,
    refresh: Refresh,
    fetching: JoinSet<Result<(), CallError>>,
    restoring: JoinSet<()>,
    changes_seen: u64,
    renewals_seen: u64,
    renew_at: Option<Instant>,
}

impl Attendant {
    async fn run(&mut self) {
        loop {
            if self.session.mailbox.bulletin.ending().is_some() {
                return;
            }
            self.take_questions();
            self.take_renewals();
            self.take_changes();
            tokio::select! {
                biased;
                () = self.session.stop.cancelled() => return,
                () = self.session.mailbox.bell.notified() => {}
                Some(finished) = self.desk.next(), if self.desk.is_busy() => {
                    self.desk.finish(&self.session, finished);
                }
                Some(fetched) = self.fetching.join_next(), if !self.fetching.is_empty() => {
                    self.fetched(fetched);
                }
                Some(_done) = self.restoring.join_next(), if !self.restoring.is_empty() => {}
                () = alarm(self.refresh.due()), if self.refresh.due().is_some() => self.fetch(),
                () = alarm(self.renew_at), if self.renew_at.is_some() => self.renew(),
            }
        }
    }

    fn take_questions(&mut self) {
        while let Some(question) = self.session.mailbox.next_question() {
            self.desk.take(&self.session, question);
        }
        // The server waits for our user, so a call that waits for the server must wait too.
        self.renew_at = match (self.desk.waits_for_human(), self.renew_at) {
            (true, None) => Some(Instant::now()),
            (true, set) => set,
            (false, _) => None,
        };
    }

    fn take_changes(&mut self) {
        let changes = self.session.mailbox.changes(ListKind::Tools);
        if changes != self.changes_seen {
            self.changes_seen = changes;
            if self.session.require(Feature::Tools).is_ok() {
                self.refresh.noticed(Instant::now());
            }
        }
    }

    /// One restoration at a time: what a newer session needs, an older attempt cannot give.
    fn take_renewals(&mut self) {
        let renewals = self.session.mailbox.renewals();
        if renewals != self.renewals_seen {
            self.renewals_seen = renewals;
            self.restoring.abort_all();
            let session = Arc::clone(&self.session);
            self.restoring.spawn(async move { session.restore().await });
        }
    }

    fn fetch(&mut self) {
        self.refresh.began(Instant::now());
        let session = Arc::clone(&self.session);
        self.fetching.spawn(async move { session.fetch::<Tool>().await.map(drop) });
    }

    /// After a failure the old list stays: it is better than none.
    fn fetched(&mut self, outcome: Result<Result<(), CallError>, JoinError>) {
        self.refresh.ended(Instant::now());
        match outcome {
            Ok(Ok(())) => self.session.mailbox.bulletin.tell(Event::ToolsChanged),
            Ok(Err(error)) => tracing::warn!(%error, "the changed tools could not be fetched"),
            Err(crash) => tracing::error!(%crash, "fetching the changed tools crashed"),
        }
    }

    fn renew(&mut self) {
        let last = self.session.envelope.last_id();
        for id in last.saturating_sub(N_RENEWED)..=last {
            self.session.line.touch(id);
        }
        self.renew_at = Some(Instant::now() + RENEW);
    }
}

async fn alarm(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
