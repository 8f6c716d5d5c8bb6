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

use crate::incoming::{IncomingRequest, IncomingRouter};
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
        _request: Elicitation,
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
    ) -> BoxFuture<'a, Result<SamplingResult, SamplingError>> {
        Box::pin(async { Err(SamplingError::Failed("no model is connected".to_owned())) })
    }

    /// The directories that the server may regard as its index of work.
    fn roots<'a>(&'a self, _server: &'a str) -> BoxFuture<'a, Vec<Root>> {
        Box::pin(async { Vec::new() })
    }

    /// For a program that passes questions on to somebody else: gets the request of a legacy server as it
    /// was written, and gives the answer as it is to be written. `None` has the other methods asked.
    ///
    /// # Cancel safety
    /// The future is dropped when the server no longer wants the answer.
    fn forward_request<'a>(
        &'a self,
        _server: &'a str,
        _request: RawServerRequest<'a>,
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

/// A request as a legacy server wrote it.
#[derive(Debug, Clone, Copy)]
pub struct RawServerRequest<'a> {
    /// What is asked for.
    pub method: &'a str,
    /// The parameters, if there are any.
    pub params: Option<&'a RawJson>,
    /// The id of our request that it belongs to, if the transport tells. [`ForwardedFor::noting`](crate::ForwardedFor::noting) tells
    /// which id a request has.
    pub related_request: Option<u64>,
}

/// Why a model was not asked, or did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// The user does not want it.
    #[error("the user does not want it")]
    RejectedByUser,
    /// It did not work.
    #[error("{0}")]
    Failed(String),
}

/// Whoever answers on behalf of the program around the client.
pub(crate) struct ServerRequestHandler {
    pub(crate) server_name: Box<str>,
    pub(crate) handler: Option<Arc<dyn ClientHandler>>,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) revision: Revision,
    pub(crate) timeout: Duration,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServerRequestError {
    #[error("that was not offered to it")]
    Undeclared,
    #[error("that mode was not offered to it")]
    UndeclaredMode,
    #[error("the request breaks the protocol: {0}")]
    Invalid(String),
    #[error("the user does not want it")]
    Rejected,
    #[error("{0}")]
    Failed(String),
    #[error("nobody answered in time")]
    TimedOut,
}

impl ServerRequestError {
    /// What a legacy server is told.
    pub(crate) fn to_error(&self) -> JsonRpcError {
        let code = match self {
            ServerRequestError::Undeclared => ErrorCode::METHOD_NOT_FOUND,
            // Spec 2025-11-25, elicitation §Error Handling and sampling §Tools.
            ServerRequestError::UndeclaredMode | ServerRequestError::Invalid(_) => {
                ErrorCode::INVALID_PARAMS
            }
            ServerRequestError::Rejected => ErrorCode::USER_REJECTED,
            ServerRequestError::Failed(_) | ServerRequestError::TimedOut => {
                ErrorCode::INTERNAL_ERROR
            }
        };
        let message = match self {
            ServerRequestError::Undeclared => "Method not found".to_owned(),
            ServerRequestError::UndeclaredMode => "this mode was not declared".to_owned(),
            ServerRequestError::Invalid(error) => error.clone(),
            ServerRequestError::Rejected => "User rejected sampling request".to_owned(),
            ServerRequestError::Failed(reason) => reason.clone(),
            ServerRequestError::TimedOut => "nobody answered in time".to_owned(),
        };
        JsonRpcError::new(code.0, message)
    }
}

/// Whether a request needs the user or a model, who are slow.
pub(crate) fn needs_user(method: &str) -> bool {
    matches!(Method::parse(method), Some(Method::Elicit | Method::CreateMessage))
}

