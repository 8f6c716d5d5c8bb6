//! One client: a legacy session, or whoever is at the other end of a pipe, in either era.
//!
//! **Invariant:** every request that was taken gets exactly one answer, unless its client cancels it or goes:
//! then it gets none. Every task of a conversation ends with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolrack_mcp::{ErrorCode, LogLevel, LogMessage, Method};
use toolrack_transport::{Frame, FrameError, JsonRpcError, RawJson, RequestId, elements};

use crate::active_request::{Owner, Wanted, log_notification};
use crate::change_notifier::Telling;
use crate::client_info::Caller;
use crate::encode::{
    Outcome, answer, internal, invalid_request, notification, question, refusal_without_id, result,
};
use crate::gateway::Shared;
use crate::lock::lock;
use crate::message_queue::{Carries, Outbox};
use crate::open::{OpenRequests, Until};
use crate::params::Params;
use crate::request::Exchange;
use crate::subscriptions::Listener;

/// One client.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) shared: Arc<Shared>,
    out: Arc<Outbox>,
    owner: Owner,
    /// Who the client is and how it is told of changes, once it has opened a legacy session.
    session: OnceLock<(Arc<Caller>, Arc<Listener>)>,
    level: Arc<Mutex<Option<LogLevel>>>,
    is_ready: AtomicBool,
    open: OpenRequests,
    roots: Telling,
    questions: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    n_questions: AtomicU64,
    stop: CancellationToken,
}

/// Where the answers to what came together go. When all are given, the stream is over.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) out: Arc<Outbox>,
    last: Option<Arc<Finish>>,
}

#[derive(Debug)]
struct Finish(Arc<Outbox>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.finish();
    }
}

impl Reply {
    /// A stream that goes on after the answers.
    pub(crate) fn standing(out: &Arc<Outbox>) -> Self {
        Self { out: Arc::clone(out), last: None }
    }

    /// A stream that is over with the last answer.
    pub(crate) fn single(out: &Arc<Outbox>) -> Self {
        Self { out: Arc::clone(out), last: Some(Arc::new(Finish(Arc::clone(out)))) }
    }

    /// Gives an answer, with which the stream is over if nobody else has one to give.
    fn answer(self, message: Bytes) {
        match self.last.as_ref().map(Arc::strong_count) {
            Some(1) => self.out.put_last(message),
            _ => self.out.put(message),
        }
    }
}

impl Conversation {
    /// A client that has not said anything yet. What it did not ask for goes to `out`.
    pub(crate) fn new(shared: Arc<Shared>, out: Arc<Outbox>) -> Arc<Self> {
        Arc::new(Self {
            open: OpenRequests::new(shared.options.max_open, shared.options.max_waiting),
            shared,
            out,
            owner: Owner::new(),
            session: OnceLock::new(),
            level: Arc::default(),
            is_ready: AtomicBool::new(false),
            roots: Telling::default(),
            questions: Mutex::default(),
            n_questions: AtomicU64::new(1),
            stop: CancellationToken::new(),
        })
    }

    pub(crate) fn out(&self) -> &Arc<Outbox> {
        &self.out
    }

    pub(crate) fn listener(&self) -> Option<&Arc<Listener>> {
        self.session.get().map(|(_, listener)| listener)
    }

    pub(crate) fn caller(&self) -> Option<&Arc<Caller>> {
        self.session.get().map(|(caller, _)| caller)
    }

    pub(crate) fn level(&self) -> &Arc<Mutex<Option<LogLevel>>> {
        &self.level
    }

    pub(crate) fn n_open(&self) -> usize {
        self.open.len()
    }

    /// How many requests will be answered by themselves.
    pub(crate) fn n_unanswered(&self) -> usize {
        self.open.n_unanswered()
    }

    /// Whether the client may know of a server.
    pub(crate) fn sees(&self, server: &str) -> bool {
        self.shared.scope.has(server)
    }

    pub(crate) fn can(&self, method: &str) -> bool {
        self.caller().is_some_and(|it| it.can(method, None))
    }

