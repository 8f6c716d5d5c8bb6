//! Who asks: the revision a client speaks, and what it can do for servers.

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use toolrack_client::Behalf;
use toolrack_mcp::{ClientCapabilities, Era, ErrorCode, MetaKey, Method, Revision};
use toolrack_transport::{JsonRpcError, RawJson};

use crate::encode::{internal, invalid_params};
use crate::params::{CLIENT, Params};

/// The extension that we do not pass on: a task lives at one server, and nothing leads back to it.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A client, as far as it has introduced itself.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) revision: Revision,
    pub(crate) capabilities: ClientCapabilities,
    client: Option<Box<RawValue>>,
}

impl Caller {
    /// A client that opens a legacy conversation. What it asks for is agreed to if it exists.
    pub(crate) fn legacy(params: &Params<'_>) -> Result<Self, JsonRpcError> {
        let Some(wanted) = &params.protocol_version else {
            return Err(invalid_params("`protocolVersion` is missing"));
        };
        let known = Revision::parse(wanted).filter(|it| it.era() == Era::Legacy);
        let revision = known.unwrap_or(Revision::LATEST_LEGACY);
        Self::new(revision, params.capabilities, params.client_info)
    }

    /// A client that introduces itself with each request.
    ///
    /// Spec 2026-07-28, basic §Request Metadata: without version and capabilities it is no request.
    pub(crate) fn modern(params: &Params<'_>) -> Result<Self, JsonRpcError> {
        let missing = |key: &str| invalid_params(format!("`_meta` lacks `{key}`"));
        let version = params.version()?.ok_or_else(|| missing(MetaKey::PROTOCOL_VERSION))?;
        let known = Revision::parse(&version).filter(|it| it.era() == Era::Modern);
        let Some(revision) = known else { return Err(unsupported(&version)) };
        let capabilities = params.meta(MetaKey::CLIENT_CAPABILITIES);
        let capabilities = capabilities.ok_or_else(|| missing(MetaKey::CLIENT_CAPABILITIES))?;
        if !capabilities.get().starts_with('{') {
            let key = MetaKey::CLIENT_CAPABILITIES;
            return Err(invalid_params(format!("`_meta` has a bad `{key}`: it is no object")));
        }
        Self::new(revision, Some(capabilities), params.meta(MetaKey::CLIENT_INFO))
    }

    fn new(
        revision: Revision,
        capabilities: Option<&RawValue>,
        client: Option<&RawValue>,
    ) -> Result<Self, JsonRpcError> {
        let read = capabilities.map_or(Ok(ClientCapabilities::default()), |it| {
            serde_json::from_str::<ClientCapabilities>(it.get())
        });
        let mut capabilities =
            read.map_err(|fault| invalid_params(format!("`capabilities` are bad: {fault}")))?;
        capabilities.extensions.remove(TASKS);
        Ok(Self { revision, capabilities, client: client.map(ToOwned::to_owned) })
    }

    pub(crate) fn era(&self) -> Era {
        self.revision.era()
    }

    /// Whether it can be asked this.
    pub(crate) fn can(&self, method: &str, params: Option<&RawJson>) -> bool {
        let capabilities = &self.capabilities;
        match Method::parse(method) {
            Some(Method::ListRoots) => capabilities.roots.is_some(),
            Some(Method::CreateMessage) => capabilities.sampling.is_some(),
            Some(Method::Elicit) if self.revision.has_elicitation() => {
                let modes = capabilities.elicitation;
                modes.is_some_and(|it| if wants_page(params) { it.url } else { it.form })
            }
            _ => false,
        }
    }

    /// Whether it can be asked anything that is asked about a request.
    pub(crate) fn can_be_asked(&self) -> bool {
        self.capabilities.sampling.is_some() || self.capabilities.elicitation.is_some()
    }

    /// How it is introduced to a modern server, with what came in the `_meta` of its request; to another gateway
    /// under a name.
    pub(crate) fn behalf(
        &self,
        params: &Params<'_>,
        name: Option<&str>,
    ) -> Result<Behalf, JsonRpcError> {
        let fault = |fault: serde_json::Error| internal(&fault.to_string());
        let capabilities =
            to_raw_value(&self.capabilities.wire(Revision::LATEST)).map_err(fault)?;
        let name = name.map(to_raw_value).transpose().map_err(fault)?;
        let mut others = params.other_meta();
        others.extend(name.as_deref().map(|it| (CLIENT, it)));
        Behalf::new(&capabilities, self.client.as_deref(), &others).map_err(fault)
    }
}

fn wants_page(params: Option<&RawJson>) -> bool {
    #[derive(serde::Deserialize)]
    struct Mode {
        mode: Option<String>,
    }
    let mode = params.and_then(|it| it.decode::<Mode>().ok()).and_then(|it| it.mode);
    mode.as_deref() == Some("url")
}

/// Spec 2026-07-28, versioning: a revision that is not spoken is answered with those that are.
pub(crate) fn unsupported(requested: &str) -> JsonRpcError {
    let supported: Vec<Value> = Revision::ALL.iter().rev().map(|it| it.as_str().into()).collect();
    let data = serde_json::json!({ "supported": supported, "requested": requested });
    let code = ErrorCode::UNSUPPORTED_VERSION.0;
    JsonRpcError { data: Some(data), ..JsonRpcError::new(code, "Unsupported protocol version") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(version: &str, expected: &str) {
        let text = format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
        let params = Params::read(Some(text.as_bytes())).unwrap();
        assert_eq!(Caller::legacy(&params).unwrap().revision.as_str(), expected);
    }

    #[test]
    fn a_legacy_client_gets_the_revision_it_asks_for_if_there_is_such_a_one() {
        check("2024-11-05", "2024-11-05");
        check("2025-03-26", "2025-03-26");
        check("2025-06-18", "2025-06-18");
        check("2025-11-25", "2025-11-25");
        check("2026-07-28", "2025-11-25");
        check("1999-01-01", "2025-11-25");
    }

    #[track_caller]
    fn refused(meta: &str, code: i64) {
        let text = format!(r#"{{"_meta":{meta}}}"#);
        let params = Params::read(Some(text.as_bytes())).unwrap();
        assert_eq!(Caller::modern(&params).map(|_| ()).unwrap_err().code, code, "{meta}");
    }

    /// Protocol facts §4.1.
    #[test]
    fn a_modern_request_has_to_introduce_its_sender() {
        refused("{}", -32602);
        refused(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#, -32602);
        refused(r#"{"io.modelcontextprotocol/protocolVersion":7}"#, -32602);
        refused(
            r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":7}"#,
            -32602,
        );
        refused(r#"{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}"#, -32022);
    }

    #[test]
    fn a_client_is_asked_what_it_has_declared() {
        let text =
            r#"{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"roots":{}}}"#;
        let caller = Caller::legacy(&Params::read(Some(text.as_bytes())).unwrap()).unwrap();
        let page = RawJson::new(r#"{"mode":"url"}"#);
        assert!(caller.can("elicitation/create", None) && caller.can("roots/list", None));
        assert!(!caller.can("elicitation/create", Some(&page)));
        assert!(!caller.can("sampling/createMessage", None) && !caller.can("tools/list", None));
    }
}