impl ServerRequestHandler {
    /// Answers one request, within the time that questions get.
    pub(crate) async fn handle(
        &self,
        incoming: &IncomingRouter,
        request: InputRequest,
    ) -> Result<InputResponse, ServerRequestError> {
        let Some(handler) = &self.handler else { return Err(ServerRequestError::Undeclared) };
        match request {
            InputRequest::Elicitation(request) => {
                self.elicit(&**handler, incoming, request).await.map(InputResponse::Elicitation)
            }
            InputRequest::Sampling(params) => {
                self.sample(&**handler, *params).await.map(InputResponse::Sampling)
            }
            InputRequest::Roots => {
                if self.capabilities.roots.is_none() {
                    return Err(ServerRequestError::Undeclared);
                }
                let roots = timeout(self.timeout, handler.roots(&self.server_name)).await;
                let roots = roots.map_err(|_elapsed| ServerRequestError::TimedOut)?;
                Ok(InputResponse::Roots(RootsResult { roots }))
            }
            InputRequest::Other { .. } => Err(ServerRequestError::Undeclared),
        }
    }

    /// Passes a request on as it is, if the program wants that and it was declared.
    pub(crate) fn forward_request<'a>(
        &'a self,
        request: RawServerRequest<'a>,
    ) -> Option<BoxFuture<'a, Result<Box<RawValue>, JsonRpcError>>> {
        let is_declared = match Method::parse(request.method)? {
            Method::Elicit => self.capabilities.elicitation.is_some(),
            Method::CreateMessage => self.capabilities.sampling.is_some(),
            Method::ListRoots => self.capabilities.roots.is_some(),
            _ => false,
        };
        let answer = self
            .handler
            .as_ref()
            .filter(|_| is_declared)?
            .forward_request(&self.server_name, request)?;
        Some(Box::pin(async {
            let late = |_elapsed| Err(ServerRequestError::TimedOut.to_error());
            timeout(self.timeout, answer).await.unwrap_or_else(late)
        }))
    }

    /// Whether the user can be sent to a page.
    pub(crate) fn supports_urls(&self) -> bool {
        self.revision.has_url_elicitation()
            && self.capabilities.elicitation.is_some_and(|modes| modes.url)
    }

    async fn elicit(
        &self,
        handler: &dyn ClientHandler,
        incoming: &IncomingRouter,
        request: Elicitation,
    ) -> Result<ElicitationAnswer, ServerRequestError> {
        let declared = self.capabilities.elicitation.filter(|_| self.revision.has_elicitation());
        let Some(modes) = declared else { return Err(ServerRequestError::Undeclared) };
        let (form, page) = match &request {
            Elicitation::Form(form) if modes.form => (Some(form.clone()), None),
            Elicitation::Url(page) if self.supports_urls() => (None, page.elicitation_id.clone()),
            Elicitation::Form(_) | Elicitation::Url(_) => {
                return Err(ServerRequestError::UndeclaredMode);
            }
        };
        let asked = timeout(self.timeout, handler.elicit(&self.server_name, request)).await;
        // Nobody was there, which is not the same as a no.
        let answer = asked.unwrap_or(ElicitationAnswer::Cancel);
        match (answer, form) {
            (ElicitationAnswer::Accept { content }, Some(form)) => {
                complete_form(&form, content.unwrap_or_default())
            }
            (ElicitationAnswer::Accept { .. }, None) => {
                if let Some(id) = page {
                    incoming.url_opened(id);
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
    ) -> Result<SamplingResult, ServerRequestError> {
        let Some(declared) = self.capabilities.sampling else {
            return Err(ServerRequestError::Undeclared);
        };
        check_sampling(&params, declared)
            .map_err(|error| ServerRequestError::Invalid(error.to_string()))?;
        match timeout(self.timeout, handler.sample(&self.server_name, params)).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(SamplingError::RejectedByUser)) => Err(ServerRequestError::Rejected),
            Ok(Err(refusal)) => Err(ServerRequestError::Failed(refusal.to_string())),
            Err(_elapsed) => Err(ServerRequestError::TimedOut),
        }
    }
}

