//! What legacy servers ask of us while they work, each answered by a task of its own.
//!
//! **Invariant:** every request that was taken gets exactly one answer, unless the server withdraws it:
//! then it gets none.
//!
//! What the program around a client can do for servers: ask its user, ask a model, name directories.
//!
//! Answers to what a server asks of the user, of a model, or of us, in either era.
//!
//! **Invariant:** nothing is asked of the program that was not declared to the server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::timeout;
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationAnswer, EmptyResult, ErrorCode, FormElicitation,
    InputRequest, InputResponse, LogMessage, MetaKey, Method, Revision, Root, RootsResult,
    SamplingParams, SamplingResult, check_sampling, related_task,
};
use toolrack_transport::{BoxFuture, JsonRpcError, RawJson, RequestId};

use crate::incoming::{Mailbox, Question};
use crate::session::Session;
use crate::timeouts::Limits;

/// Answers what servers ask.
///
/// A server is told of exactly those abilities that [`capabilities`](Self::capabilities) names, and
/// nothing else is ever asked of the other methods. Whoever is asked must be shown which server asks.
pub trait ClientHandler: Send + Sync {
    /// What can be asked. Read once for each connection.
    fn capabilities(&self) -> ClientCapabilities;

    /// The user is asked to fill in a form or to open a page. A page must not be fetched, and not be
    /// opened without the user's consent to the address shown in full.
    ///
    /// # Cancel safety
    /// The future is dropped when the server no longer wants the answer.
    fn elicit<'a>(
        &'a self,
        _server: &'a str,
        _question: Elicitation,
    ) -> BoxFuture<'a, ElicitationAnswer> {
        Box::pin(async { ElicitationAnswer::Cancel })
    }

    /// A model is asked to go on with a conversation.
    ///
    /// # Cancel safety
    /// The future is dropped when the server no longer wants the answer.
    fn sample<'a>(
        &'a self,
        _server: &'a str,
        _params: SamplingParams,
    ) -> BoxFuture<'a, Result<SamplingResult, Refusal>> {
        Box::pin(async { Err(Refusal::Failed("no model is connected".to_owned())) })
    }

    /// The directories that the server may regard as its place of work.
    fn roots<'a>(&'a self, _server: &'a str) -> BoxFuture<'a, Vec<Root>> {
        Box::pin(async { Vec::new() })
    }

    /// For a program that passes questions on to somebody else: gets the question of a legacy server as it
    /// was written, and gives the answer as it is to be written. `None` has the other methods asked.
    ///
    /// # Cancel safety
    /// The future is dropped when the server no longer wants the answer.
    fn pass_on<'a>(
        &'a self,
        _server: &'a str,
        _question: RawQuestion<'a>,
    ) -> Option<BoxFuture<'a, Result<Box<RawValue>, JsonRpcError>>> {
        None
    }

    /// The server says something for the log. Called by the task that received it, so it must not wait.
    fn log(&self, _message: &LogMessage) {}

    /// The same, for a program that wants to know which server speaks.
    fn log_from(&self, _server: &str, message: &LogMessage) {
        self.log(message);
    }
}

/// A question as a legacy server wrote it.
#[derive(Debug, Clone, Copy)]
pub struct RawQuestion<'a> {
    /// What is asked for.
    pub method: &'a str,
    /// The parameters, if there are any.
    pub params: Option<&'a RawJson>,
    /// The id of our request that it belongs to, if the line tells. [`Behalf::noting`](crate::Behalf::noting) tells
    /// which id a request has.
    pub about: Option<u64>,
}

/// Why a model was not asked, or did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The user does not want it.
    #[error("the user does not want it")]
    ByUser,
    /// It did not work.
    #[error("{0}")]
    Failed(String),
}

/// Whoever answers on behalf of the program around the client.
pub(crate) struct Respondent {
    pub(crate) server: Box<str>,
    pub(crate) handler: Option<Arc<dyn ClientHandler>>,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) revision: Revision,
    pub(crate) patience: Duration,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("that was not offered to it")]
    Undeclared,
    #[error("that mode was not offered to it")]
    UndeclaredMode,
    #[error("the question breaks the protocol: {0}")]
    Faulty(String),
    #[error("the user does not want it")]
    Rejected,
    #[error("{0}")]
    Failed(String),
    #[error("nobody answered in time")]
    TimedOut,
}

