//! Where a line puts what its server says unasked, sorted by who needs it.
//!
//! Progress goes to the call it is about, changes raise a counter, events go to listeners, and what has
//! to be answered waits in a short queue for the client's own task.
//!
//! **Invariant:** nothing here waits, answers or decides; it runs in whichever task received the message.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tokio::sync::Notify;
use toolrack_mcp::{
    Cancelled, ListKind, LogMessage, Method, Progress, ServerNotification, SubscriptionFilter,
    Token, subscription_id,
};
use toolrack_transport::{Ending, Inbox, Line, RawJson, RequestId};

use crate::event::{Bulletin, Event};
use crate::progress::Watchers;
use crate::server_requests::ClientHandler;
use crate::session::lock;
use crate::subscriptions::Listens;

/// Requests of the server that wait for the client's task, which takes them without waiting itself. When
/// it is full, a server is flooding us: what comes is dropped and counted.
const CAPACITY: usize = 256;

/// Pages that the user was sent to and whose end may still be told. The oldest goes when it is full.
const MAX_PAGES: usize = 64;

/// The inbox of one line.
#[derive(Default)]
pub(crate) struct Mailbox {
    line: OnceLock<Weak<dyn Line>>,
    stage: AtomicU8,
    questions: Mutex<VecDeque<Question>>,
    /// Rung when there is something for the client's task.
    pub(crate) bell: Notify,
    /// A line came that is no message.
    noise: AtomicBool,
    /// One of our own requests came back.
    echo: AtomicBool,
    /// How often each list has changed.
    changes: [AtomicU64; 3],
    /// How often the server has forgotten us.
    renewals: AtomicU64,
    /// Requests of the server that were not answered, because they must not be or there were too many.
    ignored: AtomicU64,
    /// The pages that the user was sent to, as the server named them.
    pages: Mutex<Vec<String>>,
    pub(crate) watchers: Watchers,
    pub(crate) listens: Listens,
    pub(crate) bulletin: Bulletin,
    server: Box<str>,
    handler: Option<Arc<dyn ClientHandler>>,
}

/// Something for the client's task.
#[derive(Debug)]
pub(crate) enum Question {
    /// The server asks; about which of our requests, if that is known.
    Asked { id: RequestId, method: String, params: Option<RawJson>, about: Option<u64> },
    /// The server no longer wants the answer.
    Withdrawn(RequestId),
}

/// How far the conversation has come, which says what may be taken from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// The era is not known: everything unasked is ignored.
    Probing = 0,
    /// From `initialize` on.
    Legacy = 1,
    /// The server must not ask.
    Modern = 2,
}

impl Mailbox {
    pub(crate) fn new(server: &str, handler: Option<Arc<dyn ClientHandler>>) -> Self {
        Self { server: server.into(), handler, ..Self::default() }
    }

    /// Tells the inbox which line it belongs to, for renewing patience.
    pub(crate) fn attach(&self, line: &Arc<dyn Line>) {
        self.line.get_or_init(|| Arc::downgrade(line));
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    pub(crate) fn next_question(&self) -> Option<Question> {
        let mut questions = lock(&self.questions);
        let next = questions.pop_front();
        if questions.is_empty() {
            // An idle connection holds no buffer.
            *questions = VecDeque::new();
        }
        next
    }

    /// Takes the pings out of the queue, which may be answered before anything else.
    pub(crate) fn take_pings(&self) -> Vec<RequestId> {
        let mut pings = Vec::new();
        lock(&self.questions).retain(|question| match question {
            Question::Asked { id, method, .. } if method == Method::Ping.as_str() => {
                pings.push(id.clone());
                false
            }
            _ => true,
        });
        pings
    }

    pub(crate) fn is_echo(&self) -> bool {
        self.echo.load(Ordering::Acquire)
    }

    pub(crate) fn is_noisy(&self) -> bool {
        self.noise.load(Ordering::Acquire)
    }

    /// How often the server has said that a list changed.
    pub(crate) fn changes(&self, kind: ListKind) -> u64 {
        self.counter(kind).load(Ordering::Acquire)
    }

    /// How often the line has begun a new session.
    pub(crate) fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Acquire)
    }

    /// Nobody has told of changes for a while, so everything `missed` speaks of may be another now.
    pub(crate) fn unseen(&self, missed: &SubscriptionFilter) {
        let lists = [
            (missed.tools_list_changed, ListKind::Tools),
            (missed.prompts_list_changed, ListKind::Prompts),
            (missed.resources_list_changed, ListKind::Resources),
        ];
        for (_, kind) in lists.into_iter().filter(|(is_missed, _)| *is_missed) {
            self.changed(kind);
        }
        for uri in &missed.resource_subscriptions {
            self.bulletin.tell(Event::ResourceUpdated { uri: uri.clone() });
        }
    }

    pub(crate) fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }

    /// The user has agreed to open a page.
    pub(crate) fn page_opened(&self, id: String) {
        let mut pages = lock(&self.pages);
        if pages.len() >= MAX_PAGES {
            pages.remove(0);
        }
        pages.push(id);
    }

    fn ask(&self, question: Question) {
        let mut questions = lock(&self.questions);
        if questions.len() >= CAPACITY {
            drop(questions);
            self.ignore("too many requests are waiting");
            return;
        }
        questions.push_back(question);
        drop(questions);
        self.bell.notify_one();
    }

    fn ignore(&self, reason: &str) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(reason, "a request of the server was ignored");
    }

    fn counter(&self, kind: ListKind) -> &AtomicU64 {
        let [tools, prompts, resources] = &self.changes;
        match kind {
            ListKind::Tools => tools,
            ListKind::Prompts => prompts,
            ListKind::Resources => resources,
        }
    }

    fn changed(&self, kind: ListKind) {
        self.counter(kind).fetch_add(1, Ordering::Release);
        match kind {
            // The client's task fetches them first and then tells.
            ListKind::Tools => self.bell.notify_one(),
            ListKind::Prompts => self.bulletin.tell(Event::PromptsChanged),
            ListKind::Resources => self.bulletin.tell(Event::ResourcesChanged),
        }
    }

    /// Spec 2026-07-28, progress: tokens that nobody waits for are ignored.
    fn progressed(&self, progress: Progress) {
        let Token::Integer(token) = progress.token else { return };
        let Ok(id) = u64::try_from(token) else { return };
        if let Some(line) = self.line.get().and_then(Weak::upgrade) {
            line.touch(id);
        }
        if !self.watchers.is_empty() {
            self.watchers.report(id, progress);
        }
    }

    /// The program's own code runs here in a task that serves others too, and must survive it.
    fn show(&self, message: &LogMessage) {
        let Some(handler) = &self.handler else { return };
        if catch_unwind(AssertUnwindSafe(|| handler.log_from(&self.server, message))).is_err() {
            tracing::error!("the program crashed over a log message");
        }
    }

    /// Legacy: the server takes back a request. Modern: it ends a subscription, and nothing else.
    fn withdrawn(&self, cancelled: Cancelled) {
        let Some(id) = cancelled.request_id else { return };
        if self.is_modern() {
            self.listens.cancelled(&id);
        } else {
            self.ask(Question::Withdrawn(request_id(id)));
        }
    }

    fn is_modern(&self) -> bool {
        self.stage.load(Ordering::Acquire) == Stage::Modern as u8
    }

    fn is_probing(&self) -> bool {
        self.stage.load(Ordering::Acquire) == Stage::Probing as u8
    }

    /// Spec 2025-11-25, elicitation §URL mode: pages that are unknown or done are ignored.
    fn page_done(&self, id: String) {
        let mut pages = lock(&self.pages);
        let Some(place) = pages.iter().position(|it| *it == id) else { return };
        pages.swap_remove(place);
        drop(pages);
        self.bulletin.tell(Event::ElicitationComplete { id });
    }
}

