//! Forwards `tools/call`, `prompts/get`, `resources/read` and completions to servers, with server requests across
//! protocol eras.
//!
//! | | modern server: requests in its result | legacy server: requests while it works |
//! |---|---|---|
//! | modern client | gets the result, with its requests checked | its request is suspended; it gets an `input_required` result and repeats the request |
//! | legacy client | gets the requests in its session; the call is repeated with the responses | gets them in its session at once |
//!
//! Which client a legacy server means is decided in [`server_requests`](crate::server_requests).
//!
//! A suspended request stays open at its server between two requests of its client. A random `requestState` identifies
//! it.
//!
//! **Invariant:** arguments and responses pass byte for byte, and so do results without hidden text.
//! **Invariant:** the number of suspended requests is bounded. Each is dropped, and so cancelled at its server, when
//! its client takes too long or the gateway closes.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use toolrack_client::{CallError, CallOptions, ForwardedFor, McpClient, OnProgress};
use toolrack_manager::ManagerError;
use toolrack_mcp::{
    Arguments, CompletionArgument, CompletionRef, Era, ErrorCode, InputResponse, InputResponses,
    LogLevel, Method,
};
use toolrack_transport::{BoxFuture, Delivery, JsonRpcError, RawJson};
use uuid::Uuid;

use crate::client_session::ClientSession;
use crate::encode::{
    Outcome, internal_error, into_raw, invalid_params, to_result, without_hidden_text,
};
use crate::error_mapping;
use crate::gateway::{Shared, Upstream, no_owner, resource_not_found};
use crate::params::{Params, RAW_META_KEY, Reference, check_name};
use crate::question::{
    InputRequired, InputReview, Review, declined, is_question, refused_url_error, review,
    review_url_error,
};
use crate::request_context::RequestContext;
use crate::result_compat::adapt_result;
use crate::server_requests::{ActiveRequest, ClientChannel, MAX_TURN, ServerRequest};

/// How often a modern server may ask for input before it completes.
// The TypeScript and Rust SDKs have the same limit.
const MAX_ROUNDS: u32 = 10;
/// How long after a request of a legacy server the next one still joins the same `input_required` result. A modern
/// client is asked in rounds, so requests that a server sends together have to arrive together.
const BATCH_DELAY: Duration = Duration::from_millis(30);
/// Server requests in one `input_required` result. Further ones wait for the next round.
const MAX_BATCH: usize = 8;
/// Server requests queued for one modern client request. When the queue is full, the server gets an error.
const MAX_QUEUED_SERVER_REQUESTS: usize = 8;

/// Responses to the requests of a server, and its `requestState`.
type Input = (Option<InputResponses>, Option<String>);

/// Forwards for a legacy client. Requests of a modern server are sent to its session, and the call is repeated with the
/// responses.
pub(crate) async fn forward_for_legacy(
    context: &Arc<RequestContext>,
    method: Method,
    session: &Arc<ClientSession>,
) -> Outcome {
    let channel = ClientChannel::Session(Arc::clone(session));
    let call = Call::new(context, method, channel).await?;
    let mut input = Input::default();
    let mut n_rounds = 0;
    loop {
        let (server, raw) = call.send(input).await?;
        let asked = match call.read_result(server, raw)? {
            ReadResult::Complete(raw) => return Ok(adapt_result(raw, Era::Legacy, method)),
            ReadResult::InputRequired(asked) => asked,
        };
        if n_rounds >= MAX_ROUNDS {
            return Err(internal_error("the server asked for input too many times"));
        }
        n_rounds += 1;
        // Only the responses of this round: the server keeps earlier ones in its `requestState`.
        input = collect_input(&call, session, server, asked).await?;
    }
}

