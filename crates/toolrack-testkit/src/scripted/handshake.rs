//! Handshake: results of `initialize` and `server/discover` by revision.

use serde_json::{Value, json};

use super::client::PendingRequest;
use super::server::Server;
use crate::jsonrpc::{Params, Response, RpcError};
use crate::revision::Revision;

const INSTRUCTIONS: &str = "A server for tests. It does what its plan says.";

impl Server {
    pub(super) fn initialize(
        &self,
        pending: &PendingRequest,
        params: &Params<'_>,
    ) -> Result<Response, RpcError> {
        let requested = params.protocol_version.as_deref().unwrap_or_default();
        let Some(revision) = self.options.revisions.negotiate(requested) else {
            let supported = self.options.revisions.supported();
            return Err(RpcError::unsupported_version(requested, &supported));
        };
        pending.context.client.set_negotiated(revision);
        let planned = pending
            .response_faults
            .as_ref()
            .and_then(|response_faults| response_faults.version.as_deref());
        Ok(Response::Complete(Response::object_members(&json!({
            "protocolVersion": planned.unwrap_or(revision.as_str()),
            "capabilities": self.capabilities(revision),
            "serverInfo": implementation(revision),
            "instructions": INSTRUCTIONS,
        }))))
    }

    pub(super) fn discover(&self, pending: &PendingRequest) -> Response {
        let planned = pending
            .response_faults
            .as_ref()
            .and_then(|response_faults| response_faults.version.as_deref());
        let supported =
            planned.map_or_else(|| self.options.revisions.supported(), |version| vec![version]);
        Response::Cacheable(Response::object_members(&json!({
            "supportedVersions": supported,
            "capabilities": self.capabilities(Revision::R2026_07_28),
            "instructions": INSTRUCTIONS,
        })))
    }

    fn capabilities(&self, revision: Revision) -> Value {
        let mut capabilities = json!({
            "tools": { "listChanged": self.options.sends_list_changed },
            "resources": { "subscribe": true },
            "prompts": {},
            "logging": {},
        });
        // The first revision has completion, but no capability for it.
        if let (true, Some(members)) =
            (revision >= Revision::R2025_03_26, capabilities.as_object_mut())
        {
            members.insert("completions".to_owned(), json!({}));
        }
        capabilities
    }
}

fn implementation(revision: Revision) -> Value {
    let mut implementation =
        json!({ "name": "scripted-server", "version": env!("CARGO_PKG_VERSION") });
    if let (true, Some(members)) =
        (revision >= Revision::R2025_06_18, implementation.as_object_mut())
    {
        members.insert("title".to_owned(), json!("Scripted server"));
    }
    implementation
}