impl Mailbox {
    fn asked(&self, about: Option<u64>, id: RequestId, method: &str, params: Option<RawJson>) {
        // No server asks these: our own words have come back.
        if matches!(Method::parse(method), Some(Method::Initialize | Method::Discover)) {
            self.echo.store(true, Ordering::Release);
            self.bell.notify_one();
        }
        if self.is_probing() {
            self.ignore("the era is not known yet");
        } else if self.is_modern() {
            // Spec 2026-07-28, basic §Responses: clients never answer, and servers never ask.
            self.ignore("servers do not ask in this era");
        } else {
            self.ask(Question::Asked { id, method: method.to_owned(), params, about });
        }
    }
}

impl Inbox for Mailbox {
    fn request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        self.asked(None, id, method, params);
    }

    fn request_about(&self, about: u64, id: RequestId, method: &str, params: Option<RawJson>) {
        self.asked(Some(about), id, method, params);
    }

    fn notification(&self, method: &str, params: Option<RawJson>) {
        if self.is_probing() {
            return;
        }
        let params = params.as_ref().map_or(&b""[..], RawJson::as_bytes);
        let notification = match ServerNotification::parse(method, params) {
            Ok(notification) => notification,
            Err(error) => {
                tracing::debug!(method, %error, "a notification could not be read");
                return;
            }
        };
        match notification {
            ServerNotification::Progress(progress) => return self.progressed(progress),
            ServerNotification::LogMessage(message) => {
                self.show(&message);
                return self.bulletin.tell(Event::Log(message));
            }
            ServerNotification::Cancelled(cancelled) => return self.withdrawn(cancelled),
            _ => {}
        }
        // Spec 2026-07-28, subscriptions §Demultiplexing: what names a subscription that is not open
        // is for nobody.
        let subscription = subscription_id(params);
        if subscription.as_ref().is_some_and(|id| !self.listens.has(id)) {
            return;
        }
        match notification {
            ServerNotification::ListChanged(kind) => self.changed(kind),
            ServerNotification::ResourceUpdated(updated) => {
                self.bulletin.tell(Event::ResourceUpdated { uri: updated.uri });
            }
            ServerNotification::ElicitationComplete(complete) => {
                self.page_done(complete.elicitation_id);
            }
            ServerNotification::SubscriptionAcknowledged(acknowledged) => {
                let granted = acknowledged.notifications;
                let missed = subscription.and_then(|id| self.listens.acknowledged(&id, granted));
                if let Some(missed) = missed {
                    self.unseen(&missed);
                }
            }
            _ => tracing::trace!(method, "a notification of no use"),
        }
    }

    fn unreadable(&self, sample: &str) {
        tracing::debug!(sample, "line is not a message");
        self.noise.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    fn renewed(&self) {
        self.renewals.fetch_add(1, Ordering::Release);
        self.bell.notify_one();
    }

    fn ended(&self, ending: &Ending) {
        self.bulletin.end(ending);
        self.bell.notify_one();
    }
}

fn request_id(token: Token) -> RequestId {
    match token {
        Token::Integer(number) => RequestId::Number(number),
        Token::Text(text) => RequestId::Text(text.into()),
    }
}
