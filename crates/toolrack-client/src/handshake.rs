//! The way from nothing to a conversation: lines are opened, questions asked and answers judged.
//!
//! [`Detection`] says what to do next; this file does it.
//!
//! **Invariant:** `initialize` and the probe are never cancelled, and whoever gives up can still close
//! the line, because it never leaves [`Handshake`] before everything is agreed.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};
use toolrack_mcp::{
    Answer, DecodeError, DiscoverParams, DiscoverResult, EmptyResult, Era, InitializeParams,
    InitializeResult, Initialized, Method, Notification, Request, Revision, TASKS_EXTENSION,
};
use toolrack_transport::{
    Abandon, Diagnosis, Dialect, JsonRpcError, Line, Medium, NoParams, Outgoing, Patience, RawJson,
    TransportError,
};

use crate::builder::Plan;
use crate::connect::ConnectStep;
use crate::connector::Connector;
use crate::error::{ConnectError, NotMcp};
use crate::incoming::{Mailbox, Stage};
use crate::request_meta::{Envelope, Extra, Packed};
use crate::session::{ServerCard, respond};
use crate::version_detection::{Detection, Fault, LineChoice, Reply, Step, Wait};

/// So many lines without one message are proof enough.
const MAX_NOISE: u64 = 1_000;
/// How often they are counted, once there is one.
const COUNT_NOISE: Duration = Duration::from_millis(50);
/// What a program that has to fetch its server first gets for the probe, instead of a moment.
const LAUNCHER_PROBE: Duration = Duration::from_secs(10);

fn unwritten(fault: serde_json::Error) -> Stopped {
    Stopped::Because(ConnectError::Transport(TransportError::Serialize(fault)))
}

/// A line with its inbox.
pub(crate) struct Link {
    pub(crate) line: Arc<dyn Line>,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// What was agreed.
pub(crate) struct Agreed {
    pub(crate) revision: Revision,
    pub(crate) envelope: Envelope,
    pub(crate) card: ServerCard,
}

/// An attempt to agree.
pub(crate) struct Handshake<'a> {
    plan: &'a Plan,
    connector: &'a dyn Connector,
    deadline: Instant,
    /// The line that is open now.
    pub(crate) link: Option<Link>,
    /// What was asked last.
    pub(crate) asking: Method,
    detection: Detection,
    card: ServerCard,
    /// What the last question brought, if that was no good answer.
    trouble: Option<Trouble>,
    /// How `initialize` was refused. It says more than a failed second look.
    refusal: Option<Trouble>,
}

/// Why an attempt stopped, before the line was closed.
pub(crate) enum Stopped {
    /// For a reason that is known.
    Because(ConnectError),
    /// The server or its output went away.
    Gone(TransportError),
    /// Time is over.
    Late,
}

/// What a question brought instead of a good answer.
enum Trouble {
    Odd(DecodeError),
    /// An HTTP server that does not want such a request, whatever it is.
    Declined(TransportError),
    Refused(JsonRpcError),
    Silent,
    Gone(TransportError),
    Barred(TransportError),
}

impl Trouble {
    fn reply<T>(&self) -> Reply<'_, T> {
        match self {
            Trouble::Odd(_) | Trouble::Declined(_) => Reply::Odd,
            Trouble::Refused(error) => Reply::Refused(error),
            Trouble::Silent => Reply::Silent,
            Trouble::Gone(_) => Reply::Gone,
            Trouble::Barred(_) => Reply::Barred,
        }
    }

    /// What a failure means for the question of eras, which depends on how messages travel.
    fn judge(error: TransportError, medium: Medium) -> Self {
        match (error, medium) {
            (TransportError::JsonRpc(error), _) => Trouble::Refused(error),
            (error @ (TransportError::Parse(_) | TransportError::Oversize { .. }), _) => {
                let fault: serde_json::Error = serde::de::Error::custom(error);
                Trouble::Odd(DecodeError::from(fault))
            }
            (TransportError::Timeout(_) | TransportError::Clogged { .. }, Medium::Stream) => {
                Trouble::Silent
            }
            (gone, Medium::Stream) => Trouble::Gone(gone),
            (TransportError::Status { code, text }, Medium::Exchange) if is_verdict(code) => {
                Trouble::Declined(TransportError::Status { code, text })
            }
            (outage, Medium::Exchange) => Trouble::Barred(outage),
        }
    }
}