/// Fields that were left out get their defaults, and the whole is checked before the server sees it.
fn complete_form(
    form: &FormElicitation,
    mut content: toolrack_mcp::FormContent,
) -> Result<ElicitationAnswer, ServerRequestError> {
    form.schema.fill_defaults(&mut content);
    match form.schema.validate(&content) {
        Ok(()) => Ok(ElicitationAnswer::Accept { content: Some(content) }),
        Err(errors) => {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Err(ServerRequestError::Failed(format!(
                "the form was not filled in: {}",
                errors.join("; ")
            )))
        }
    }
}

impl fmt::Debug for ServerRequestHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRequestHandler")
            .field("server", &self.server_name)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// What a server is told that asks too much at once. Outside the codes that the protocol gives a meaning.
const BUSY: i64 = -32000;

/// The requests of the server that are being answered.
#[derive(Debug, Default)]
pub(crate) struct ServerRequests {
    open: Vec<InFlight>,
    work: JoinSet<Outcome>,
}

/// What a finished task leaves behind.
pub(crate) type Finished = Result<(Id, Outcome), JoinError>;

type Outcome = Result<InputResponse, JsonRpcError>;

#[derive(Debug)]
struct InFlight {
    id: RequestId,
    task: AbortHandle,
    responder: Responder,
    /// What the server says of the task that it belongs to.
    related_task: Option<Box<RawValue>>,
}

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Responder {
    /// The user or a model.
    User,
    /// We ourselves.
    Client,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// Answered on the spot.
    Ping,
    /// Given to a task.
    Work(Responder),
    /// There is too much to do.
    Busy,
    /// There is no such thing.
    Unknown,
}

fn admit(method: &str, n_open: usize, n_user: usize, limits: &Limits) -> Admission {
    match Method::parse(method) {
        Some(Method::Ping) => Admission::Ping,
        Some(Method::ListRoots | Method::CreateMessage | Method::Elicit) => {
            let responder = if needs_user(method) { Responder::User } else { Responder::Client };
            let too_many_user = responder == Responder::User && n_user >= limits.user_requests;
            if n_open >= limits.server_requests || too_many_user {
                return Admission::Busy;
            }
            Admission::Work(responder)
        }
        _ => Admission::Unknown,
    }
}

impl ServerRequests {
    /// Takes what has come in. Never waits.
    pub(crate) fn handle(&mut self, session: &Arc<Session>, request: IncomingRequest) {
        match request {
            IncomingRequest::Request { id, method, params, related_request } => {
                self.on_request(session, id, (method, params), related_request);
            }
            IncomingRequest::Cancelled(id) => self.cancel(&id),
        }
    }

    fn on_request(
        &mut self,
        session: &Arc<Session>,
        id: RequestId,
        (method, params): (String, Option<RawJson>),
        related_request: Option<u64>,
    ) {
        match admit(&method, self.open.len(), self.n_user(), &session.limits) {
            Admission::Ping => session.respond(&id, Ok(EmptyResult {})),
            Admission::Work(responder) => {
                self.start(session, id, (method, params, related_request), responder)
            }
            Admission::Busy => respond_error(session, &id, BUSY, "too many requests at once"),
            Admission::Unknown => {
                respond_error(session, &id, ErrorCode::METHOD_NOT_FOUND.0, "Method not found");
            }
        }
    }

    fn start(
        &mut self,
        session: &Arc<Session>,
        id: RequestId,
        (method, params, related_request): (String, Option<RawJson>, Option<u64>),
        responder: Responder,
    ) {
        let core_tasks = session.revision().has_core_tasks();
        let related_task = params
            .as_ref()
            .filter(|_| core_tasks)
            .and_then(|params| related_task(params.as_bytes()));
        let session = Arc::clone(session);
        let task = self.work.spawn(async move {
            let request =
                RawServerRequest { method: &method, params: params.as_ref(), related_request };
            let request_handler = &session.request_handler;
            if let Some(forwarded) = request_handler.forward_request(request) {
                return forwarded.await.map(InputResponse::Raw);
            }
            let params = params.as_ref().map_or(&b""[..], RawJson::as_bytes);
            let request = InputRequest::parse(&method, params).map_err(|error| {
                JsonRpcError::new(ErrorCode::INVALID_PARAMS.0, error.to_string())
            })?;
            let answer = request_handler.handle(&session.incoming, request).await;
            answer.map_err(|error| error.to_error())
        });
        self.open.push(InFlight { id, task, responder, related_task });
    }

