//! `input_required` results (multi-round-trip requests) and the responses to them.
//!
//! In the modern era the server returns input requests in a result and gets the responses with the
//! repeated request; in the legacy era each input request is a JSON-RPC request of the server.

use indexmap::IndexMap;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::call::Arguments;
use crate::elicitation::{Elicitation, ElicitationResult};
use crate::error::DecodeError;
use crate::method::Method;
use crate::request::Request;
use crate::roots::RootsResult;
use crate::sampling::{SamplingParams, SamplingResult};
use crate::serde_lenient::{decode, decode_params};

/// An `input_required` result.
#[derive(Debug, Clone)]
pub struct InputRequired {
    /// Input requests by the server's keys, in its order. Empty means: send the request again later.
    pub input_requests: Vec<(String, InputRequest)>,
    /// `requestState`, to be returned unchanged. If absent, it must not be sent.
    pub request_state: Option<String>,
}

/// An input request.
#[derive(Debug, Clone)]
pub enum InputRequest {
    /// Elicitation from the user.
    Elicitation(Elicitation),
    /// Sampling from a model.
    Sampling(Box<SamplingParams>),
    /// Roots of the client.
    Roots,
    /// An unknown input request.
    Other {
        /// Method name.
        method: String,
    },
}

impl<'de> Deserialize<'de> for InputRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Members {
            method: String,
            params: Option<Box<RawValue>>,
        }
        let Members { method, params } = Members::deserialize(deserializer)?;
        let params = params.as_ref().map_or(&b""[..], |params| params.get().as_bytes());
        Self::parse(&method, params).map_err(D::Error::custom)
    }
}

impl InputRequired {
    /// Reads an `input_required` result.
    pub fn parse(raw: &[u8]) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members {
            input_requests: Option<IndexMap<String, InputRequest>>,
            request_state: Option<String>,
        }
        let Members { input_requests, request_state } = decode(raw)?;
        // Spec 2026-07-28: at least one of the two. A state alone means "try again later".
        if input_requests.is_none() && request_state.is_none() {
            return Err(DecodeError::Missing { member: "inputRequests" });
        }
        let input_requests = input_requests.unwrap_or_default().into_iter().collect();
        Ok(Self { input_requests, request_state })
    }
}

impl InputRequest {
    /// Reads an input request. Absent parameters are an empty slice.
    pub fn parse(method: &str, params: &[u8]) -> Result<Self, DecodeError> {
        match Method::parse(method) {
            Some(Method::Elicit) => Elicitation::parse(params).map(Self::Elicitation),
            Some(Method::CreateMessage) => {
                decode_params(params).map(|params| Self::Sampling(Box::new(params)))
            }
            Some(Method::ListRoots) => Ok(Self::Roots),
            _ => Ok(Self::Other { method: method.to_owned() }),
        }
    }

    /// Method name.
    pub fn method(&self) -> &str {
        match self {
            Self::Elicitation(_) => Method::Elicit.as_str(),
            Self::Sampling(_) => Method::CreateMessage.as_str(),
            Self::Roots => Method::ListRoots.as_str(),
            Self::Other { method } => method,
        }
    }
}

/// A repeated request: the parameters of the first request, and the answers to its `input_required` result. Since
/// 2026-07-28.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WithInput<'a, P> {
    /// Parameters of the first request.
    #[serde(flatten)]
    pub params: &'a P,
    /// Answers of this round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<&'a InputResponses>,
    /// `requestState` of the result, returned unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_state: Option<&'a str>,
}

impl<P: Request> Request for WithInput<'_, P> {
    const METHOD: Method = P::METHOD;
    type Result = P::Result;

    fn subject(&self) -> Option<&str> {
        self.params.subject()
    }

    fn arguments(&self) -> Option<Arguments<'_>> {
        self.params.arguments()
    }
}

/// A response to an input request, serialized without envelope.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum InputResponse {
    /// From the user.
    Elicitation(ElicitationResult),
    /// From a model.
    Sampling(SamplingResult),
    /// Roots of the client.
    Roots(RootsResult),
    /// Forwarded from another client, as written.
    Raw(Box<RawValue>),
}

/// Responses of one round, by the server's keys.
#[derive(Debug, Clone, Default)]
pub struct InputResponses(pub Vec<(String, InputResponse)>);

impl Serialize for InputResponses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, response)| (key, response)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<(&[&str], Option<&str>)>) {
        let read = InputRequired::parse(json.as_bytes()).ok();
        let actual = read.as_ref().map(|result| {
            let asked: Vec<_> = result
                .input_requests
                .iter()
                .map(|(key, request)| format!("{key} {}", request.method()))
                .collect();
            (asked, result.request_state.as_deref())
        });
        let expected = expected.map(|(asked, state)| {
            (asked.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(), state)
        });
        assert_eq!(actual, expected, "{json}");
    }

    /// Protocol facts §13.
    #[test]
    fn input_requests_keep_keys_and_order() {
        check(
            r#"{"resultType":"input_required","requestState":"s","inputRequests":{
                "z":{"method":"roots/list"},
                "b":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"u:"}},
                "a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}},
                "c":{"method":"new/thing","params":7}}}"#,
            Some((
                &[
                    "z roots/list",
                    "b elicitation/create",
                    "a sampling/createMessage",
                    "c new/thing",
                ],
                Some("s"),
            )),
        );
    }

    #[test]
    fn input_required_needs_requests_or_state() {
        check(r#"{"requestState":""}"#, Some((&[], Some(""))));
        check(r#"{"inputRequests":{}}"#, Some((&[], None)));
        check(r#"{"resultType":"input_required"}"#, None);
        check(r#"{"requestState":5}"#, None);
        check(r#"{"inputRequests":{"a":{"method":"elicitation/create"}}}"#, None);
    }

    #[test]
    fn request_state_is_returned_unchanged() {
        let state = r#""a\"\\\u0000/é💥 \n=""#;
        let json = format!(r#"{{"requestState":{state}}}"#);
        let read = InputRequired::parse(json.as_bytes()).unwrap().request_state.unwrap();
        let sent: String = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(sent, serde_json::from_str::<String>(state).unwrap());
    }

    #[test]
    fn input_responses_have_no_envelope() {
        let mut answers = InputResponses::default();
        answers.0.push(("q".to_owned(), InputResponse::Elicitation(ElicitationResult::Decline)));
        answers.0.push(("r".to_owned(), InputResponse::Roots(RootsResult::default())));
        let written = serde_json::to_string(&answers).unwrap();
        assert_eq!(written, r#"{"q":{"action":"decline"},"r":{"roots":[]}}"#);
    }
}
