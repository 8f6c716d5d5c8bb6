//! Forwards `tools/call`, `prompts/get` and `resources/read` to servers, with server requests across protocol eras.
//!
//! | | modern server: requests in its result | legacy server: requests while it works |
//! |---|---|---|
//! | modern client | gets the result unchanged | its request is suspended; it gets an `input_required` result and repeats the request |
//! | legacy client | gets the requests in its session; the call is repeated with the responses | gets them in its session at once |
//!
//! Which client a legacy server means is decided in [`server_request_owner`](crate::server_request_owner).
//!
//! **Invariant:** arguments, responses and results pass byte for byte.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use toolrack_client::{CallError, CallOptions, ForwardedFor, OnProgress};
use toolrack_manager::ManagerError;
use toolrack_mcp::{Era, ErrorCode, InputResponse, InputResponses, Method, ResultType};
use toolrack_transport::{JsonRpcError, RawJson};

use crate::active_request::{ActiveRequest, ServerRequest};
use crate::client_session::ClientSession;
use crate::encode::{Outcome, internal_error, invalid_params, to_result};
use crate::error_mapping;
use crate::gateway::{Shared, Upstream, resource_not_found};
use crate::params::Params;
use crate::request_context::RequestContext;
use crate::result_compat::{adapt_result, object_members};
use crate::server_request_owner::{Completion, MAX_TURN};
use crate::server_request_router::ActiveGuard;
use crate::suspended::{CallFuture, SuspendedRequest, SuspendedRequests};

/// How often a modern server may ask for input before it completes.
// The TypeScript and Rust SDKs have the same limit.
const MAX_ROUNDS: u32 = 10;
/// How long after a request of a legacy server the next one still joins the same `input_required` result. A modern
/// client is asked in rounds, so requests that a server sends together have to arrive together.
const BATCH_DELAY: Duration = Duration::from_millis(30);
/// Server requests in one `input_required` result. Further ones wait for the next round.
const MAX_BATCH: usize = 8;

/// Server and subject of a request.
#[derive(Debug)]
enum Target {
    Tool {
        server: String,
        tool: String,
        arguments: Box<RawValue>,
    },
    Prompt {
        server: String,
        name: String,
        arguments: BTreeMap<String, String>,
    },
    /// The servers that may have the resource, the likeliest first.
    Resource {
        servers: Vec<String>,
        uri: String,
    },
}

impl RequestContext {
    /// Forwards the request and adapts the result to the client's era.
    pub(crate) async fn forward(&self, method: Method, params: &Params<'_>) -> Outcome {
        let outcome = match &self.session {
            Some(session) => self.forward_for_legacy(session, method, params).await,
            None => self.forward_for_modern(method, params).await,
        };
        outcome.map(|raw| adapt_result(raw, self.era(), method))
    }

    /// Resolves the server of the request.
    async fn target(&self, method: Method, params: &Params<'_>) -> Result<Target, JsonRpcError> {
        if method == Method::ReadResource {
            let uri = params.required_uri()?.to_owned();
            return Ok(Target::Resource { servers: self.shared.resource_servers(&uri).await, uri });
        }
        let name = params.required_name()?;
        if method == Method::GetPrompt {
            let (server, name) = self.shared.resolve_prompt(name).await?;
            let arguments = params.arguments.map_or(Ok(BTreeMap::new()), |raw| {
                serde_json::from_str(raw.get())
                    .map_err(|error| invalid_params(format!("invalid `arguments`: {error}")))
            })?;
            return Ok(Target::Prompt { server, name, arguments });
        }
        let (server, tool) = self.shared.resolve_tool_refreshing(name).await?;
        // Some servers reject a call without `arguments`, so an absent member becomes `{}`.
        let empty = || RawValue::from_string("{}".to_owned()).unwrap_or_default();
        let arguments = params.arguments.map_or_else(empty, ToOwned::to_owned);
        if !arguments.get().starts_with('{') {
            return Err(invalid_params("`arguments` is not an object"));
        }
        Ok(Target::Tool { server, tool, arguments })
    }

