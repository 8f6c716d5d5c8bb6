//! One request on its way to the server that it is for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;
use toolrack_client::{Behalf, CallError, CallOptions, OnProgress};
use toolrack_manager::RackError;
use toolrack_mcp::{Era, ErrorCode, Method};
use toolrack_transport::JsonRpcError;

use crate::active_request::Seat;
use crate::encode::{Outcome, invalid_params};
use crate::error_mapping as failure;
use crate::gateway::{Behind, Shared};
use crate::list::no_resource;
use crate::params::Params;
use crate::request::Exchange;
use crate::server_queue::{End, TURN};
use crate::server_request_router::Seated;
use crate::suspended::Work;

/// What is asked of which server.
#[derive(Debug)]
pub(crate) enum Target {
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
    /// The servers that may have it, the likeliest first.
    Resource {
        servers: Vec<String>,
        uri: String,
    },
}

impl Exchange {
    /// Finds out whom a request is for.
    pub(crate) async fn target(
        &self,
        method: Method,
        params: &Params<'_>,
    ) -> Result<Target, JsonRpcError> {
        if method == Method::ReadResource {
            let uri = params.required_uri()?.to_owned();
            return Ok(Target::Resource { servers: self.shared.owners(&uri).await, uri });
        }
        let name = params.required_name()?;
        if method == Method::GetPrompt {
            let (server, name) = self.shared.prompt(name).await?;
            let arguments = params.arguments.map_or(Ok(BTreeMap::new()), |it| {
                serde_json::from_str(it.get())
                    .map_err(|fault| invalid_params(format!("`arguments` are bad: {fault}")))
            })?;
            return Ok(Target::Prompt { server, name, arguments });
        }
        let (server, tool) = self.shared.tool_of_now(name).await?;
        let nothing = || RawValue::from_string("{}".to_owned()).unwrap_or_default();
        let arguments = params.arguments.map_or_else(nothing, ToOwned::to_owned);
        if !arguments.get().starts_with('{') {
            return Err(invalid_params("`arguments` have to be an object"));
        }
        Ok(Target::Tool { server, tool, arguments })
    }
}

/// Begins to work on a request. It goes on while it is polled, and is cancelled when it is dropped.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    target: &Arc<Target>,
    seat: &Arc<Seat>,
    (behalf, patience): (Behalf, Option<Duration>),
) -> Work {
    let (shared, target, seat) = (Arc::clone(shared), Arc::clone(target), Arc::clone(seat));
    Box::pin(async move {
        let spot = seat.spot();
        let (reported, noted) = (Arc::clone(&seat), Arc::clone(&seat));
        let behalf = behalf.noting(Arc::new(move |id| noted.noted(id)));
        let options = CallOptions {
            timeout: patience,
            at_most: patience,
            on_progress: spot.token.is_some().then(|| {
                Arc::new(move |progress: &toolrack_mcp::Progress| reported.progress(progress))
                    as OnProgress
            }),
            log_level: spot.wanted.to_request(),
            on_behalf: Some(Arc::new(behalf)),
        };
        target.deliver(&shared, &seat, &options).await
    })
}

impl Target {
    /// Whether it is known to be for servers that cannot have asked in a result.
    pub(crate) fn is_legacy(&self, shared: &Shared) -> bool {
        let servers = match self {
            Target::Tool { server, .. } | Target::Prompt { server, .. } => {
                std::slice::from_ref(server)
            }
            Target::Resource { servers, .. } => servers,
        };
        servers.iter().all(|name| {
            let server = shared.manager.server(name);
            server.is_ok_and(|it| it.client().is_some_and(|it| it.era() == Era::Legacy))
        })
    }

    async fn deliver(&self, shared: &Shared, seat: &Arc<Seat>, options: &CallOptions) -> Outcome {
        let manner = shared.manner(seat.caller.era());
        match self {
            Target::Tool { server, tool, arguments } => {
                let (seated, options) = take_place(shared, server, seat, options).await;
                let called = shared.manager.call_tool_raw(server, tool, arguments, &options).await;
                seated.ended(End::of_rack(&called));
                if let (Err(RackError::NoSuchTool { .. }), Behind::Gateway) =
                    (&called, shared.options.behind)
                {
                    // Another gateway knows more tools than it lists, and why one cannot be called.
                    let client = shared.borrow(server, manner).await?;
                    let called = client.call_tool_raw(tool, arguments, &options).await;
                    return called.map_err(|error| failure::of_call(error, manner));
                }
                called.map_err(|error| failure::of_rack(error, manner))
            }
            Target::Prompt { server, name, arguments } => {
                let client = shared.borrow(server, manner).await?;
                let (seated, options) = take_place(shared, server, seat, options).await;
                let prompt = client.get_prompt_raw(name, arguments, &options).await;
                seated.ended(End::of_call(&prompt));
                prompt.map_err(|error| failure::of_call(error, manner))
            }
            Target::Resource { servers, uri } => {
                let mut refusal = None;
                for server in servers {
                    let client = shared.borrow(server, manner).await?;
                    let (seated, options) = take_place(shared, server, seat, options).await;
                    let read = client.read_resource_raw(uri, &options).await;
                    seated.ended(End::of_call(&read));
                    match read {
                        Ok(raw) => return Ok(raw),
                        Err(error) if is_elsewhere(&error) => {
                            refusal.get_or_insert(failure::of_read(error, manner, uri));
                        }
                        Err(error) => return Err(failure::of_read(error, manner, uri)),
                    }
                }
                Err(refusal.unwrap_or_else(|| no_resource(uri, seat.caller.revision)))
            }
        }
    }
}

/// Waits for its turn at a server, and gives what is left of the time that the client has.
async fn take_place(
    shared: &Shared,
    server: &str,
    seat: &Arc<Seat>,
    options: &CallOptions,
) -> (Seated, CallOptions) {
    let began = Instant::now();
    let most = options.timeout.map_or(TURN, |it| it.min(TURN));
    let seated = shared.switchboard.sit(server, seat, most).await;
    let waited = began.elapsed();
    let left = |it: Duration| it.saturating_sub(waited);
    let (timeout, at_most) = (options.timeout.map(left), options.at_most.map(left));
    (seated, CallOptions { timeout, at_most, ..options.clone() })
}

/// Whether another server may have the resource.
fn is_elsewhere(error: &CallError) -> bool {
    match error {
        CallError::Refused(refusal) => ErrorCode(refusal.code).may_mean_no_resource(),
        CallError::Unsupported { .. } => true,
        _ => false,
    }
}
