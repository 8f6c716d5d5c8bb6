//! How a server introduces itself: the answers to `initialize` and `server/discover`, by revision.

use serde_json::{Value, json};

use super::client::Ticket;
use super::server::Server;
use crate::jsonrpc::{Answer, Params, Refusal};
use crate::revision::Revision;

const INSTRUCTIONS: &str = "A server for tests. It does what its plan says.";

impl Server {
    pub(super) fn initialize(
        &self,
        ticket: &Ticket,
        params: &Params<'_>,
    ) -> Result<Answer, Refusal> {
        let requested = params.protocol_version.as_deref().unwrap_or_default();
        let Some(revision) = self.options.speaks.agree(requested) else {
            let supported = self.options.speaks.supported();
            return Err(Refusal::unsupported_version(requested, &supported));
        };
        ticket.origin.client.agree_on(revision);
        let planned = ticket.twist.as_ref().and_then(|twist| twist.version.as_deref());
        Ok(Answer::Complete(Answer::members_of(&json!({
            "protocolVersion": planned.unwrap_or(revision.text()),
            "capabilities": self.capabilities(revision),
            "serverInfo": implementation(revision),
            "instructions": INSTRUCTIONS,
        }))))
    }

    pub(super) fn discover(&self, ticket: &Ticket) -> Answer {
        let planned = ticket.twist.as_ref().and_then(|twist| twist.version.as_deref());
        let supported =
            planned.map_or_else(|| self.options.speaks.supported(), |value| vec![value]);
        Answer::Cacheable(Answer::members_of(&json!({
            "supportedVersions": supported,
            "capabilities": self.capabilities(Revision::R2026_07_28),
            "instructions": INSTRUCTIONS,
        })))
    }

    fn capabilities(&self, revision: Revision) -> Value {
        let mut capabilities = json!({
            "tools": { "listChanged": self.options.announces },
            "resources": { "subscribe": true },
            "prompts": {},
            "logging": {},
        });
        // The first revision has completion but no way to say so.
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