impl Unanswered {
    /// What a legacy server is told.
    pub(crate) fn to_error(&self) -> JsonRpcError {
        let code = match self {
            Unanswered::Undeclared => ErrorCode::METHOD_NOT_FOUND,
            // Spec 2025-11-25, elicitation §Error Handling and sampling §Tools.
            Unanswered::UndeclaredMode | Unanswered::Faulty(_) => ErrorCode::INVALID_PARAMS,
            Unanswered::Rejected => ErrorCode::USER_REJECTED,
            Unanswered::Failed(_) | Unanswered::TimedOut => ErrorCode::INTERNAL_ERROR,
        };
        let message = match self {
            Unanswered::Undeclared => "Method not found".to_owned(),
            Unanswered::UndeclaredMode => "this mode was not declared".to_owned(),
            Unanswered::Faulty(fault) => fault.clone(),
            Unanswered::Rejected => "User rejected sampling request".to_owned(),
            Unanswered::Failed(reason) => reason.clone(),
            Unanswered::TimedOut => "nobody answered in time".to_owned(),
        };
        JsonRpcError::new(code.0, message)
    }
}

/// Whether a question needs the user or a model, who are slow.
pub(crate) fn is_human(method: &str) -> bool {
    matches!(Method::parse(method), Some(Method::Elicit | Method::CreateMessage))
}

impl Respondent {
    /// Answers one question, within the time that questions get.
    pub(crate) async fn answer(
        &self,
        mailbox: &Mailbox,
        question: InputRequest,
    ) -> Result<InputResponse, Unanswered> {
        let Some(handler) = &self.handler else { return Err(Unanswered::Undeclared) };
        match question {
            InputRequest::Elicitation(question) => {
                self.elicit(&**handler, mailbox, question).await.map(InputResponse::Elicitation)
            }
            InputRequest::Sampling(params) => {
                self.sample(&**handler, *params).await.map(InputResponse::Sampling)
            }
            InputRequest::Roots => {
                if self.capabilities.roots.is_none() {
                    return Err(Unanswered::Undeclared);
                }
                let roots = timeout(self.patience, handler.roots(&self.server)).await;
                let roots = roots.map_err(|_elapsed| Unanswered::TimedOut)?;
                Ok(InputResponse::Roots(RootsResult { roots }))
            }
            InputRequest::Other { .. } => Err(Unanswered::Undeclared),
        }
    }

    /// Passes a question on as it is, if the program wants that and it was declared.
    pub(crate) fn pass_on<'a>(
        &'a self,
        question: RawQuestion<'a>,
    ) -> Option<BoxFuture<'a, Result<Box<RawValue>, JsonRpcError>>> {
        let is_declared = match Method::parse(question.method)? {
            Method::Elicit => self.capabilities.elicitation.is_some(),
            Method::CreateMessage => self.capabilities.sampling.is_some(),
            Method::ListRoots => self.capabilities.roots.is_some(),
            _ => false,
        };
        let answer =
            self.handler.as_ref().filter(|_| is_declared)?.pass_on(&self.server, question)?;
        Some(Box::pin(async {
            let late = |_elapsed| Err(Unanswered::TimedOut.to_error());
            timeout(self.patience, answer).await.unwrap_or_else(late)
        }))
    }

    /// Whether the user can be sent to a page.
    pub(crate) fn opens_pages(&self) -> bool {
        self.revision.has_url_elicitation()
            && self.capabilities.elicitation.is_some_and(|modes| modes.url)
    }

    async fn elicit(
        &self,
        handler: &dyn ClientHandler,
        mailbox: &Mailbox,
        question: Elicitation,
    ) -> Result<ElicitationAnswer, Unanswered> {
        let declared = self.capabilities.elicitation.filter(|_| self.revision.has_elicitation());
        let Some(modes) = declared else { return Err(Unanswered::Undeclared) };
        let (form, page) = match &question {
            Elicitation::Form(form) if modes.form => (Some(form.clone()), None),
            Elicitation::Url(page) if self.opens_pages() => (None, page.elicitation_id.clone()),
            Elicitation::Form(_) | Elicitation::Url(_) => return Err(Unanswered::UndeclaredMode),
        };
        let asked = timeout(self.patience, handler.elicit(&self.server, question)).await;
        // Nobody was there, which is not the same as a no.
        let answer = asked.unwrap_or(ElicitationAnswer::Cancel);
        match (answer, form) {
            (ElicitationAnswer::Accept { content }, Some(form)) => {
                filled_in(&form, content.unwrap_or_default())
            }
            (ElicitationAnswer::Accept { .. }, None) => {
                if let Some(id) = page {
                    mailbox.page_opened(id);
                }
                Ok(ElicitationAnswer::Accept { content: None })
            }
            (answer, _) => Ok(answer),
        }
    }

    async fn sample(
        &self,
        handler: &dyn ClientHandler,
        params: SamplingParams,
    ) -> Result<SamplingResult, Unanswered> {
        let Some(declared) = self.capabilities.sampling else { return Err(Unanswered::Undeclared) };
        check_sampling(&params, declared).map_err(|fault| Unanswered::Faulty(fault.to_string()))?;
        match timeout(self.patience, handler.sample(&self.server, params)).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(Refusal::ByUser)) => Err(Unanswered::Rejected),
            Ok(Err(refusal)) => Err(Unanswered::Failed(refusal.to_string())),
            Err(_elapsed) => Err(Unanswered::TimedOut),
        }
    }
}

