//! The parameters of a client's request, read once.
//!
//! **Invariant:** what belongs to a server (arguments, answers, `_meta` of others) stays as the client wrote it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use toolrack_mcp::{InputResponse, InputResponses, LogLevel, MetaKey, Token};
use toolrack_transport::JsonRpcError;

use crate::encode::invalid_params;

/// Which client of a gateway behind ours a request is of. It is between gateways, and no server gets it.
pub(crate) const CLIENT: &str = "toolrack/client";

/// Every member that the parameters of a request can have.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: BTreeMap<String, &'a RawValue>,
    pub(crate) name: Option<String>,
    pub(crate) uri: Option<String>,
    pub(crate) cursor: Option<String>,
    #[serde(borrow)]
    pub(crate) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) input_responses: Option<BTreeMap<String, &'a RawValue>>,
    pub(crate) request_state: Option<String>,
    #[serde(borrow)]
    pub(crate) level: Option<&'a RawValue>,
    #[serde(rename = "ref")]
    pub(crate) reference: Option<Reference>,
    pub(crate) argument: Option<Argument>,
    pub(crate) context: Option<Context>,
    #[serde(borrow)]
    pub(crate) notifications: Option<&'a RawValue>,
    pub(crate) request_id: Option<toolrack_transport::RequestId>,
    pub(crate) protocol_version: Option<String>,
    #[serde(borrow)]
    pub(crate) capabilities: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) client_info: Option<&'a RawValue>,
}

/// Whose argument is to be completed.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(crate) enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

/// What has been typed.
#[derive(Debug, Deserialize)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// What was chosen before.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Context {
    pub(crate) arguments: BTreeMap<String, String>,
}

impl<'a> Params<'a> {
    pub(crate) fn read(raw: Option<&'a [u8]>) -> Result<Self, JsonRpcError> {
        let Some(raw) = raw else { return Ok(Self::default()) };
        if !raw.trim_ascii_start().starts_with(b"{") {
            return Err(invalid_params("Invalid params: they have to be an object"));
        }
        serde_json::from_slice(raw)
            .map_err(|fault| invalid_params(format!("Invalid params: {fault}")))
    }

    pub(crate) fn meta(&self, key: &str) -> Option<&'a RawValue> {
        self.meta.get(key).copied()
    }

    /// The revision that a modern request says it is written in.
    pub(crate) fn version(&self) -> Result<Option<String>, JsonRpcError> {
        self.meta_as(MetaKey::PROTOCOL_VERSION)
    }

    /// Which client of another gateway it is of.
    pub(crate) fn client(&self) -> Result<Option<String>, JsonRpcError> {
        self.meta_as(CLIENT)
    }

    pub(crate) fn progress_token(&self) -> Result<Option<Token>, JsonRpcError> {
        self.meta_as(MetaKey::PROGRESS_TOKEN)
    }

    pub(crate) fn log_level(&self) -> Result<Option<LogLevel>, JsonRpcError> {
        self.meta_as(MetaKey::LOG_LEVEL)
    }

    /// What is in `_meta` and no business of ours, such as the context of a trace.
    pub(crate) fn other_meta(&self) -> Vec<(&str, &'a RawValue)> {
        const OURS: [&str; 6] = [
            CLIENT,
            MetaKey::PROTOCOL_VERSION,
            MetaKey::CLIENT_CAPABILITIES,
            MetaKey::CLIENT_INFO,
            MetaKey::LOG_LEVEL,
            MetaKey::PROGRESS_TOKEN,
        ];
        let others = self.meta.iter().filter(|(key, _)| !OURS.contains(&key.as_str()));
        others.map(|(key, value)| (key.as_str(), *value)).collect()
    }

    /// The answers to what a server asked, each as the client wrote it.
    pub(crate) fn answers(&self) -> Option<InputResponses> {
        let answers = self.input_responses.as_ref()?.iter();
        Some(
            answers
                .map(|(key, raw)| (key.clone(), InputResponse::Raw((*raw).to_owned())))
                .collect(),
        )
    }

    pub(crate) fn required_name(&self) -> Result<&str, JsonRpcError> {
        self.name.as_deref().ok_or_else(|| invalid_params("`name` is missing"))
    }

    pub(crate) fn required_uri(&self) -> Result<&str, JsonRpcError> {
        self.uri.as_deref().ok_or_else(|| invalid_params("`uri` is missing"))
    }

    fn meta_as<T: Deserialize<'a>>(&self, key: &str) -> Result<Option<T>, JsonRpcError> {
        let Some(raw) = self.meta(key) else { return Ok(None) };
        let read = serde_json::from_str(raw.get());
        read.map(Some)
            .map_err(|fault| invalid_params(format!("`_meta` has a bad `{key}`: {fault}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_and_the_rest_is_kept() {
        let raw = br#"{"_meta":{"progressToken":"t","traceparent":"00-1","toolrack/client":"c","io.modelcontextprotocol/logLevel":"loud"},
            "name":"n","arguments":{ "a" : 1.0 },"inputResponses":{"k":{"action": "accept"}},"other":[]}"#;
        let params = Params::read(Some(raw)).unwrap();
        assert_eq!(params.required_name(), Ok("n"));
        assert_eq!(params.arguments.unwrap().get(), r#"{ "a" : 1.0 }"#);
        assert_eq!(params.progress_token(), Ok(Some(Token::from("t"))));
        assert_eq!(params.log_level().unwrap_err().code, -32602);
        let others = params.other_meta();
        assert_eq!((others.len(), others[0].0, others[0].1.get()), (1, "traceparent", "\"00-1\""));
        let answers = serde_json::to_string(&params.answers().unwrap()).unwrap();
        assert_eq!(answers, r#"{"k":{"action": "accept"}}"#);
    }

    #[test]
    fn what_does_not_fit_is_an_invalid_parameter() {
        for raw in ["[]", "7", r#"{"name":7}"#, r#"{"_meta":[]}"#] {
            assert_eq!(Params::read(Some(raw.as_bytes())).unwrap_err().code, -32602, "{raw}");
        }
        assert!(Params::read(None).unwrap().name.is_none());
    }
}