    /// Forwards for a legacy client. Requests of a modern server are sent to its session, and the call is repeated with
    /// the responses.
    async fn forward_for_legacy(
        &self,
        session: &Arc<ClientSession>,
        method: Method,
        params: &Params<'_>,
    ) -> Outcome {
        let target = Arc::new(self.target(method, params).await?);
        let forwarded_for = self.forwarded_for(params)?;
        let (request, _none) = self.to_active_request(params)?;
        let start = |forwarded_for: ForwardedFor| {
            start_call(&self.shared, &target, &request, (forwarded_for, self.timeout))
        };
        let mut call = start(forwarded_for.clone());
        let mut n_rounds = 0;
        loop {
            let raw = call.await?;
            if ResultType::read(raw.as_bytes()) != ResultType::InputRequired {
                return Ok(raw);
            }
            if n_rounds >= MAX_ROUNDS {
                return Err(internal_error("the server asked for input too many times"));
            }
            n_rounds += 1;
            let (responses, state) = self.collect_input(session, &raw).await?;
            // Only the responses of this round: the server keeps earlier ones in its
            // `requestState`.
            call = start(forwarded_for.clone().with_input_responses(responses, state));
        }
    }

    /// Sends the requests of an `input_required` result to the client, one after the other.
    async fn collect_input(
        &self,
        session: &ClientSession,
        raw: &RawJson,
    ) -> Result<(Option<InputResponses>, Option<String>), JsonRpcError> {
        #[derive(Deserialize)]
        struct InputRequest<'a> {
            method: String,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let malformed = || internal_error("the server sent a malformed input_required result");
        let members = object_members(raw).ok_or_else(malformed)?;
        let member =
            |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
        let state = member("requestState").map(|raw| serde_json::from_str::<String>(raw.get()));
        let state = state.transpose().map_err(|_error| malformed())?;
        let Some(requests) = member("inputRequests") else { return Ok((None, state)) };
        let requests = RawJson::from(requests.to_owned());
        let mut responses = InputResponses::default();
        for (key, raw) in object_members(&requests).ok_or_else(malformed)? {
            let InputRequest { method, params } =
                serde_json::from_str(raw.get()).map_err(|_error| malformed())?;
            let params = params.map(|raw| RawJson::from(raw.to_owned()));
            if !self.client.supports(&method, params.as_ref()) {
                return Err(internal_error(&format!("the client does not support `{method}`")));
            }
            let response = session.send_request(&self.queue, &method, params.as_ref()).await?;
            let response = response.as_raw_value();
            let response = response
                .map_err(|_error| internal_error("the client's response is not valid JSON"))?;
            responses.push(key, InputResponse::Raw(response.to_owned()));
        }
        Ok((Some(responses), state))
    }

    /// Forwards for a modern client. If a legacy server sends requests meanwhile, the call is suspended and the client
    /// gets them as a result.
    async fn forward_for_modern(&self, method: Method, params: &Params<'_>) -> Outcome {
        let name = params.name.as_ref().or(params.uri.as_ref()).cloned().unwrap_or_default();
        let subject = (method.as_str().to_owned(), name);
        let suspended = &self.shared.suspended;
        let own_state = params.request_state.as_deref();
        let own_state = own_state.filter(|state| suspended.is_own_state(state));
        let mut request = match own_state {
            Some(state) => self.resume(suspended.take(state, &subject)?, params)?,
            None => {
                let target = Arc::new(self.target(method, params).await?);
                // A legacy server issues no states, so this one is outdated or forged. Without the check the call
                // would silently start again from the beginning.
                if params.request_state.is_some() && target.is_legacy(&self.shared) {
                    return Err(SuspendedRequests::unknown_state());
                }
                let forwarded_for = self.forwarded_for(params)?;
                let responses = params.to_input_responses();
                let forwarded_for =
                    forwarded_for.with_input_responses(responses, params.request_state.clone());
                let client = (Arc::clone(&self.client), self.client_id.clone());
                let (sink, naming) = (self.notification_sink(params)?, self.shared.scope.naming());
                let (active, incoming) = ActiveRequest::new(client, sink, naming);
                let call =
                    start_call(&self.shared, &target, &active, (forwarded_for, self.timeout));
                let pending = Vec::new();
                SuspendedRequest { call, active, incoming, pending, n_keys: 0, subject }
            }
        };
        while request.pending.len() < MAX_BATCH {
            let is_first = request.pending.is_empty();
            // Biased to the call: a result makes the server's requests obsolete.
            let server_request = tokio::select! {
                biased;
                outcome = &mut request.call => return self.url_elicitation(outcome, params),
                Some(server_request) = request.incoming.recv() => server_request,
                () = sleep(BATCH_DELAY), if !is_first => break,
            };
            request.n_keys += 1;
            request.pending.push((format!("q{}", request.n_keys), server_request));
        }
        self.suspend(request)
    }