/// Fields that were left out get their defaults, and the whole is checked before the server sees it.
fn filled_in(
    form: &FormElicitation,
    mut content: toolrack_mcp::FormContent,
) -> Result<ElicitationAnswer, Unanswered> {
    form.schema.fill_defaults(&mut content);
    match form.schema.validate(&content) {
        Ok(()) => Ok(ElicitationAnswer::Accept { content: Some(content) }),
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            Err(Unanswered::Failed(format!("the form was not filled in: {}", faults.join("; "))))
        }
    }
}

impl fmt::Debug for Respondent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Respondent")
            .field("server", &self.server)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// What a server is told that asks too much at once. Outside the codes that the protocol gives a meaning.
const BUSY: i64 = -32000;

/// The requests of the server that are being answered.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    open: Vec<Open>,
    work: JoinSet<Outcome>,
}

/// What a finished task leaves behind.
pub(crate) type Finished = Result<(Id, Outcome), JoinError>;

type Outcome = Result<InputResponse, JsonRpcError>;

#[derive(Debug)]
struct Open {
    id: RequestId,
    task: AbortHandle,
    pace: Pace,
    /// What the server says of the task that it belongs to.
    related: Option<Box<RawValue>>,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The user or a model.
    Human,
    /// We ourselves.
    Machine,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// Answered on the spot.
    Ping,
    /// Given to a task.
    Work(Pace),
    /// There is too much to do.
    Busy,
    /// There is no such thing.
    Unknown,
}

fn admit(method: &str, n_open: usize, n_human: usize, limits: &Limits) -> Admission {
    match Method::parse(method) {
        Some(Method::Ping) => Admission::Ping,
        Some(Method::ListRoots | Method::CreateMessage | Method::Elicit) => {
            let pace = if is_human(method) { Pace::Human } else { Pace::Machine };
            let crowded = pace == Pace::Human && n_human >= limits.human_questions;
            if n_open >= limits.questions || crowded {
                return Admission::Busy;
            }
            Admission::Work(pace)
        }
        _ => Admission::Unknown,
    }
}

impl Desk {
    /// Takes what has come in. Never waits.
    pub(crate) fn take(&mut self, session: &Arc<Session>, question: Question) {
        match question {
            Question::Asked { id, method, params, about } => {
                self.asked(session, id, (method, params), about);
            }
            Question::Withdrawn(id) => self.withdrawn(&id),
        }
    }

    fn asked(
        &mut self,
        session: &Arc<Session>,
        id: RequestId,
        (method, params): (String, Option<RawJson>),
        about: Option<u64>,
    ) {
        match admit(&method, self.open.len(), self.n_human(), &session.limits) {
            Admission::Ping => session.respond(&id, Ok(EmptyResult {})),
            Admission::Work(pace) => self.begin(session, id, (method, params, about), pace),
            Admission::Busy => refuse(session, &id, BUSY, "too many requests at once"),
            Admission::Unknown => {
                refuse(session, &id, ErrorCode::METHOD_NOT_FOUND.0, "Method not found");
            }
        }
    }