/// Sends the requests of an `input_required` result to the client, one after the other.
async fn collect_input(
    call: &Call,
    session: &ClientSession,
    server: &str,
    asked: InputRequired,
) -> Result<Input, JsonRpcError> {
    let RequestContext { shared, client, queue, .. } = &*call.context;
    let router = &shared.router;
    let mut responses = InputResponses::default();
    for (key, method, params) in asked.requests {
        let response = match review(&method, params.as_ref(), router.shown_name(server))? {
            Review::Decline(problem) => {
                router.take_budget(server, &call.active, 1)?;
                router.budgets.record_refused_url(server, problem);
                declined()
            }
            Review::Forward(params) => {
                if !client.supports(&method, params.as_ref()) {
                    return Err(internal_error(&format!("the client does not support `{method}`")));
                }
                if is_question(&method) {
                    router.take_budget(server, &call.active, 1)?;
                }
                into_raw(session.send_request(queue, &method, params.as_ref()).await)?
            }
        };
        responses.0.push((key, InputResponse::Raw(response)));
    }
    Ok((asked.has_requests.then_some(responses), asked.state))
}

/// Forwards for a modern client. If a legacy server sends requests meanwhile, the call is suspended and the client gets
/// them as a result.
pub(crate) async fn forward_for_modern(context: &Arc<RequestContext>, method: Method) -> Outcome {
    let RequestContext { shared, params, .. } = &**context;
    let name = params.name.as_ref().or(params.uri.as_ref()).cloned().unwrap_or_default();
    let subject = (method, name);
    let state = params.request_state.as_deref();
    let suspended = state.map(|state| shared.suspended.take(state, &subject)).transpose()?;
    let mut request = match suspended.flatten() {
        Some(request) => resume(context, request)?,
        None => {
            let (sender, incoming) = mpsc::channel(MAX_QUEUED_SERVER_REQUESTS);
            let call = Call::new(context, method, ClientChannel::InputRequired(sender)).await?;
            let input = (params.to_input_responses(), params.request_state.clone());
            // A completion cannot be suspended, so server requests are rejected.
            if method == Method::Complete {
                drop(incoming);
                return Ok(adapt_result(call.send_for_modern(input).await?, Era::Modern, method));
            }
            // A legacy server issues no states, so this one is outdated or forged. Without the check the call would
            // silently start again from the beginning.
            if params.request_state.is_some() && call.is_legacy() {
                return Err(SuspendedRequests::unknown_state());
            }
            let active = Arc::clone(&call.active);
            let call = Box::pin(async move { call.send_for_modern(input).await });
            SuspendedRequest { call, active, incoming, pending: Vec::new(), n_keys: 0, subject }
        }
    };
    while request.pending.len() < MAX_BATCH {
        let is_first = request.pending.is_empty();
        // Biased to the call: a result makes the server's requests obsolete.
        let server_request = tokio::select! {
            biased;
            outcome = &mut request.call => {
                let raw = outcome.or_else(|error| url_elicitation(context, error))?;
                return Ok(adapt_result(raw, Era::Modern, method));
            }
            Some(server_request) = request.incoming.recv() => server_request,
            () = sleep(BATCH_DELAY), if !is_first => break,
        };
        request.n_keys += 1;
        request.pending.push((format!("q{}", request.n_keys), server_request));
    }
    // Encoded before the request is moved into the store, and as the server wrote it: the order of schema properties is
    // the order of the fields in a form.
    let requests = to_raw_value(&InputRequests(&request.pending));
    let requests = requests.map_err(|error| internal_error(&error.to_string()))?;
    to_result(&InputRequiredResult {
        result_type: "input_required",
        input_requests: &requests,
        request_state: &shared.suspended.insert(request)?,
    })
}

/// Passes the client's responses to the server. Requests without a response stay pending and are sent again.
fn resume(
    context: &RequestContext,
    mut request: SuspendedRequest,
) -> Result<SuspendedRequest, JsonRpcError> {
    // Progress and log messages now go to the stream of the repeated request, under its token.
    *request.active.sink.lock() = context.notification_sink()?;
    let responses = context.params.input_responses.as_ref();
    for (key, server_request) in std::mem::take(&mut request.pending) {
        let Some(raw) = responses.and_then(|responses| responses.get(&key)) else {
            request.pending.push((key, server_request));
            continue;
        };
        // The server request may have been cancelled meanwhile.
        if server_request.response.send(Ok(RawJson::from(raw.clone()))).is_err() {
            tracing::debug!("client response to a cancelled server request discarded");
        }
    }
    Ok(request)
}