    pub(crate) fn log(&self, server: &str, message: &LogMessage, usual: LogLevel) {
        let wanted = Wanted::BySession(Arc::clone(&self.level));
        if self.caller().is_some() && wanted.admits(message.level, usual) {
            let naming = self.shared.scope.naming();
            self.out().tell(log_notification(server, message, naming));
        }
    }

    /// Takes a message, or the messages of a batch.
    pub(crate) fn receive(self: &Arc<Self>, message: &Bytes, reply: &Reply) {
        let Some(batch) = elements(message) else { return self.accept(message, message, reply) };
        if self.caller().is_none_or(|it| !it.revision.has_batches()) || batch.is_empty() {
            let error = invalid_request("a batch is not a message of this revision");
            return reply.out.put(refusal_without_id(&error));
        }
        for element in batch {
            self.accept(message, element, reply);
        }
    }

    fn accept(self: &Arc<Self>, message: &Bytes, text: &[u8], reply: &Reply) {
        match Frame::parse(text) {
            Ok(Frame::Request { id, method, params }) => {
                self.request(id, method, params.map(|it| message.slice_ref(it)), reply);
            }
            Ok(Frame::Notification { method, params }) => self.notified(&method, params),
            Ok(Frame::Success { id, result }) => {
                self.answered(&id, Ok(RawJson::new(message.slice_ref(result))));
            }
            Ok(Frame::Failure { id: Some(id), error }) => self.answered(&id, Err(error)),
            Ok(Frame::Failure { id: None, error }) => {
                tracing::debug!(%error, "a client could not read a message");
            }
            Err(fault) => reply.out.put(unreadable(text, &fault)),
        }
    }

    fn request(
        self: &Arc<Self>,
        id: RequestId,
        method: String,
        params: Option<Bytes>,
        reply: &Reply,
    ) {
        if method == Method::Initialize.as_str() {
            return reply.out.put(answer(&id, &self.initialize(params.as_deref())));
        }
        let token = self.stop.child_token();
        if let Err(error) = self.open.claim(&id, &token, Until::of(&method)) {
            return reply.out.put(answer(&id, &Err(error)));
        }
        let (this, reply) = (Arc::clone(self), reply.clone());
        self.shared.tracker.spawn(async move {
            let outcome = tokio::select! {
                biased;
                () = token.cancelled() => None,
                outcome = this.serve(&id, &method, params, &reply.out) => Some(outcome),
            };
            // The id is free before the client can know the answer.
            this.open.release(&id);
            if let Some(outcome) = outcome {
                reply.answer(answer(&id, &outcome));
            }
        });
    }

    async fn serve(
        self: &Arc<Self>,
        id: &RequestId,
        method: &str,
        params: Option<Bytes>,
        out: &Arc<Outbox>,
    ) -> Outcome {
        let _place = self.open.place(method).await?;
        let read = Params::read(params.as_deref())?;
        let is_modern = read.version()?.is_some();
        let (caller, home) = match self.caller() {
            Some(caller) if !is_modern => {
                self.ready();
                (Arc::clone(caller), Some(Arc::clone(self)))
            }
            None if !is_modern && method == Method::Ping.as_str() => return result(&json!({})),
            _ => (Arc::new(Caller::modern(&read)?), None),
        };
        drop(read);
        let (shared, out) = (Arc::clone(&self.shared), Arc::clone(out));
        let (owner, id) = (self.owner.clone(), id.clone());
        let exchange = Exchange { shared, caller, owner, home, out, id, patience: None };
        exchange.serve(method, params).await
    }

    fn initialize(self: &Arc<Self>, params: Option<&[u8]>) -> Outcome {
        let caller = Caller::legacy(&Params::read(params)?)?;
        let revision = caller.revision;
        let listener = Listener::session(Arc::clone(&self.out));
        if self.session.set((Arc::new(caller), Arc::new(listener))).is_err() {
            return Err(invalid_request("this session is initialized"));
        }
        self.shared.switchboard.settle(self);
        let mut greeting = json!({
            "protocolVersion": revision.as_str(),
            "capabilities": self.shared.capabilities(revision),
            "serverInfo": self.shared.server_info(revision),
        });
        if let (Some(members), Some(text)) = (greeting.as_object_mut(), self.shared.instructions())
        {
            members.insert("instructions".to_owned(), text.into());
        }
        result(&greeting)
    }

