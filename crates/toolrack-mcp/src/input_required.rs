//! Questions a server asks before it answers, and our answers to them.
//!
//! In the modern era the questions come in a result of kind `input_required` and the answers go
//! with the repeated request; in the legacy era each is a request of its own with the same content.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::elicitation::{Elicitation, ElicitationAnswer};
use crate::error::DecodeError;
use crate::method::Method;
use crate::roots::RootsResult;
use crate::sampling::{SamplingParams, SamplingResult};
use crate::serde_lenient::{Ordered, Text, decode};

/// A result that asks before it answers.
#[derive(Debug, Clone)]
pub struct InputRequired {
    /// The questions by the server's keys, in its order. None at all means: just ask again later.
    pub input_requests: Vec<(String, InputRequest)>,
    /// What the server wants back unchanged. If absent, nothing may be sent in its place.
    pub request_state: Option<String>,
}

/// One question.
#[derive(Debug, Clone)]
pub enum InputRequest {
    /// For the user.
    Elicitation(Elicitation),
    /// For a model.
    Sampling(Box<SamplingParams>),
    /// For the directories we work in.
    Roots,
    /// Something else, which is not to be guessed at.
    Other {
        /// What the server calls it.
        method: String,
    },
}

/// Questions as they are written, by the server's keys.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Questions<'a>(#[serde(borrow)] Ordered<Question<'a>>);

#[derive(Debug, Deserialize)]
struct Question<'a> {
    #[serde(borrow)]
    method: Text<'a>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

impl Questions<'_> {
    pub(crate) fn read(self) -> Result<Vec<(String, InputRequest)>, DecodeError> {
        let read = |(key, question): (String, Question<'_>)| {
            let params = question.params.map_or(&b""[..], |it| it.get().as_bytes());
            InputRequest::parse(&question.method.0, params).map(|it| (key, it))
        };
        self.0.0.into_iter().map(read).collect()
    }
}

impl InputRequired {
    /// Reads a result of kind `input_required`.
    pub fn parse(raw: &[u8]) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members<'a> {
            #[serde(borrow)]
            input_requests: Option<Questions<'a>>,
            request_state: Option<String>,
        }
        let Members { input_requests, request_state } = decode(raw)?;
        if input_requests.is_none() && request_state.is_none() {
            return Err(DecodeError::Missing { member: "inputRequests" });
        }
        let input_requests = input_requests.map(Questions::read).transpose()?.unwrap_or_default();
        Ok(Self { input_requests, request_state })
    }
}

impl InputRequest {
    /// Reads one question. Without parameters, `params` is empty.
    pub fn parse(method: &str, params: &[u8]) -> Result<Self, DecodeError> {
        match Method::parse(method) {
            Some(Method::Elicit) => Elicitation::parse(params).map(Self::Elicitation),
            Some(Method::CreateMessage) => {
                SamplingParams::parse(params).map(|it| Self::Sampling(Box::new(it)))
            }
            Some(Method::ListRoots) => Ok(Self::Roots),
            _ => Ok(Self::Other { method: method.to_owned() }),
        }
    }

    /// What the server calls it.
    pub fn method(&self) -> &str {
        match self {
            Self::Elicitation(_) => Method::Elicit.as_str(),
            Self::Sampling(_) => Method::CreateMessage.as_str(),
            Self::Roots => Method::ListRoots.as_str(),
            Self::Other { method } => method,
        }
    }
}

/// One answer, written bare.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum InputResponse {
    /// Of the user.
    Elicitation(ElicitationAnswer),
    /// Of a model.
    Sampling(SamplingResult),
    /// The directories we work in.
    Roots(RootsResult),
    /// Of somebody else, passed on as written.
    Raw(Box<RawValue>),
}

/// The answers of one round, by the server's keys.
#[derive(Debug, Clone, Default)]
pub struct InputResponses(Vec<(String, InputResponse)>);

impl InputResponses {
    /// Adds the answer to the question with this key.
    pub fn push(&mut self, key: String, response: InputResponse) {
        self.0.push((key, response));
    }

    /// Whether there is no answer yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, InputResponse)> for InputResponses {
    fn from_iter<I: IntoIterator<Item = (String, InputResponse)>>(answers: I) -> Self {
        Self(answers.into_iter().collect())
    }
}

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
        let said = read.as_ref().map(|it| {
            let asked: Vec<_> = it
                .input_requests
                .iter()
                .map(|(key, request)| format!("{key} {}", request.method()))
                .collect();
            (asked, it.request_state.as_deref())
        });
        let expected = expected.map(|(asked, state)| {
            (asked.iter().map(|&it| it.to_owned()).collect::<Vec<_>>(), state)
        });
        assert_eq!(said, expected, "{json}");
    }

    /// Protocol facts §13.
    #[test]
    fn questions_keep_their_keys_and_order() {
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
    fn either_questions_or_a_state_must_be_there() {
        check(r#"{"requestState":""}"#, Some((&[], Some(""))));
        check(r#"{"inputRequests":{}}"#, Some((&[], None)));
        check(r#"{"resultType":"input_required"}"#, None);
        check(r#"{"requestState":5}"#, None);
        check(r#"{"inputRequests":{"a":{"method":"elicitation/create"}}}"#, None);
    }

    #[test]
    fn the_state_comes_back_as_it_was() {
        let state = r#""a\"\\\u0000/é💥 \n=""#;
        let json = format!(r#"{{"requestState":{state}}}"#);
        let read = InputRequired::parse(json.as_bytes()).unwrap().request_state.unwrap();
        let sent: String = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(sent, serde_json::from_str::<String>(state).unwrap());
    }

    #[test]
    fn answers_are_bare() {
        let mut answers = InputResponses::default();
        answers.push("q".to_owned(), InputResponse::Elicitation(ElicitationAnswer::Decline));
        answers.push("r".to_owned(), InputResponse::Roots(RootsResult::default()));
        let written = serde_json::to_string(&answers).unwrap();
        assert_eq!(written, r#"{"q":{"action":"decline"},"r":{"roots":[]}}"#);
    }
}