/// Converts a URL elicitation error into an `input_required` result, if the client supports URL mode and has not
/// responded yet.
///
/// Spec 2025-11-25, elicitation §URL mode: the server fails with the URLs, and the client retries when the user has
/// opened them. 2026-07-28 has no such error. When the modern client repeats its request, so do we.
fn url_elicitation(context: &RequestContext, error: JsonRpcError) -> Outcome {
    let url_mode = RawJson::new(r#"{"mode":"url"}"#);
    // After a response the error is final; otherwise the client would be asked for the same page forever.
    let has_responded = context.params.input_responses.is_some();
    if has_responded || !context.client.supports(Method::Elicit.as_str(), Some(&url_mode)) {
        return Err(error);
    }
    let requests = url_input_requests(&error).ok_or(error)?;
    to_result(&json!({ "resultType": "input_required", "inputRequests": requests }))
}

/// `inputRequests` for the URLs of a URL elicitation error.
fn url_input_requests(error: &JsonRpcError) -> Option<Map<String, Value>> {
    #[derive(Deserialize)]
    struct ErrorData {
        elicitations: Vec<UrlElicitation>,
    }
    #[derive(Deserialize)]
    struct UrlElicitation {
        message: String,
        url: String,
    }
    if ErrorCode(error.code) != ErrorCode::URL_ELICITATION_REQUIRED {
        return None;
    }
    let ErrorData { elicitations } = ErrorData::deserialize(error.data.as_ref()?).ok()?;
    let requests = elicitations.into_iter().enumerate().map(|(index, elicitation)| {
        let UrlElicitation { message, url } = elicitation;
        let params = json!({ "mode": "url", "message": message, "url": url });
        let request = json!({ "method": Method::Elicit.as_str(), "params": params });
        (format!("page{}", index + 1), request)
    });
    let requests: Map<String, Value> = requests.collect();
    (!requests.is_empty()).then_some(requests)
}

/// A result of a server.
enum ReadResult {
    /// As the client gets it.
    Complete(RawJson),
    InputRequired(InputRequired),
}

/// A client request on its way to a server.
struct Call {
    context: Arc<RequestContext>,
    method: Method,
    /// The servers that may have the subject, the likeliest first. Only a resource can have several.
    servers: Vec<String>,
    /// Name of the tool or prompt at its server, or URI of the resource.
    name: String,
    /// Arguments of a prompt, or those chosen before the one to complete.
    text_arguments: BTreeMap<String, String>,
    forwarded_for: ForwardedFor,
    /// Whether the client asks for the result with its hidden text.
    wants_raw: bool,
    active: Arc<ActiveRequest>,
}

impl Call {
    /// Resolves the server of a request. Server requests reach the client through `channel`.
    async fn new(
        context: &Arc<RequestContext>,
        method: Method,
        channel: ClientChannel,
    ) -> Result<Self, JsonRpcError> {
        let RequestContext { shared, params, client, client_id, .. } = &**context;
        let wants_raw = params.meta(RAW_META_KEY)?.unwrap_or_default();
        let mut text_arguments = BTreeMap::new();
        let (server, name) = match method {
            Method::ReadResource => (None, params.required_uri()?.to_owned()),
            Method::GetPrompt => {
                let (server, name) = shared.resolve_prompt(params.required_name()?).await?;
                if let Some(raw) = &params.arguments {
                    text_arguments = serde_json::from_str(raw.get())
                        .map_err(|error| invalid_params(format!("invalid `arguments`: {error}")))?;
                }
                (Some(server), name)
            }
            Method::Complete => {
                let (Some(reference), Some(_)) = (&params.reference, &params.argument) else {
                    return Err(invalid_params("`ref` and `argument` are required"));
                };
                let chosen = params.context.as_ref().map(|context| context.arguments.clone());
                text_arguments = chosen.unwrap_or_default();
                let (server, name) = match reference {
                    Reference::Prompt { name } => shared.resolve_prompt(check_name(name)?).await?,
                    Reference::Resource { uri } => {
                        (shared.first_resource_server(uri).await?, uri.clone())
                    }
                };
                (Some(server), name)
            }
            _ => {
                let (server, name) = shared.find_tool(params.required_name()?).await?;
                if params.arguments.as_ref().is_some_and(|raw| !raw.get().starts_with('{')) {
                    return Err(invalid_params("`arguments` is not an object"));
                }
                (Some(server), name)
            }
        };
        let servers = match server {
            Some(server) => vec![server],
            None => {
                let servers = shared.resource_servers(&name).await;
                servers.map_err(|reason| no_owner(&name, client.revision, &reason))?
            }
        };
        // Only another gateway learns which client the request is from.
        let client_name = match shared.options.upstream {
            Upstream::Servers => None,
            Upstream::Gateway => Some(format!("{}:{client_id}", shared.instance_id)),
        };
        let forwarded_for = client.forwarded_for(params, client_name.as_deref())?;
        let client = (Arc::clone(client), client_id.clone());
        let active = ActiveRequest::new(client, context.notification_sink()?, channel);
        let context = Arc::clone(context);
        Ok(Self {
            context,
            method,
            servers,
            name,
            text_arguments,
            forwarded_for,
            wants_raw,
            active,
        })
    }

    /// Whether all its servers are known to be legacy ones, which never return `input_required`.
    fn is_legacy(&self) -> bool {
        let manager = &self.context.shared.manager;
        let is_legacy = |client: &McpClient| client.era() == Era::Legacy;
        self.servers.iter().all(|name| {
            manager.server(name).is_ok_and(|server| server.client().is_some_and(is_legacy))
        })
    }

    /// Sends the request for a modern client, which gets the questions of the server as a result. What no client may see
    /// is answered here, and the server asked again.
    async fn send_for_modern(&self, mut input: Input) -> Outcome {
        let router = &self.context.shared.router;
        for _ in 0..=MAX_ROUNDS {
            let (server, raw) = self.send(input).await?;
            let asked = match self.read_result(server, raw)? {
                ReadResult::Complete(raw) => return Ok(raw),
                ReadResult::InputRequired(asked) => asked,
            };
            match asked.review(router.shown_name(server))? {
                InputReview::Forward(raw, n_questions) => {
                    router.take_budget(server, &self.active, n_questions)?;
                    return Ok(raw);
                }
                InputReview::Decline(refused, state) => {
                    let n_questions = u32::try_from(refused.len()).unwrap_or(u32::MAX);
                    router.take_budget(server, &self.active, n_questions)?;
                    let responses = refused.into_iter().map(|(key, problem)| {
                        router.budgets.record_refused_url(server, problem);
                        (key, InputResponse::Raw(declined()))
                    });
                    input = (Some(InputResponses(responses.collect())), state);
                }
            }
        }
        Err(internal_error("the server asked for input too many times"))
    }

    /// Decides what a result is. Hidden text is removed first, also if the client gets the result with it: no client
    /// may get questions that were not checked.
    fn read_result(&self, server: &str, raw: RawJson) -> Result<ReadResult, JsonRpcError> {
        let shown = without_hidden_text(raw.clone());
        match InputRequired::read(&raw, &shown) {
            Ok(Some(asked)) => Ok(ReadResult::InputRequired(asked)),
            Ok(None) => Ok(ReadResult::Complete(if self.wants_raw { raw } else { shown })),
            Err(problem) => Err(self.context.shared.router.budgets.refuse_input(server, problem)),
        }
    }

    /// Sends the request to its server, and returns the server that answered. Of several servers, the first that has the
    /// resource answers.
    ///
    /// # Cancel safety
    /// The call makes progress while the future is polled, and is cancelled when it is dropped.
    async fn send(&self, (responses, state): Input) -> Result<(&str, RawJson), JsonRpcError> {
        let RequestContext { timeout, client, .. } = &*self.context;
        let sink = self.active.sink();
        let (reporting, sent) = (Arc::clone(&self.active), Arc::clone(&self.active));
        let forwarded_for = self.forwarded_for.clone().with_input_responses(responses, state);
        let forwarded_for =
            forwarded_for.with_id_observer(Arc::new(move |id| sent.record_sent(id)));
        let options = CallOptions {
            timeout: *timeout,
            total_timeout: *timeout,
            // Without a token the client wants no progress, and the server need not send any.
            on_progress: sink.progress_token.is_some().then(|| {
                Arc::new(move |progress: &toolrack_mcp::Progress| {
                    reporting.send_progress(progress);
                }) as OnProgress
            }),
            // A modern server sends nothing unless asked. A legacy client that has set no level gets `info`, as it
            // would from a legacy server.
            log_level: sink.log_filter.lowest_or(LogLevel::Info),
            forwarded_for: Some(Arc::new(forwarded_for)),
        };
        let mut first_error = None;
        for server in &self.servers {
            match self.send_to(server, options.clone()).await {
                Ok(raw) => return Ok((server, raw)),
                // The first server is the likeliest to have the resource, so its error says most.
                Err(error) if may_be_elsewhere(&error) => {
                    first_error.get_or_insert_with(|| self.to_json_rpc_error(server, error));
                }
                Err(error) => return Err(self.to_json_rpc_error(server, error)),
            }
        }
        Err(first_error.unwrap_or_else(|| resource_not_found(&self.name, client.revision)))
    }

    async fn send_to(
        &self,
        server: &str,
        mut options: CallOptions,
    ) -> Result<RawJson, ManagerError> {
        let Self { context, method, name, text_arguments, .. } = self;
        let Shared { manager, router, .. } = &*context.shared;
        let Params { arguments, reference, argument, .. } = &context.params;
        // A tool call borrows its client itself.
        let client = match method {
            Method::CallTool => None,
            _ => Some(manager.acquire_client(server).await?),
        };
        let started = Instant::now();
        let max_wait = options.timeout.map_or(MAX_TURN, |timeout| timeout.min(MAX_TURN));
        let active = router.begin(server, &self.active, max_wait).await;
        // The timeouts limit the time that the client waits in all, so they include the wait for its turn.
        let remaining = options.timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        (options.timeout, options.total_timeout) = (remaining, remaining);
        let to_manager_error = |source: CallError| ManagerError::Call {
            server: server.to_owned(),
            tool: name.clone(),
            source: Box::new(source),
        };
        let result = match (&client, method, reference, argument) {
            (Some(client), Method::GetPrompt, ..) => client
                .get_prompt_raw(name, text_arguments, &options)
                .await
                .map_err(to_manager_error),
            (Some(client), Method::Complete, Some(reference), Some(argument)) => {
                let reference = match reference {
                    Reference::Prompt { .. } => CompletionRef::Prompt { name },
                    Reference::Resource { .. } => CompletionRef::Resource { uri: name },
                };
                let argument = CompletionArgument { name: &argument.name, value: &argument.value };
                let result = client.complete_raw(reference, argument, text_arguments, &options);
                result.await.map_err(to_manager_error)
            }
            (Some(client), ..) => {
                client.read_resource_raw(name, &options).await.map_err(to_manager_error)
            }
            (None, ..) => {
                // Some servers reject a call without `arguments`, so an absent member becomes `{}`.
                let empty = RawValue::from_string("{}".to_owned()).unwrap_or_default();
                let arguments = arguments.as_ref().unwrap_or(&empty);
                let call = manager.call((server, name)).args(arguments).options(options.clone());
                match call.send_raw().await {
                    // The other gateway accepts tools that it does not list, and knows why one cannot be called.
                    Err(ManagerError::NoSuchTool { .. })
                        if context.shared.options.upstream == Upstream::Gateway =>
                    {
                        let client = manager.acquire_client(server).await?;
                        let result =
                            client.call_tool_raw(name, Arguments::Raw(arguments), &options).await;
                        result.map_err(to_manager_error)
                    }
                    result => result,
                }
            }
        };
        active
            .complete(result.as_ref().map_or_else(ManagerError::delivery, |_| Delivery::Answered));
        result
    }

    fn to_json_rpc_error(&self, server: &str, error: ManagerError) -> JsonRpcError {
        let (style, router) = (self.context.error_style(), &self.context.shared.router);
        let ManagerError::Call { source, server: name, tool } = error else {
            return error_mapping::from_manager_error(error, style);
        };
        match (*source, self.method) {
            (CallError::Refused(error), _)
                if ErrorCode(error.code) == ErrorCode::URL_ELICITATION_REQUIRED =>
            {
                match review_url_error(error, router.shown_name(server)) {
                    Ok((error, n_pages)) => {
                        let taken = router.take_budget(server, &self.active, n_pages);
                        taken.map_or_else(|refused| refused, |()| error)
                    }
                    Err(problem) => {
                        let taken = router.take_budget(server, &self.active, 1);
                        router.budgets.record_refused_url(server, problem);
                        taken.map_or_else(|refused| refused, |()| refused_url_error(problem))
                    }
                }
            }
            (source, Method::ReadResource) => {
                error_mapping::from_read_error(source, style, &self.name)
            }
            (source, _) => {
                let source = Box::new(source);
                let error = ManagerError::Call { server: name, tool, source };
                error_mapping::from_manager_error(error, style)
            }
        }
    }
}

/// Whether another server may have the resource: also if this one cannot be reached.
fn may_be_elsewhere(error: &ManagerError) -> bool {
    match error {
        ManagerError::Call { source, .. } => match &**source {
            CallError::Refused(error) => ErrorCode(error.code).may_be_missing_resource(),
            error => matches!(error, CallError::Unsupported { .. }),
        },
        _ => true,
    }
}

/// A request that waits for its client.
struct SuspendedRequest {
    /// The call to the server. It makes progress while it is polled, and is cancelled when it is dropped.
    call: BoxFuture<'static, Outcome>,
    active: Arc<ActiveRequest>,
    incoming: mpsc::Receiver<ServerRequest>,
    /// Server requests that the client has not answered, by the keys that it was given.
    pending: Vec<(String, ServerRequest)>,
    /// Number of keys given so far. A key is never reused, so that a late response cannot answer a later request.
    n_keys: usize,
    /// Method and name or URI, which the repeated request must share.
    subject: (Method, String),
}

/// All suspended requests of a gateway.
pub(crate) struct SuspendedRequests {
    /// Prefix of the states issued here. A server may be a gateway too, and its states must pass through unchanged, so
    /// the prefix is unique to this gateway.
    prefix: String,
    /// `None` once the gateway is closed. A suspended call holds an `Arc` of the gateway's shared state, of which this
    /// map is a part: without clearing it, the cycle would keep both alive.
    requests: Mutex<Option<HashMap<Uuid, (Instant, SuspendedRequest)>>>,
    limit: usize,
    timeout: Duration,
}

impl SuspendedRequests {
    pub(crate) fn new(limit: usize, timeout: Duration) -> Self {
        let prefix = format!("toolrack-parked:{}:", Uuid::new_v4().simple());
        Self { prefix, requests: Mutex::new(Some(HashMap::new())), limit, timeout }
    }

    /// Stores a request and returns the `requestState` that leads back to it.
    fn insert(&self, request: SuspendedRequest) -> Result<String, JsonRpcError> {
        // Requests that have expired must not count against the limit.
        self.drop_expired();
        let mut requests = self.requests.lock();
        let Some(requests) = requests.as_mut() else {
            return Err(internal_error("the gateway is closed"));
        };
        if requests.len() >= self.limit {
            return Err(internal_error("too many requests are waiting for client input"));
        }
        let id = Uuid::new_v4();
        requests.insert(id, (Instant::now() + self.timeout, request));
        Ok(format!("{}{id}", self.prefix))
    }

    /// Removes the request that the state leads to. `None` for the state of a server.
    fn take(
        &self,
        state: &str,
        subject: &(Method, String),
    ) -> Result<Option<SuspendedRequest>, JsonRpcError> {
        let Some(id) = state.strip_prefix(self.prefix.as_str()) else { return Ok(None) };
        self.drop_expired();
        let id = id.parse().ok();
        let mut requests = self.requests.lock();
        let requests = requests.as_mut().ok_or_else(Self::unknown_state)?;
        // Checked before the removal, so that a request for another subject does not consume the state.
        let found = id
            .filter(|id| requests.get(id).is_some_and(|(_, request)| request.subject == *subject));
        let found = found.and_then(|id| requests.remove(&id));
        found.map(|(_, request)| Some(request)).ok_or_else(Self::unknown_state)
    }

    /// Error for a state that leads to no request.
    fn unknown_state() -> JsonRpcError {
        invalid_params("unknown `requestState`: already used, expired, or never issued")
    }

    /// Drops the requests whose clients took too long.
    pub(crate) fn drop_expired(&self) {
        let now = Instant::now();
        let mut requests = self.requests.lock();
        let Some(map) = requests.as_mut() else { return };
        let dropped: Vec<_> = map.extract_if(|_, (deadline, _)| *deadline <= now).collect();
        drop(requests);
        // Dropping a call sends `notifications/cancelled` and takes locks of the router: not under this lock.
        drop(dropped);
    }

    /// Drops all requests and accepts no more.
    pub(crate) fn close(&self) {
        // Taken out first and dropped without the lock, as in `drop_expired`.
        let dropped = self.requests.lock().take();
        drop(dropped);
    }
}

impl fmt::Debug for SuspendedRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuspendedRequests")
            .field("requests", &self.requests.lock().as_ref().map(HashMap::len))
            .finish_non_exhaustive()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InputRequiredResult<'a> {
    result_type: &'static str,
    input_requests: &'a RawValue,
    request_state: &'a str,
}