/// Protocol facts §5.2: which HTTP statuses say something about the request. The others say that the
/// server is busy, broken or locked.
fn is_verdict(code: u16) -> bool {
    (400..500).contains(&code) && !matches!(code, 401 | 403 | 407 | 408 | 425 | 429)
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(plan: &'a Plan, connector: &'a dyn Connector, deadline: Instant) -> Self {
        let detection = Detection::new(plan.era, plan.remembered);
        let detection = match connector.launcher() {
            Some(_) => detection.fetching(),
            None => detection,
        };
        Self {
            plan,
            connector,
            deadline,
            link: None,
            asking: Method::Discover,
            detection,
            card: ServerCard::default(),
            trouble: None,
            refusal: None,
        }
    }

    /// Takes step after step until there is nothing left to agree on, or to try.
    pub(crate) async fn run(&mut self) -> Result<Agreed, Stopped> {
        self.open().await?;
        let mut step = self.detection.begin();
        loop {
            step = match step {
                Step::Probe { revision, line, wait } => {
                    self.choose(line).await?;
                    self.probe(revision, wait).await?
                }
                Step::Initialize { revision, line } => {
                    self.choose(line).await?;
                    self.greet(revision).await?
                }
                Step::Settle(revision) => return self.settle(revision).await,
                Step::Fail(fault) => return Err(self.failure(fault)),
            };
        }
    }

    async fn open(&mut self) -> Result<(), Stopped> {
        self.plan.tell(ConnectStep::Opening);
        let mailbox = Arc::new(Mailbox::new(&self.plan.name, self.plan.handler.clone()));
        let inbox = Arc::clone(&mailbox) as Arc<dyn toolrack_transport::Inbox>;
        let line = self
            .connector
            .open(inbox)
            .await
            .map_err(|error| Stopped::Because(ConnectError::Transport(error)))?;
        mailbox.attach(&line);
        self.link = Some(Link { line, mailbox });
        self.plan.tell(ConnectStep::Greeting);
        Ok(())
    }

    /// The old line stays in its place until it has ended, so that giving up meanwhile finds it.
    async fn choose(&mut self, line: LineChoice) -> Result<(), Stopped> {
        if line == LineChoice::Same {
            return Ok(());
        }
        if let Some(link) = &self.link {
            link.line.close().await;
        }
        self.open().await
    }

    async fn probe(&mut self, revision: Revision, wait: Wait) -> Result<Step, Stopped> {
        let envelope = self.envelope(revision)?;
        // Something must be left for the greeting of a server that does not answer.
        let most = self.plan.timeouts.startup / 3;
        let wait = match (wait, self.medium(), self.connector.launcher()) {
            // Nobody is greeted after silence in an exchange, so nothing has to be left.
            (Wait::Long, _, _) | (_, Medium::Exchange, _) => self.left(),
            (Wait::Short, _, None) => self.plan.timeouts.probe.min(most),
            (Wait::Short, _, Some(_)) => self.plan.timeouts.probe.max(LAUNCHER_PROBE).min(most),
        };
        self.enter(Stage::Probing, Dialect::Stateless(revision.as_str()));
        let answer: Result<DiscoverResult, Trouble> =
            self.ask(&DiscoverParams {}, &envelope, wait).await?;
        let step = match &answer {
            Ok(found) => self.detection.probed(Reply::Good(&found.supported_versions)),
            Err(trouble) => self.detection.probed(trouble.reply()),
        };
        match answer {
            Ok(DiscoverResult { server, capabilities, instructions, .. }) => {
                self.card = ServerCard { server, capabilities, instructions };
            }
            Err(trouble) => self.trouble = Some(trouble),
        }
        Ok(step)
    }

    async fn greet(&mut self, revision: Revision) -> Result<Step, Stopped> {
        let params = InitializeParams {
            revision,
            capabilities: &self.plan.capabilities,
            client: &self.plan.client,
        };
        self.enter(Stage::Legacy, Dialect::Greeting);
        // What remains is enough for a server that has been fetched by then.
        let share =
            if self.detection.may_greet_again() { self.left() / 4 * 3 } else { self.left() };
        let answer: Result<InitializeResult, Trouble> =
            self.ask(&params, &Envelope::default(), share).await?;
        let step = match &answer {
            Ok(agreed) => self.detection.greeted(revision, Reply::Good(&agreed.protocol_version)),
            Err(trouble) => self.detection.greeted(revision, trouble.reply()),
        };
        match answer {
            Ok(InitializeResult { server, capabilities, instructions, .. }) => {
                self.card = ServerCard { server, capabilities, instructions };
            }
            Err(refused @ Trouble::Refused(_)) => {
                self.refusal = Some(refused);
            }
            Err(trouble) => self.trouble = Some(trouble),
        }
        Ok(step)
    }

    /// Spec 2025-11-25, lifecycle §Initialization: after the answer, and before anything else.
    async fn settle(&mut self, revision: Revision) -> Result<Agreed, Stopped> {
        let envelope = match revision.era() {
            Era::Modern => {
                self.enter(Stage::Modern, Dialect::Stateless(revision.as_str()));
                self.envelope(revision)?
            }
            Era::Legacy => {
                self.enter(Stage::Legacy, Dialect::Session(revision.as_str()));
                let Some(link) = &self.link else { return Err(Stopped::Late) };
                let sent = link.line.notify(Initialized::METHOD.as_str(), &NoParams).await;
                sent.map_err(|failure| Stopped::Gone(failure.error))?;
                Envelope::default()
            }
        };
        Ok(Agreed { revision, envelope, card: std::mem::take(&mut self.card) })
    }

    /// Asks one question and watches for signs that nobody here will ever answer.
    async fn ask<P: Request + Sync>(
        &mut self,
        params: &P,
        envelope: &Envelope,
        wait: Duration,
    ) -> Result<Result<P::Answer, Trouble>, Stopped> {
        self.asking = P::METHOD;
        let Some(Link { line, mailbox }) = &self.link else { return Err(Stopped::Late) };
        let params = Packed { envelope, params, extra: Extra::default() };
        let request = line.request(Outgoing {
            method: P::METHOD.as_str(),
            params: &params,
            patience: Patience::exactly(wait),
            // Spec 2025-11-25, cancellation: `initialize` must not be cancelled. And whoever does
            // not know the probe does not know its cancellation.
            abandon: Abandon::Quietly,
        });
        let outcome = tokio::select! {
            biased;
            outcome = request => outcome,
            proof = disproof(&**line, mailbox) => return Err(Stopped::Because(proof)),
        };
        Ok(match outcome {
            Ok(raw) => decode::<P>(&raw),
            Err(failure) => Err(Trouble::judge(failure.error, line.medium())),
        })
    }

    fn envelope(&self, revision: Revision) -> Result<Envelope, Stopped> {
        let mut capabilities = Cow::Borrowed(&self.plan.capabilities);
        // Spec 2026-07-28, extensions: one that the other side does not have is of no use.
        if self.card.capabilities.extensions.contains_key(TASKS_EXTENSION) {
            let no_settings = RawValue::from_string("{}".to_owned()).map_err(unwritten)?;
            capabilities.to_mut().extensions.insert(TASKS_EXTENSION.to_owned(), no_settings);
        }
        Envelope::modern(revision, &self.plan.client, &capabilities).map_err(unwritten)
    }

    fn enter(&self, stage: Stage, dialect: Dialect) {
        if let Some(link) = &self.link {
            link.mailbox.enter(stage);
            link.line.speak(dialect);
        }
    }

    fn medium(&self) -> Medium {
        self.link.as_ref().map_or(Medium::Stream, |link| link.line.medium())
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn failure(&mut self, fault: Fault) -> Stopped {
        if let Fault::Unsupported(theirs) = fault {
            return Stopped::Because(ConnectError::UnsupportedVersion { theirs });
        }
        let (method, trouble) = match (self.refusal.take(), self.trouble.take()) {
            (Some(refusal), _) => (Method::Initialize, refusal),
            (None, Some(trouble)) => (self.asking, trouble),
            (None, None) => return Stopped::Late,
        };
        match trouble {
            Trouble::Odd(source) => Stopped::Because(ConnectError::Undecodable { method, source }),
            Trouble::Refused(source) => Stopped::Because(ConnectError::Refused { method, source }),
            Trouble::Silent | Trouble::Barred(TransportError::Timeout(_)) => Stopped::Late,
            Trouble::Gone(error) | Trouble::Barred(error) | Trouble::Declined(error) => {
                Stopped::Gone(error)
            }
        }
    }
}

fn decode<P: Request>(raw: &RawJson) -> Result<P::Answer, Trouble> {
    P::Answer::decode(raw.as_bytes()).map_err(Trouble::Odd)
}

/// Answers pings and waits for proof that the program is no server: an echo, or noise without end.
async fn disproof(line: &dyn Line, mailbox: &Mailbox) -> ConnectError {
    loop {
        if mailbox.is_echo() {
            return ConnectError::NotMcp(NotMcp::Echo);
        }
        for id in mailbox.take_pings() {
            respond(line, &id, Ok(EmptyResult {}));
        }
        if mailbox.is_noisy() {
            if let Some(noise) = noise(&line.diagnosis(), MAX_NOISE) {
                return noise;
            }
            tokio::select! {
                () = mailbox.bell.notified() => {}
                () = sleep(COUNT_NOISE) => {}
            }
        } else {
            mailbox.bell.notified().await;
        }
    }
}

/// The verdict on a program that has written at least so many lines, and no message.
pub(crate) fn noise(seen: &Diagnosis, least: u64) -> Option<ConnectError> {
    if seen.messages > 0 || seen.unreadable < least {
        return None;
    }
    let sample = seen.sample.clone().unwrap_or_default();
    Some(ConnectError::NotMcp(NotMcp::Noise { sample }))
}

#[cfg(test)]
mod tests {
    use toolrack_transport::AuthError;

    use super::*;

    #[track_caller]
    fn check(error: TransportError, stream: &str, exchange: &str) {
        // An error cannot be cloned, and is judged twice.
        let again = match &error {
            TransportError::Status { code, text } => {
                TransportError::Status { code: *code, text: text.clone() }
            }
            TransportError::Timeout(ms) => TransportError::Timeout(*ms),
            TransportError::Unauthorized(auth) => TransportError::Unauthorized(auth.clone()),
            TransportError::Parse(text) => TransportError::Parse(text.clone()),
            _ => TransportError::StdoutNotAvailable,
        };
        let shown = format!("{error:?}");
        let name = |trouble: Trouble| match trouble.reply::<()>() {
            Reply::Good(()) => "good",
            Reply::Odd => "odd",
            Reply::Refused(_) => "refused",
            Reply::Silent => "silent",
            Reply::Gone => "gone",
            Reply::Barred => "barred",
        };
        let judged = [(error, Medium::Stream), (again, Medium::Exchange)]
            .map(|(error, medium)| name(Trouble::judge(error, medium)));
        assert_eq!(judged, [stream, exchange], "{shown}");
    }

    /// Protocol facts §5.2: no outage and no locked door is a sign of an old server.
    #[test]
    fn only_what_says_something_about_the_request_counts() {
        check(TransportError::Timeout(5), "silent", "barred");
        check(TransportError::StdoutNotAvailable, "gone", "barred");
        check(TransportError::Parse("no".to_owned()), "odd", "odd");
        let locked = AuthError::LoginNeeded { reason: String::new() };
        check(TransportError::Unauthorized(locked), "gone", "barred");
        for code in [400, 404, 405, 406, 415, 422] {
            check(TransportError::Status { code, text: String::new() }, "gone", "odd");
        }
        for code in [301, 401, 403, 408, 429, 500, 502, 503, 504] {
            check(TransportError::Status { code, text: String::new() }, "gone", "barred");
        }
    }
}