    /// Spec 2025-11-25, cancellation §Behavior Requirements: stop, and do not answer.
    fn cancel(&mut self, id: &RequestId) {
        let Some(index) = self.open.iter().position(|open| open.id == *id) else { return };
        self.open.swap_remove(index).task.abort();
    }

    /// The next task that has come to its end; none if none is running.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next_finished(&mut self) -> Option<Finished> {
        self.work.join_next_with_id().await
    }

    /// Whether a task is running.
    pub(crate) fn has_running(&self) -> bool {
        !self.work.is_empty()
    }

    /// Whether the user or a model is being waited for.
    pub(crate) fn waits_for_user(&self) -> bool {
        self.n_user() > 0
    }

    /// Sends the answer that a task has found. A task that was withdrawn has none.
    pub(crate) fn finish(&mut self, session: &Session, finished: Finished) {
        let (task, outcome) = match finished {
            Ok(finished) => finished,
            Err(crash) => {
                let error = ServerRequestError::Failed("the request could not be asked".to_owned());
                (crash.id(), Err(error.to_error()))
            }
        };
        let Some(index) = self.open.iter().position(|open| open.task.id() == task) else { return };
        let open = self.open.swap_remove(index);
        match open.related_task {
            Some(related_task) => {
                session.respond(
                    &open.id,
                    outcome.and_then(|response| with_related_task(&response, &related_task)),
                );
            }
            None => session.respond(&open.id, outcome),
        }
    }

    /// Ends every task and waits until they have ended.
    pub(crate) async fn shutdown(&mut self) {
        self.open.clear();
        self.work.shutdown().await;
    }

    fn n_user(&self) -> usize {
        self.open.iter().filter(|open| open.responder == Responder::User).count()
    }
}

/// Spec 2025-11-25, tasks §Associating Task-Related Messages: an answer names the task that its request belongs to.
fn with_related_task(
    answer: &InputResponse,
    related_task: &RawValue,
) -> Result<Value, JsonRpcError> {
    let written = serde_json::to_value(answer).and_then(|mut answer| {
        let members = answer.as_object_mut();
        let meta = members.map(|members| members.entry("_meta").or_insert_with(|| json!({})));
        if let Some(meta) = meta.and_then(Value::as_object_mut) {
            meta.insert(
                MetaKey::RELATED_TASK.to_owned(),
                serde_json::from_str(related_task.get())?,
            );
        }
        Ok(answer)
    });
    written.map_err(|error| JsonRpcError::new(ErrorCode::INTERNAL_ERROR.0, error.to_string()))
}

fn respond_error(session: &Session, id: &RequestId, code: i64, message: &str) {
    session.respond::<EmptyResult>(id, Err(JsonRpcError::new(code, message)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, n_open: usize, n_user: usize, expected: Admission) {
        let limits = Limits { server_requests: 4, user_requests: 2, ..Limits::default() };
        assert_eq!(admit(method, n_open, n_user, &limits), expected, "{method} {n_open} {n_user}");
    }

    #[test]
    fn questions_are_admitted_within_limits() {
        check("ping", 4, 2, Admission::Ping);
        check("roots/list", 3, 2, Admission::Work(Responder::Client));
        check("roots/list", 4, 0, Admission::Busy);
        check("elicitation/create", 3, 1, Admission::Work(Responder::User));
        check("elicitation/create", 3, 2, Admission::Busy);
        check("sampling/createMessage", 2, 2, Admission::Busy);
        check("tools/list", 0, 0, Admission::Unknown);
        check("tasks/get", 0, 0, Admission::Unknown);
        check("made/up", 4, 0, Admission::Unknown);
    }
}
