//! One conversation: a line on which a revision has been agreed, and everything that belongs to it.
//!
//! **Invariant:** the revision never changes. A modern conversation is never made a legacy one.
//!
//! The one task behind a conversation: it answers the server and keeps the list of tools up to date.
//!
//! **Invariant:** no arm of the loop waits. It ends when the line has ended or the client is gone, and
//! takes everything along that it started.
//!
//! What kind of result came, found without decoding it.
//!
//! Spec 2026-07-28, basic §Result Types: every result has a `resultType`; absent means complete, and one
//! that we do not know makes the answer invalid.
//!
//! Locks that cannot be poisoned.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memchr::memmem::Finder;
use serde::Serialize;
use serde_json::value::to_raw_value;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_mcp::{
    Answer, Era, Implementation, ListKind, LogLevel, Method, Request, ResultType, Revision,
    ServerCapabilities, Tool,
};
use toolrack_transport::{
    Abandon, JsonRpcError, Line, Medium, Outgoing, Patience, RawJson, RequestId,
};

use crate::client::CallOptions;
use crate::error::CallError;
use crate::event::Event;
use crate::incoming::Mailbox;
use crate::pagination::{Refresh, Shelf};
use crate::progress::Watch;
use crate::request_meta::{Envelope, Extra, Mirrors, Packed, Reports};
use crate::server_requests::{Desk, Respondent};
use crate::subscriptions::Subscription;
use crate::timeouts::{Limits, Timeouts};

/// One conversation.
pub(crate) struct Session {
    pub(crate) line: Arc<dyn Line>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) envelope: Envelope,
    pub(crate) respondent: Respondent,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) card: ServerCard,
    pub(crate) shelf: Shelf,
    /// The arguments that are said beside the message, if any tool has such.
    pub(crate) mirrors: Mirrors,
    /// Whether any tool can be called as a task only.
    pub(crate) has_task_tools: AtomicBool,
    /// The level of log messages that was asked for. Modern requests repeat it.
    pub(crate) log_level: Mutex<Option<LogLevel>>,
    /// The subscription to changes of lists.
    pub(crate) lists: Mutex<Option<Subscription>>,
    /// The subscriptions to resources, by URI.
    pub(crate) resources: Mutex<HashMap<String, Subscription>>,
    /// The resources that a legacy server was asked to tell about.
    pub(crate) subscribed: Mutex<BTreeSet<String>>,
    /// Every task of the conversation.
    pub(crate) tracker: TaskTracker,
    /// What the server has to hear before the conversation ends.
    pub(crate) farewells: TaskTracker,
    /// Ends every task of the conversation.
    pub(crate) stop: CancellationToken,
}

/// What a server says about itself when the conversation begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerCard {
    pub(crate) server: Option<Implementation>,
    pub(crate) capabilities: ServerCapabilities,
    pub(crate) instructions: Option<String>,
}

/// Something that a server has to declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    Tools,
    Resources,
    Subscriptions,
    Prompts,
    Completion,
    Logging,
}

impl Feature {
    fn is_in(self, capabilities: &ServerCapabilities) -> bool {
        match self {
            Feature::Tools => capabilities.tools.is_some(),
            Feature::Resources => capabilities.resources.is_some(),
            Feature::Subscriptions => capabilities.resources.is_some_and(|it| it.subscribe),
            Feature::Prompts => capabilities.prompts.is_some(),
            Feature::Completion => capabilities.completions,
            Feature::Logging => capabilities.logging,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Feature::Tools => "tools",
            Feature::Resources => "resources",
            Feature::Subscriptions => "subscriptions to resources",
            Feature::Prompts => "prompts",
            Feature::Completion => "completion",
            Feature::Logging => "log messages",
        }
    }
}

impl Session {
    pub(crate) fn revision(&self) -> Revision {
        self.respondent.revision
    }

    pub(crate) fn era(&self) -> Era {
        self.revision().era()
    }

