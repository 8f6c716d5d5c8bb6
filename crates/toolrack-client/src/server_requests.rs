//! Server requests: elicitation, sampling and roots, answered through the program's [`ClientHandler`].
//!
//! Legacy servers send requests, which [`ServerRequests`] answers in a task each. Modern servers put them
//! into results (see `multi_round_trip`). [`ServerRequestHandler`] answers both.
//!
//! **Invariant:** the handler gets only requests whose capability was declared to the server.
//!
//! **Invariant:** every accepted request gets exactly one response, unless the server cancels it: then none.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::timeout;
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationResult, EmptyResult, ErrorCode, FormElicitation,
    InputRequest, InputResponse, LogMessage, MetaKey, Method, Revision, Root, RootsResult,
    SamplingParams, SamplingResult, check_sampling, related_task,
};
use toolrack_transport::{BoxFuture, JsonRpcError, RawJson, RequestId};

use crate::incoming::{IncomingRequest, IncomingRouter};
use crate::session::Session;
use crate::timeouts::Limits;

/// Answers server requests.
///
/// Servers get exactly the capabilities that [`capabilities`](Self::capabilities) returns; methods of other
/// capabilities are never called. Show the user which server sends a request.
pub trait ClientHandler: Send + Sync {
    /// Client capabilities. Read once per connection.
    fn capabilities(&self) -> ClientCapabilities;

    /// Asks the user to fill in a form or to open a URL. Do not fetch the URL, and do not open it without the
    /// user's consent to the full address.
    ///
    /// # Cancel safety
    /// The future is dropped when the server cancels the request.
    fn elicit<'a>(
        &'a self,
        _server: &'a str,
        _request: Elicitation,
    ) -> BoxFuture<'a, ElicitationResult> {
        Box::pin(async { ElicitationResult::Cancel })
    }

    /// Asks a model for a completion.
    ///
    /// # Cancel safety
    /// The future is dropped when the server cancels the request.
    fn sample<'a>(
        &'a self,
        _server: &'a str,
        _params: SamplingParams,
    ) -> BoxFuture<'a, Result<SamplingResult, SamplingError>> {
        Box::pin(async { Err(SamplingError::Failed("no model is connected".to_owned())) })
    }

    /// Returns the directories the server may work in.
    fn roots<'a>(&'a self, _server: &'a str) -> BoxFuture<'a, Vec<Root>> {
        Box::pin(async { Vec::new() })
    }

    /// For gateways: gets a legacy server's request as raw JSON and returns the raw response. `None` falls back to
    /// the typed methods.
    ///
    /// # Cancel safety
    /// The future is dropped when the server cancels the request.
    fn forward_request<'a>(
        &'a self,
        _server: &'a str,
        _request: RawServerRequest<'a>,
    ) -> Option<BoxFuture<'a, Result<Box<RawValue>, JsonRpcError>>> {
        None
    }

    /// Receives a log message. Called in the transport's reader task, so it must not block.
    fn log(&self, _message: &LogMessage) {}

    /// Like [`log`](Self::log), with the server's name.
    fn log_from(&self, _server: &str, message: &LogMessage) {
        self.log(message);
    }
}

/// A server request as raw JSON.
#[derive(Debug, Clone, Copy)]
pub struct RawServerRequest<'a> {
    /// Method.
    pub method: &'a str,
    /// Params.
    pub params: Option<&'a RawJson>,
    /// Id of the client request it belongs to, if the transport knows.
    /// [`ForwardedFor::with_id_observer`](crate::ForwardedFor::with_id_observer) reports the id of a request.
    pub related_request: Option<u64>,
}

/// Why there is no completion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// The user rejected the request.
    #[error("the user rejected the request")]
    RejectedByUser,
    /// The model failed.
    #[error("{0}")]
    Failed(String),
}

/// Answers server requests through the program's handler.
pub(crate) struct ServerRequestHandler {
    pub(crate) server_name: Box<str>,
    pub(crate) handler: Option<Arc<dyn ClientHandler>>,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) revision: Revision,
    pub(crate) timeout: Duration,
}

/// Why a server request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServerRequestError {
    #[error("this capability was not declared")]
    Undeclared,
    #[error("this elicitation mode was not declared")]
    UndeclaredMode,
    #[error("the request is invalid: {0}")]
    Invalid(String),
    #[error("the user rejected it")]
    Rejected,
    #[error("{0}")]
    Failed(String),
    #[error("there was no answer in time")]
    TimedOut,
}

