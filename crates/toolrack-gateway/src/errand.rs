//! One request on its way to the server that it is for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use toolrack_client::{Behalf, CallError, CallOptions, OnProgress};
use toolrack_mcp::{Era, ErrorCode, Method};
use toolrack_rpc::JsonRpcError;

use crate::exchange::Exchange;
use crate::failure;
use crate::gateway::Shared;
use crate::list::no_resource;
use crate::params::Params;
use crate::parked::Work;
use crate::seat::Seat;
use crate::wire::{Outcome, invalid_params};

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
        let (server, tool) = self.shared.tool(name)?;
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
        let place = seat.place();
        let reported = Arc::clone(&seat);
        let options = CallOptions {
            timeout: patience,
            at_most: patience,
            on_progress: place.token.is_some().then(|| {
                Arc::new(move |progress: &toolrack_mcp::Progress| reported.progress(progress))
                    as OnProgress
            }),
            log_level: place.wanted.to_request(),
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
        let era = seat.caller.era();
        match self {
            Target::Tool { server, tool, arguments } => {
                let _seated = shared.switchboard.sit(server, seat);
                let called = shared.manager.call_tool_raw(server, tool, arguments, options).await;
                called.map_err(|error| failure::of_rack(error, era))
            }
            Target::Prompt { server, name, arguments } => {
                let client = shared.borrow(server, era).await?;
                let _seated = shared.switchboard.sit(server, seat);
                let prompt = client.get_prompt_raw(name, arguments, options).await;
                prompt.map_err(|error| failure::of_call(error, era))
            }
            Target::Resource { servers, uri } => {
                let mut refusal = None;
                for server in servers {
                    let client = shared.borrow(server, era).await?;
                    let _seated = shared.switchboard.sit(server, seat);
                    match client.read_resource_raw(uri, options).await {
                        Ok(raw) => return Ok(raw),
                        Err(error) if is_elsewhere(&error) => {
                            refusal.get_or_insert(failure::of_call(error, era));
                        }
                        Err(error) => return Err(failure::of_call(error, era)),
                    }
                }
                Err(refusal.unwrap_or_else(|| no_resource(uri, seat.caller.revision)))
            }
        }
    }
}

/// Whether another server may have the resource.
fn is_elsewhere(error: &CallError) -> bool {
    match error {
        CallError::Refused(refusal) => ErrorCode(refusal.code).may_mean_no_resource(),
        CallError::Unsupported { .. } => true,
        _ => false,
    }
}