    /// From now on the client is told of changes. Some clients never say that they are ready.
    fn ready(&self) {
        if let Some(listener) = self.listener()
            && !self.is_ready.swap(true, Ordering::AcqRel)
        {
            self.shared.audience.admit(listener);
        }
    }

    fn notified(self: &Arc<Self>, method: &str, params: Option<&[u8]>) {
        match Method::parse(method) {
            Some(Method::Initialized) => self.ready(),
            Some(Method::Cancelled) => {
                let id = Params::read(params).ok().and_then(|it| it.request_id);
                id.inspect(|id| self.open.cancel(id));
            }
            Some(Method::RootsListChanged)
                if self.shared.switchboard.passes_roots() && self.roots.begin() =>
            {
                let this = Arc::clone(self);
                self.shared.tracker.spawn(async move {
                    let telling = async {
                        this.shared.roots_changed().await;
                        while this.roots.goes_on() {
                            this.shared.roots_changed().await;
                        }
                    };
                    tokio::select! {
                        biased;
                        () = this.stop.cancelled() => {}
                        () = telling => {}
                    }
                });
            }
            _ => {}
        }
    }

    fn answered(&self, id: &RequestId, outcome: Outcome) {
        let asked = id.as_ours().and_then(|id| lock(&self.questions).remove(&id));
        // Whoever asked may have given up a moment ago.
        asked.map(|it| it.send(outcome).is_ok());
    }

    /// Asks the client something, and tells it when the answer is no longer wanted.
    pub(crate) async fn ask(
        &self,
        given: &Arc<Outbox>,
        method: &str,
        params: Option<&RawJson>,
    ) -> Outcome {
        if given.carries() == Carries::Answers {
            return Err(internal("the client takes no stream, so it cannot be asked"));
        }
        let id = self.n_questions.fetch_add(1, Ordering::Relaxed);
        let (sender, answered) = oneshot::channel();
        lock(&self.questions).insert(id, sender);
        // A stream that has ended meanwhile brings nothing any more.
        let asked = question(id, method, params);
        let out = if given.put_if_open(&asked) { given } else { &self.out };
        let _open = OpenQuestion { conversation: self, id, out };
        if !Arc::ptr_eq(out, given) {
            out.put(asked);
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(internal("the client is gone")),
            answer = timeout(self.shared.options.question_patience, answered) => match answer {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_dropped)) => Err(internal("the client is gone")),
                Err(_elapsed) => Err(internal("the client did not answer in time")),
            },
        }
    }

    /// Ends everything that the client has open.
    pub(crate) fn end(&self) {
        self.stop.cancel();
        if let Some(listener) = self.listener() {
            listener.end().iter().for_each(|uri| self.shared.unsubscribe(uri));
        }
        self.out().finish();
    }
}

/// A question that waits for its answer, or has just got it.
struct OpenQuestion<'a> {
    conversation: &'a Conversation,
    id: u64,
    out: &'a Outbox,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        if lock(&self.conversation.questions).remove(&self.id).is_some() {
            let params =
                json!({ "requestId": self.id, "reason": "the answer is no longer needed" });
            self.out.tell(notification(Method::Cancelled.as_str(), &params));
        }
    }
}

fn unreadable(text: &[u8], fault: &FrameError) -> Bytes {
    match fault {
        FrameError::Shape { id: Some(id) } => {
            answer(id, &Err(invalid_request("neither a request, a notification nor an answer")))
        }
        _ if serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok() => {
            refusal_without_id(&invalid_request("no JSON-RPC message"))
        }
        _ => refusal_without_id(&JsonRpcError::new(ErrorCode::PARSE_ERROR.0, "Parse error")),
    }
}