    /// Passes the client's responses to the server. Requests without a response stay pending and are sent again.
    fn resume(
        &self,
        mut request: SuspendedRequest,
        params: &Params<'_>,
    ) -> Result<SuspendedRequest, JsonRpcError> {
        // Progress and log messages now go to the stream of the repeated request, under its token.
        request.active.set_sink(self.notification_sink(params)?);
        let mut responses = params.input_responses.clone().unwrap_or_default();
        for (key, server_request) in std::mem::take(&mut request.pending) {
            match responses.remove(&key) {
                Some(raw) => respond(server_request.response, Ok(RawJson::from(raw.to_owned()))),
                None => request.pending.push((key, server_request)),
            }
        }
        Ok(request)
    }

    fn suspend(&self, request: SuspendedRequest) -> Outcome {
        // Encoded before the request is moved into the store, and as the server wrote it: the order of schema
        // properties is the order of the fields in a form.
        let requests = to_raw_value(&InputRequests(&request.pending));
        let requests = requests.map_err(|error| internal_error(&error.to_string()))?;
        let state = self.shared.suspended.insert(request)?;
        to_result(&InputRequiredResult {
            result_type: "input_required",
            input_requests: &requests,
            request_state: &state,
        })
    }

    /// Converts a URL elicitation error into an `input_required` result, if the client supports URL mode and has not
    /// responded yet.
    ///
    /// Spec 2025-11-25, elicitation §URL mode: the server fails with the URLs, and the client retries when the user has
    /// opened them. 2026-07-28 has no such error. When the modern client repeats its request, so do we.
    fn url_elicitation(&self, outcome: Outcome, params: &Params<'_>) -> Outcome {
        let error = match outcome {
            Err(error) if ErrorCode(error.code) == ErrorCode::URL_ELICITATION_REQUIRED => error,
            outcome => return outcome,
        };
        let url_mode = RawJson::new(r#"{"mode":"url"}"#);
        // After a response the error is final; otherwise the client would be asked for the same
        // page forever.
        let has_responded = params.input_responses.is_some();
        if has_responded || !self.client.supports(Method::Elicit.as_str(), Some(&url_mode)) {
            return Err(error);
        }
        match url_input_requests(&error) {
            Some(requests) => {
                to_result(&json!({ "resultType": "input_required", "inputRequests": requests }))
            }
            None => Err(error),
        }
    }
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

/// Starts a call to the target. The call makes progress while it is polled, and is cancelled when it is dropped.
fn start_call(
    shared: &Arc<Shared>,
    target: &Arc<Target>,
    request: &Arc<ActiveRequest>,
    (forwarded_for, timeout): (ForwardedFor, Option<Duration>),
) -> CallFuture {
    let (shared, target, request) = (Arc::clone(shared), Arc::clone(target), Arc::clone(request));
    Box::pin(async move {
        let sink = request.sink();
        let (reporting, sent) = (Arc::clone(&request), Arc::clone(&request));
        let forwarded_for =
            forwarded_for.with_id_observer(Arc::new(move |id| sent.record_sent(id)));
        let options = CallOptions {
            timeout,
            total_timeout: timeout,
            // Without a token the client wants no progress, and the server need not send any.
            on_progress: sink.progress_token.is_some().then(|| {
                Arc::new(move |progress: &toolrack_mcp::Progress| {
                    reporting.send_progress(progress);
                }) as OnProgress
            }),
            log_level: sink.log_filter.level_to_request(),
            forwarded_for: Some(Arc::new(forwarded_for)),
        };
        target.call(&shared, &request, &options).await
    })
}

impl Target {
    /// Whether all its servers are known to be legacy ones, which never return `input_required`.
    fn is_legacy(&self, shared: &Shared) -> bool {
        let servers = match self {
            Target::Tool { server, .. } | Target::Prompt { server, .. } => {
                std::slice::from_ref(server)
            }
            Target::Resource { servers, .. } => servers,
        };
        servers.iter().all(|name| {
            let server = shared.manager.server(name);
            server.is_ok_and(|server| {
                server.client().is_some_and(|client| client.era() == Era::Legacy)
            })
        })
    }

    async fn call(
        &self,
        shared: &Shared,
        request: &Arc<ActiveRequest>,
        options: &CallOptions,
    ) -> Outcome {
        let style = shared.error_style(request.client.era());
        match self {
            Target::Tool { server, tool, arguments } => {
                let (active, options) = begin(shared, server, request, options).await;
                let called = shared
                    .manager
                    .call((server, tool))
                    .args(arguments)
                    .options(options.clone())
                    .send_raw()
                    .await;
                active.complete(Completion::from_manager(&called));
                if let (Err(ManagerError::NoSuchTool { .. }), Upstream::Gateway) =
                    (&called, shared.options.upstream)
                {
                    // The other gateway accepts tools that it does not list, and knows why one cannot be called.
                    let client = shared.borrow(server, style).await?;
                    let called = client.call_tool_raw(tool, arguments, &options).await;
                    return called.map_err(|error| error_mapping::from_call_error(error, style));
                }
                called.map_err(|error| error_mapping::from_manager_error(error, style))
            }
            Target::Prompt { server, name, arguments } => {
                let client = shared.borrow(server, style).await?;
                let (active, options) = begin(shared, server, request, options).await;
                let prompt = client.get_prompt_raw(name, arguments, &options).await;
                active.complete(Completion::from_call(&prompt));
                prompt.map_err(|error| error_mapping::from_call_error(error, style))
            }
            Target::Resource { servers, uri } => {
                let mut first_error = None;
                for server in servers {
                    let client = shared.borrow(server, style).await?;
                    let (active, options) = begin(shared, server, request, options).await;
                    let read = client.read_resource_raw(uri, &options).await;
                    active.complete(Completion::from_call(&read));
                    match read {
                        Ok(raw) => return Ok(raw),
                        Err(error) if may_be_elsewhere(&error) => {
                            let error = error_mapping::from_read_error(error, style, uri);
                            // The first server is the likeliest to have the resource, so its error
                            // says most.
                            first_error.get_or_insert(error);
                        }
                        Err(error) => {
                            return Err(error_mapping::from_read_error(error, style, uri));
                        }
                    }
                }
                let missing = || resource_not_found(uri, request.client.revision);
                Err(first_error.unwrap_or_else(missing))
            }
        }
    }
}

/// Waits for the request's turn at the server, and deducts the wait from its timeouts: they limit the time that the
/// client waits in all.
async fn begin(
    shared: &Shared,
    server: &str,
    request: &Arc<ActiveRequest>,
    options: &CallOptions,
) -> (ActiveGuard, CallOptions) {
    let started = Instant::now();
    let max_wait = options.timeout.map_or(MAX_TURN, |timeout| timeout.min(MAX_TURN));
    let active = shared.router.begin(server, request, max_wait).await;
    let waited = started.elapsed();
    let remaining = |timeout: Duration| timeout.saturating_sub(waited);
    let (timeout, at_most) = (options.timeout.map(remaining), options.total_timeout.map(remaining));
    (active, CallOptions { timeout, total_timeout: at_most, ..options.clone() })
}

/// Whether another server may have the resource.
fn may_be_elsewhere(error: &CallError) -> bool {
    match error {
        CallError::Refused(error) => ErrorCode(error.code).may_be_missing_resource(),
        CallError::Unsupported { .. } => true,
        _ => false,
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

/// Passes a response to the server request, which may have been cancelled meanwhile.
fn respond(sender: oneshot::Sender<Outcome>, outcome: Outcome) {
    if sender.send(outcome).is_err() {
        tracing::debug!("client response to a cancelled server request discarded");
    }
}

#[cfg(test)]
mod tests {
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