/// Server requests as a JSON object, in their order.
struct InputRequests<'a>(&'a [(String, ServerRequest)]);

impl Serialize for InputRequests<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct InputRequest<'a> {
            method: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            params: Option<&'a RawValue>,
        }
        serializer.collect_map(self.0.iter().map(|(key, request)| {
            let params = request.params.as_ref().and_then(|raw| raw.as_raw_value().ok());
            (key, InputRequest { method: &request.method, params })
        }))
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn input_requests_keep_their_order() {
        let request = |params: Option<&str>| {
            let params = params.map(|text| RawJson::new(text.to_owned()));
            ServerRequest { method: "m".to_owned(), params, response: oneshot::channel().0 }
        };
        let requests = [
            ("q9".to_owned(), request(Some(r#"{"z":1,"a":{ "y":2.0,"b":3}}"#))),
            ("q10".to_owned(), request(None)),
        ];
        let json = serde_json::to_string(&InputRequests(&requests)).unwrap();
        let expected =
            r#"{"q9":{"method":"m","params":{"z":1,"a":{ "y":2.0,"b":3}}},"q10":{"method":"m"}}"#;
        assert_eq!(json, expected);
    }

    #[track_caller]
    fn check_url_requests(data: Value, expected: Option<Value>) {
        let error = JsonRpcError { data: Some(data), ..JsonRpcError::new(-32042, "open") };
        assert_eq!(url_input_requests(&error).map(Value::Object), expected);
    }

    #[test]
    fn url_elicitation_error_becomes_input_requests() {
        let elicitation =
            json!({ "mode": "url", "elicitationId": "1", "url": "https://e.org", "message": "m" });
        let params = json!({ "mode": "url", "message": "m", "url": "https://e.org" });
        let request = json!({ "page1": { "method": "elicitation/create", "params": params } });
        check_url_requests(json!({ "elicitations": [elicitation] }), Some(request));
        check_url_requests(json!({ "elicitations": [] }), None);
        check_url_requests(json!({}), None);
    }
}