impl ServerRequestError {
    /// The error response for a legacy server.
    pub(crate) fn to_error(&self) -> JsonRpcError {
        let (code, message) = match self {
            // To the server, an undeclared capability is a method that does not exist.
            Self::Undeclared => (ErrorCode::METHOD_NOT_FOUND, "Method not found"),
            // Spec 2025-11-25, elicitation §Error Handling and sampling §Tools.
            Self::UndeclaredMode => (ErrorCode::INVALID_PARAMS, "this mode was not declared"),
            Self::Invalid(error) => (ErrorCode::INVALID_PARAMS, error.as_str()),
            Self::Rejected => (ErrorCode::USER_REJECTED, "User rejected sampling request"),
            Self::Failed(reason) => (ErrorCode::INTERNAL_ERROR, reason.as_str()),
            Self::TimedOut => (ErrorCode::INTERNAL_ERROR, "no answer in time"),
        };
        JsonRpcError::new(code.0, message)
    }
}

impl ServerRequestHandler {
    /// Answers one request, within the timeout.
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

    /// Forwards a request as raw JSON, if the handler supports that and the capability was declared.
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
        let response = self
            .handler
            .as_ref()
            // Checked here as well: the handler gets no request of an undeclared capability in
            // raw form either.
            .filter(|_| is_declared)?
            .forward_request(&self.server_name, request)?;
        Some(Box::pin(async {
            let timed_out = |_elapsed| Err(ServerRequestError::TimedOut.to_error());
            timeout(self.timeout, response).await.unwrap_or_else(timed_out)
        }))
    }

    /// Whether URL elicitation was declared.
    pub(crate) fn supports_urls(&self) -> bool {
        self.revision.has_url_elicitation()
            && self.capabilities.elicitation.is_some_and(|modes| modes.url)
    }

    async fn elicit(
        &self,
        handler: &dyn ClientHandler,
        incoming: &IncomingRouter,
        request: Elicitation,
    ) -> Result<ElicitationResult, ServerRequestError> {
        // The capabilities are the same for all revisions, but older ones have no elicitation.
        let declared = self.capabilities.elicitation.filter(|_| self.revision.has_elicitation());
        let Some(modes) = declared else { return Err(ServerRequestError::Undeclared) };
        let (form, url_id) = match &request {
            Elicitation::Form(form) if modes.form => (Some(form.clone()), None),
            Elicitation::Url(url) if self.supports_urls() => (None, url.elicitation_id.clone()),
            _ => return Err(ServerRequestError::UndeclaredMode),
        };
        let outcome = timeout(self.timeout, handler.elicit(&self.server_name, request)).await;
        // No answer in time is a dismissal, not a refusal.
        let answer = outcome.unwrap_or(ElicitationResult::Cancel);
        match (answer, form) {
            (ElicitationResult::Accept { content }, Some(form)) => {
                complete_form(&form, content.unwrap_or_default())
            }
            // A URL has no content; a handler that returns some must not leak it to the server.
            (ElicitationResult::Accept { .. }, None) => {
                if let Some(id) = url_id {
                    // Only after consent: completion of a URL that the user did not open
                    // is not reported.
                    incoming.url_opened(id);
                }
                Ok(ElicitationResult::Accept { content: None })
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
        check_sampling(&params, declared).map_err(ServerRequestError::Invalid)?;
        match timeout(self.timeout, handler.sample(&self.server_name, params)).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(SamplingError::RejectedByUser)) => Err(ServerRequestError::Rejected),
            Ok(Err(error)) => Err(ServerRequestError::Failed(error.to_string())),
            Err(_elapsed) => Err(ServerRequestError::TimedOut),
        }
    }
}

/// Fills in defaults and validates the form before the server gets it.
fn complete_form(
    form: &FormElicitation,
    mut content: toolrack_mcp::FormContent,
) -> Result<ElicitationResult, ServerRequestError> {
    form.schema.fill_defaults(&mut content);
    form.schema.validate(&content).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        ServerRequestError::Failed(format!("the form was not filled in: {}", errors.join("; ")))
    })?;
    Ok(ElicitationResult::Accept { content: Some(content) })
}

/// Error code for too many requests at once. The protocol assigns it no meaning.
const BUSY: i64 = -32000;

/// Server requests in flight.
#[derive(Debug, Default)]
pub(crate) struct ServerRequests {
    open: Vec<InFlight>,
    pub(crate) work: JoinSet<Outcome>,
}

/// Result of a finished task.
pub(crate) type Finished = Result<(Id, Outcome), JoinError>;

type Outcome = Result<InputResponse, JsonRpcError>;

#[derive(Debug)]
struct InFlight {
    id: RequestId,
    task: AbortHandle,
    responder: Responder,
    /// The task of the server that the request belongs to.
    related_task: Option<Box<RawValue>>,
}

/// Who produces the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Responder {
    /// This client, at once: a `ping`.
    Immediate,
    /// The user or a model, which takes long.
    User,
    /// This client, in a task.
    Client,
}

