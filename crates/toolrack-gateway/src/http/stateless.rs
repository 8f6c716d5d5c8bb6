//! Stateless requests: each says who asks, and is cancelled when its client leaves.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio_util::sync::CancellationToken;
use toolrack_mcp::{ErrorCode, MetaKey, Method, Mirror};
use toolrack_transport::{Frame, FrameError, JsonRpcError, RequestId};

use super::body::Events;
use super::response::{Answer, Shape, Takes, empty, first_of, refusal, refusal_to, status_of};
use super::{HttpGateway, request_headers as header};
use crate::active_request::Owner;
use crate::client_info::Caller;
use crate::encode::{answer, invalid_params, invalid_request};
use crate::gateway::Shared;
use crate::message_queue::{Outbox, Replay};
use crate::params::Params;
use crate::request::Exchange;
use crate::subscriptions::answer_notice;

impl HttpGateway {
    pub(crate) async fn modern(
        &self,
        headers: &HeaderMap,
        message: &Bytes,
        takes: Takes,
    ) -> Answer {
        // Spec 2026-07-28 has no notification that a client sends over HTTP; one that comes is no harm.
        if let Ok(Frame::Notification { .. }) = Frame::parse(message) {
            return empty(StatusCode::ACCEPTED);
        }
        let (id, method, params) = match as_request(message) {
            Ok(request) => request,
            Err(error) => return refusal(StatusCode::BAD_REQUEST, &error),
        };
        let shared = &self.gateway.shared;
        let admitted = admit(shared, headers, &method, params.as_deref())
            .and_then(|it| Ok((it, header::patience(headers)?)));
        let (Admitted { caller, wants_log, owner }, patience) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return refusal_to(StatusCode::BAD_REQUEST, &id, error),
        };
        let out = Outbox::new(Replay::No, shared.manager.mask()).carrying(takes.carries());
        let out = Arc::new(out);
        if wants_log {
            out.on_loss(answer_notice());
        }
        let exchange = Exchange {
            shared: Arc::clone(shared),
            caller: Arc::new(caller),
            owner,
            home: None,
            out: Arc::clone(&out),
            id,
            patience,
        };
        let status = Arc::new(OnceLock::new());
        let gone = CancellationToken::new();
        let guard = gone.clone().drop_guard();
        let reader = out.read(None);
        shared.tracker.spawn(run(exchange, (method, params), gone, Arc::clone(&status)));
        let events = Events {
            out,
            reader,
            stream: None,
            first: None,
            _request: Some(guard),
            _presence: None,
        };
        let status = || status.get().copied().unwrap_or(StatusCode::OK);
        first_of(events, (takes, Shape::Single), None, status).await
    }
}

async fn run(
    exchange: Exchange,
    (method, params): (String, Option<Bytes>),
    gone: CancellationToken,
    status: Arc<OnceLock<StatusCode>>,
) {
    tokio::select! {
        biased;
        () = gone.cancelled() => exchange.out.finish(),
        outcome = exchange.serve(&method, params) => {
            let shown = outcome.as_ref().map_or_else(status_of, |_| StatusCode::OK);
            status.get_or_init(|| shown);
            exchange.out.put_last(answer(&exchange.id, &outcome));
        }
    }
}

/// The id, the method and the parameters of a message that has to be a request.
fn as_request(message: &Bytes) -> Result<(RequestId, String, Option<Bytes>), JsonRpcError> {
    match Frame::parse(message) {
        Ok(Frame::Request { id, method, params }) => {
            Ok((id, method, params.map(|it| message.slice_ref(it))))
        }
        Ok(_) => Err(invalid_params("only requests are taken here")),
        Err(FrameError::Json(fault)) if !fault.is_data() => {
            Err(JsonRpcError::new(ErrorCode::PARSE_ERROR.0, "Parse error"))
        }
        Err(_shape) => Err(invalid_request("no JSON-RPC message")),
    }
}

/// Who sends a request.
struct Admitted {
    caller: Caller,
    wants_log: bool,
    owner: Owner,
}

/// Whether a request says what it must, in its headers too.
fn admit(
    shared: &Shared,
    headers: &HeaderMap,
    method: &str,
    params: Option<&[u8]>,
) -> Result<Admitted, JsonRpcError> {
    let params = Params::read(params)?;
    let missing = || invalid_params(format!("`_meta` lacks `{}`", MetaKey::PROTOCOL_VERSION));
    let version = params.version()?.ok_or_else(missing)?;
    header::check(headers, method, &params, &version)?;
    let caller = Caller::modern(&params)?;
    if method == Method::CallTool.as_str()
        && let Some(mirror) = params.name.as_deref().and_then(|name| shared.mirror(name))
    {
        header::check_mirror(headers, &mirror, &params)?;
    }
    // Otherwise nothing tells which requests are of the same client.
    let owner = params.client()?.map_or_else(Owner::new, |it| Owner::named(&it));
    Ok(Admitted { caller, wants_log: params.log_level()?.is_some(), owner })
}

impl Shared {
    /// Which arguments of a tool are said beside the message too.
    fn mirror(&self, name: &str) -> Option<Mirror> {
        let (server, tool) = self.tool(name).ok()?;
        let connection = self.manager.server(&server).ok()?;
        let tool = connection.listing()?.items.iter().find(|it| it.name == tool)?;
        Mirror::of(&tool.input_schema).ok().flatten()
    }
}