    fn begin(
        &mut self,
        session: &Arc<Session>,
        id: RequestId,
        (method, params, about): (String, Option<RawJson>, Option<u64>),
        pace: Pace,
    ) {
        let core_tasks = session.revision().has_core_tasks();
        let related =
            params.as_ref().filter(|_| core_tasks).and_then(|it| related_task(it.as_bytes()));
        let session = Arc::clone(session);
        let task = self.work.spawn(async move {
            let question = RawQuestion { method: &method, params: params.as_ref(), about };
            let respondent = &session.respondent;
            if let Some(passed_on) = respondent.pass_on(question) {
                return passed_on.await.map(InputResponse::Raw);
            }
            let params = params.as_ref().map_or(&b""[..], RawJson::as_bytes);
            let question = InputRequest::parse(&method, params).map_err(|fault| {
                JsonRpcError::new(ErrorCode::INVALID_PARAMS.0, fault.to_string())
            })?;
            let answer = respondent.answer(&session.mailbox, question).await;
            answer.map_err(|unanswered| unanswered.to_error())
        });
        self.open.push(Open { id, task, pace, related });
    }

    /// Spec 2025-11-25, cancellation §Behavior Requirements: stop, and do not answer.
    fn withdrawn(&mut self, id: &RequestId) {
        let Some(place) = self.open.iter().position(|it| it.id == *id) else { return };
        self.open.swap_remove(place).task.abort();
    }

    /// The next task that has come to its end; none if none is running.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Finished> {
        self.work.join_next_with_id().await
    }

    /// Whether a task is running.
    pub(crate) fn is_busy(&self) -> bool {
        !self.work.is_empty()
    }

    /// Whether the user or a model is being waited for.
    pub(crate) fn waits_for_human(&self) -> bool {
        self.n_human() > 0
    }

    /// Sends the answer that a task has found. A task that was withdrawn has none.
    pub(crate) fn finish(&mut self, session: &Session, finished: Finished) {
        let (task, outcome) = match finished {
            Ok(finished) => finished,
            Err(crash) => {
                let unanswered = Unanswered::Failed("the question could not be asked".to_owned());
                (crash.id(), Err(unanswered.to_error()))
            }
        };
        let Some(place) = self.open.iter().position(|it| it.task.id() == task) else { return };
        let open = self.open.swap_remove(place);
        match open.related {
            Some(related) => {
                session.respond(&open.id, outcome.and_then(|it| of_task(&it, &related)));
            }
            None => session.respond(&open.id, outcome),
        }
    }

    /// Ends every task and waits until they have ended.
    pub(crate) async fn clear(&mut self) {
        self.open.clear();
        self.work.shutdown().await;
    }

    fn n_human(&self) -> usize {
        self.open.iter().filter(|it| it.pace == Pace::Human).count()
    }
}

/// Spec 2025-11-25, tasks §Associating Task-Related Messages: an answer names the task that its question belongs to.
fn of_task(answer: &InputResponse, related: &RawValue) -> Result<Value, JsonRpcError> {
    let written = serde_json::to_value(answer).and_then(|mut answer| {
        let members = answer.as_object_mut();
        let meta = members.map(|it| it.entry("_meta").or_insert_with(|| json!({})));
        if let Some(meta) = meta.and_then(Value::as_object_mut) {
            meta.insert(MetaKey::RELATED_TASK.to_owned(), serde_json::from_str(related.get())?);
        }
        Ok(answer)
    });
    written.map_err(|fault| JsonRpcError::new(ErrorCode::INTERNAL_ERROR.0, fault.to_string()))
}

fn refuse(session: &Session, id: &RequestId, code: i64, message: &str) {
    session.respond::<EmptyResult>(id, Err(JsonRpcError::new(code, message)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, n_open: usize, n_human: usize, expected: Admission) {
        let limits = Limits { questions: 4, human_questions: 2, ..Limits::default() };
        assert_eq!(
            admit(method, n_open, n_human, &limits),
            expected,
            "{method} {n_open} {n_human}"
        );
    }

    #[test]
    fn questions_are_admitted_within_limits() {
        check("ping", 4, 2, Admission::Ping);
        check("roots/list", 3, 2, Admission::Work(Pace::Machine));
        check("roots/list", 4, 0, Admission::Busy);
        check("elicitation/create", 3, 1, Admission::Work(Pace::Human));
        check("elicitation/create", 3, 2, Admission::Busy);
        check("sampling/createMessage", 2, 2, Admission::Busy);
        check("tools/list", 0, 0, Admission::Unknown);
        check("tasks/get", 0, 0, Admission::Unknown);
        check("made/up", 4, 0, Admission::Unknown);
    }
}