/// Decides about a new request: who answers it, or the error response.
fn admit(
    method: &str,
    n_open: usize,
    n_user: usize,
    limits: &Limits,
) -> Result<Responder, JsonRpcError> {
    let responder = match Method::parse(method) {
        // Before the limits: a busy client must still look alive.
        Some(Method::Ping) => return Ok(Responder::Immediate),
        Some(Method::ListRoots) => Responder::Client,
        Some(Method::CreateMessage | Method::Elicit) => Responder::User,
        _ => return Err(JsonRpcError::new(ErrorCode::METHOD_NOT_FOUND.0, "Method not found")),
    };
    // A lower limit for the user, so that a flood of forms leaves room for `roots/list`.
    let too_many_user = responder == Responder::User && n_user >= limits.user_requests;
    if n_open >= limits.server_requests || too_many_user {
        return Err(JsonRpcError::new(BUSY, "too many requests at once"));
    }
    Ok(responder)
}

impl ServerRequests {
    /// Handles a queued request or cancellation. Never blocks.
    pub(crate) fn handle(&mut self, session: &Arc<Session>, request: IncomingRequest) {
        let (id, method, params, related_request) = match request {
            IncomingRequest::Request { id, method, params, related_request } => {
                (id, method, params, related_request)
            }
            IncomingRequest::Cancelled(id) => return self.cancel(&id),
        };
        let responder = match admit(&method, self.open.len(), self.n_user(), &session.limits) {
            Ok(Responder::Immediate) => return session.respond(&id, Ok(EmptyResult {})),
            Ok(responder) => responder,
            Err(error) => return session.respond::<EmptyResult>(&id, Err(error)),
        };
        let core_tasks = session.revision().has_core_tasks();
        let related_task = params
            .as_ref()
            .filter(|_| core_tasks)
            .and_then(|params| related_task(params.as_bytes()));
        let session = Arc::clone(session);
        // A task per request: a slow user must not delay the other requests.
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

    /// Spec 2025-11-25, cancellation §Behavior Requirements: stop, and send no response.
    fn cancel(&mut self, id: &RequestId) {
        let Some(index) = self.open.iter().position(|open| open.id == *id) else { return };
        // Removed from the table first: `finish` then finds no entry and sends no response.
        self.open.swap_remove(index).task.abort();
    }

    /// Sends the response of a finished task. A cancelled request is no longer in the table and gets none.
    pub(crate) fn finish(&mut self, session: &Session, finished: Finished) {
        let (task, outcome) = match finished {
            Ok(finished) => finished,
            // A panic of the handler still gets a response.
            Err(panic) => {
                let message = "the request could not be handled";
                (panic.id(), Err(JsonRpcError::new(ErrorCode::INTERNAL_ERROR.0, message)))
            }
        };
        // By task id, because a panic leaves nothing else.
        let Some(index) = self.open.iter().position(|open| open.task.id() == task) else { return };
        let open = self.open.swap_remove(index);
        match open.related_task {
            Some(task) => {
                let outcome = outcome.and_then(|response| with_related_task(&response, &task));
                session.respond(&open.id, outcome);
            }
            None => session.respond(&open.id, outcome),
        }
    }

    /// Aborts all tasks and waits for their end.
    pub(crate) async fn shutdown(&mut self) {
        self.open.clear();
        self.work.shutdown().await;
    }

    /// Number of requests that wait for the user or a model.
    pub(crate) fn n_user(&self) -> usize {
        self.open.iter().filter(|open| open.responder == Responder::User).count()
    }
}

/// Spec 2025-11-25, tasks §Associating Task-Related Messages: a response names the task of its request.
fn with_related_task(
    answer: &InputResponse,
    related_task: &RawValue,
) -> Result<Value, JsonRpcError> {
    let written = serde_json::to_value(answer).and_then(|mut answer| {
        let task = serde_json::from_str(related_task.get())?;
        let members = answer.as_object_mut();
        let meta = members.map(|members| members.entry("_meta").or_insert_with(|| json!({})));
        if let Some(meta) = meta.and_then(Value::as_object_mut) {
            meta.insert(MetaKey::RELATED_TASK.to_owned(), task);
        }
        Ok(answer)
    });
    written.map_err(|error| JsonRpcError::new(ErrorCode::INTERNAL_ERROR.0, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, n_open: usize, n_user: usize, expected: Result<Responder, i64>) {
        let limits = Limits { server_requests: 4, user_requests: 2, ..Limits::default() };
        let admitted = admit(method, n_open, n_user, &limits).map_err(|error| error.code);
        assert_eq!(admitted, expected, "{method} {n_open} {n_user}");
    }

    #[test]
    fn server_requests_are_limited() {
        let (busy, unknown) = (Err(BUSY), Err(ErrorCode::METHOD_NOT_FOUND.0));
        check("ping", 4, 2, Ok(Responder::Immediate));
        check("roots/list", 3, 2, Ok(Responder::Client));
        check("roots/list", 4, 0, busy);
        check("elicitation/create", 3, 1, Ok(Responder::User));
        check("elicitation/create", 3, 2, busy);
        check("sampling/createMessage", 2, 2, busy);
        check("tools/list", 0, 0, unknown);
        check("tasks/get", 0, 0, unknown);
        check("made/up", 4, 0, unknown);
    }
}