    /// Spec 2025-06-18, lifecycle §Operation: only what was declared may be used. Before that it was
    /// only recommended, and many old servers declare less than they have.
    pub(crate) fn require(&self, feature: Feature) -> Result<(), CallError> {
        if feature.is_in(&self.card.capabilities) || self.revision() < Revision::R2025_06_18 {
            return Ok(());
        }
        Err(CallError::Unsupported { feature: feature.name() })
    }

    /// Sends one request and gives its raw result, whatever kind of result it is.
    pub(crate) async fn exchange<P: Request + Sync>(
        &self,
        params: &P,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let Some(on_progress) = &options.on_progress else {
            return self.send(params, self.patience(options), self.usual_extra(options)).await;
        };
        let watch = self.mailbox.watchers.watch(on_progress);
        // Boxed, so that a call without a watcher stays small.
        Box::pin(watch.beside(self.exchange_seen(params, options, &watch))).await
    }

    /// The same, with somebody who may watch for longer than this one request takes.
    pub(crate) async fn exchange_seen<P: Request + Sync>(
        &self,
        params: &P,
        options: &CallOptions,
        watch: &Watch<'_>,
    ) -> Result<RawJson, CallError> {
        let on_id = |id| watch.begin(id);
        let extra = Extra { on_id: Some(&on_id), ..self.usual_extra(options) };
        self.send(params, self.patience(options), extra).await
    }

    fn usual_extra<'a>(&self, options: &'a CallOptions) -> Extra<'a> {
        let log_level = options.log_level.or(*lock(&self.log_level));
        let behalf = options.on_behalf.as_deref();
        Extra { progress: Reports::Wanted, log_level, behalf, ..Extra::default() }
    }

    /// Sends a request that nothing is reported about, and gives its raw result.
    pub(crate) async fn request<P: Request + Sync>(
        &self,
        params: &P,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        let extra = Extra { behalf: options.on_behalf.as_deref(), ..Extra::default() };
        self.send(params, self.patience(options), extra).await
    }

    /// Sends a request that is answered in one go, and reads the answer.
    pub(crate) async fn ask<P: Request + Sync>(
        &self,
        params: &P,
        patience: Patience,
    ) -> Result<P::Answer, CallError> {
        let raw = self.send(params, patience, Extra::default()).await?;
        let raw = self.complete(P::METHOD, raw)?;
        decode::<P>(&raw)
    }

    /// Spec 2026-07-28, basic §Result Types: what is neither complete nor asked for is invalid.
    pub(crate) fn complete(&self, method: Method, raw: RawJson) -> Result<RawJson, CallError> {
        match self.kind(&raw) {
            ResultType::Complete => Ok(raw),
            kind => Err(CallError::unexpected(method, format!("unexpected result type {kind:?}"))),
        }
    }

    /// The legacy era knows one kind of result, whatever a server writes.
    pub(crate) fn kind(&self, raw: &RawJson) -> ResultType {
        match self.era() {
            Era::Legacy => ResultType::Complete,
            Era::Modern => kind_of(raw.as_bytes()),
        }
    }

    /// How long a request waits that has no options of its own.
    pub(crate) fn usual_patience(&self) -> Patience {
        self.patience(&CallOptions::default())
    }

    /// Answers something the server asked. A server that does not read its answers loses them.
    pub(crate) fn respond<T: Serialize>(&self, id: &RequestId, outcome: Result<T, JsonRpcError>) {
        respond(&*self.line, id, outcome);
    }

    pub(crate) fn patience(&self, options: &CallOptions) -> Patience {
        let answer = options.timeout.unwrap_or(self.timeouts.call);
        let at_most = options.at_most.unwrap_or(self.timeouts.at_most.max(answer));
        Patience { answer, at_most }
    }

    async fn send<P: Request + Sync>(
        &self,
        params: &P,
        patience: Patience,
        extra: Extra<'_>,
    ) -> Result<RawJson, CallError> {
        let mirror = self.mirrors.of(params.subject());
        let extra = Extra { mirror: mirror.as_deref(), ..extra };
        let request = Outgoing {
            method: P::METHOD.as_str(),
            params: &Packed { envelope: &self.envelope, params, extra },
            patience,
            abandon: Abandon::Tell,
        };
        Ok(self.line.request(request).await?)
    }

    /// Whether every request is an exchange that stands for itself.
    pub(crate) fn is_stateless(&self) -> bool {
        self.era() == Era::Modern && self.line.medium() == Medium::Exchange
    }
}

/// Reads the answer to a request.
pub(crate) fn decode<P: Request>(raw: &RawJson) -> Result<P::Answer, CallError> {
    P::Answer::decode(raw.as_bytes()).map_err(|fault| CallError::undecodable(P::METHOD, fault))
}

/// Answers something that was asked on `line`.
pub(crate) fn respond<T: Serialize>(
    line: &dyn Line,
    id: &RequestId,
    outcome: Result<T, JsonRpcError>,
) {
    let written = outcome.and_then(|result| {
        to_raw_value(&result).map_err(|fault| JsonRpcError::new(-32603, fault.to_string()))
    });
    let answered = line.answer(id, written.as_deref());
    answered.unwrap_or_else(|error| tracing::debug!(%id, %error, "an answer was not sent"));
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("server", &self.respondent.server)
            .field("revision", &self.revision())
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

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

static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""resultType""#));
/// The two places where servers put it. No quote in them can be part of a longer string, because a
/// quote inside a string has a backslash before it.
const IN_FRONT: &[u8] = br#"{"resultType":"complete""#;
const AT_END: &[u8] = br#","resultType":"complete"}"#;

/// Finds out what kind of result `raw` is, most often from its ends alone.
pub(crate) fn kind_of(raw: &[u8]) -> ResultType {
    let decided = raw.starts_with(IN_FRONT) || raw.ends_with(AT_END) || KEY.find(raw).is_none();
    if decided { ResultType::Complete } else { ResultType::read(raw) }
}

/// Takes a lock for a moment. What we lock is whole between statements, so a panic in another task cannot
/// have torn it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::attend;

    fn size_of_future<F: Future>(_: impl Fn(Arc<Session>) -> F) -> usize {
        size_of::<F>()
    }

    /// Hundreds of servers may be connected and idle. What a server says about itself comes on top.
    #[test]
    fn an_idle_conversation_is_small() {
        let sizes = [size_of::<Session>(), size_of::<Mailbox>(), size_of_future(attend)];
        assert!(sizes.iter().sum::<usize>() < 3 << 10, "{sizes:?} bytes");
    }
}

#[cfg(test)]
mod result_type_tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, expected: ResultType) {
        assert_eq!(kind_of(raw.as_bytes()), expected, "{raw}");
    }

    #[test]
    fn the_kind_is_found_wherever_it_stands() {
        check("{}", ResultType::Complete);
        check(r#"{"content":[]}"#, ResultType::Complete);
        check(r#"{"resultType":"complete"}"#, ResultType::Complete);
        check(r#"{"resultType":"complete","content":[]}"#, ResultType::Complete);
        check(r#"{"content":[],"resultType":"complete"}"#, ResultType::Complete);
        check(r#"{ "resultType" : "complete" }"#, ResultType::Complete);
        check(r#"{"a":1,"resultType":"input_required","b":2}"#, ResultType::InputRequired);
        check(r#"{"resultType":"task","taskId":"1"}"#, ResultType::Task);
        check(r#"{"resultType":"completely"}"#, ResultType::Other);
        check(r#"{"resultType":7}"#, ResultType::Other);
    }

    #[test]
    fn only_the_top_level_counts() {
        check(r#"{"a":{"resultType":"task"}}"#, ResultType::Complete);
        check(r#"{"a":"\"resultType\":\"task\""}"#, ResultType::Complete);
        check(
            r#"{"a":"x,\"resultType\":\"complete\"}","resultType":"input_required"}"#,
            ResultType::InputRequired,
        );
    }
}
