//! What a server tells unasked.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::elicitation::ElicitationComplete;
use crate::error::DecodeError;
use crate::logging::LogMessage;
use crate::method::Method;
use crate::serde_lenient::{decode_params, or_absent};
use crate::subscriptions_listen::SubscriptionAcknowledged;

/// What a server tells unasked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ServerNotification {
    /// It no longer wants our answer; in the modern era, a subscription is over.
    Cancelled(Cancelled),
    /// How far a request of ours has come.
    Progress(Progress),
    /// Something for the log.
    LogMessage(LogMessage),
    /// A list is another now.
    ListChanged(ListKind),
    /// A resource, or a part of it, is another now.
    ResourceUpdated(ResourceUpdated),
    /// What a page was opened for is done.
    ElicitationComplete(ElicitationComplete),
    /// What a subscription will tell.
    SubscriptionAcknowledged(SubscriptionAcknowledged),
    /// Something we do not know, or have no use for. To be ignored.
    Other,
}

/// The lists whose changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListKind {
    /// Of tools.
    Tools,
    /// Of prompts.
    Prompts,
    /// Of resources, and of their templates.
    Resources,
}

/// `notifications/resources/updated`: a resource is another now.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ResourceUpdated {
    /// Which. May lie below the one that was subscribed to.
    pub uri: String,
}

impl ServerNotification {
    /// Reads a notification. Without parameters, `params` is empty.
    pub fn parse(method: &str, params: &[u8]) -> Result<Self, DecodeError> {
        let Some(method) = Method::parse(method) else {
            return Ok(Self::Other);
        };
        match method {
            Method::Cancelled => decode_params(params).map(Self::Cancelled),
            Method::Progress => decode_params(params).map(Self::Progress),
            Method::LogMessage => decode_params(params).map(Self::LogMessage),
            Method::ToolListChanged => Ok(Self::ListChanged(ListKind::Tools)),
            Method::PromptListChanged => Ok(Self::ListChanged(ListKind::Prompts)),
            Method::ResourceListChanged => Ok(Self::ListChanged(ListKind::Resources)),
            Method::ResourceUpdated => decode_params(params).map(Self::ResourceUpdated),
            Method::ElicitationComplete => decode_params(params).map(Self::ElicitationComplete),
            Method::SubscriptionAcknowledged => {
                decode_params(params).map(Self::SubscriptionAcknowledged)
            }
            _ => Ok(Self::Other),
        }
    }
}

/// The answer to a request is no longer wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// Which request. Only 2025-11-25 lets a peer leave it out, for tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Token>,
    /// Why, for people.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How far a request has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The token that came with the request.
    #[serde(rename = "progressToken")]
    pub token: Token,
    /// How much is done. Only grows.
    pub progress: f64,
    /// How much there is to do, if that is known.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What is being done, since 2025-03-26.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A progress token or a repeated request id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Token {
    /// A JSON integer.
    Integer(i64),
    /// A JSON string.
    Text(String),
}

impl From<i64> for Token {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<String> for Token {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Token {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TokenVisitor;
        impl Visitor<'_> for TokenVisitor {
            type Value = Token;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Token, E> {
                Ok(Token::Integer(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Token, E> {
                i64::try_from(number).map(Token::Integer).map_err(E::custom)
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Token, E> {
                whole(number).map(Token::Integer).ok_or_else(|| E::custom("not an integer"))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Token, E> {
                Ok(Token::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(TokenVisitor)
    }
}

/// Some peers write an integer as `1.0`. Beyond 2^53 a float no longer says which integer it was.
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() != 0.0 || number.abs() > EXACT {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53, checked above")]
    Some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, params: &str, expected: Option<&str>) {
        let read = ServerNotification::parse(method.as_str(), params.as_bytes()).ok();
        let said = read.map(|it| format!("{it:?}"));
        assert_eq!(said.as_deref(), expected, "{method} {params}");
    }

    #[test]
    fn each_notification_is_read() {
        check(Method::ToolListChanged, "", Some("ListChanged(Tools)"));
        check(Method::PromptListChanged, r#"{"_meta":{}}"#, Some("ListChanged(Prompts)"));
        check(Method::ResourceListChanged, "7", Some("ListChanged(Resources)"));
        check(
            Method::ResourceUpdated,
            r#"{"uri":"a:","title":"x"}"#,
            Some(r#"ResourceUpdated(ResourceUpdated { uri: "a:" })"#),
        );
        check(
            Method::ElicitationComplete,
            r#"{"elicitationId":"e"}"#,
            Some(r#"ElicitationComplete(ElicitationComplete { elicitation_id: "e" })"#),
        );
        check(
            Method::Cancelled,
            r#"{"requestId":5}"#,
            Some("Cancelled(Cancelled { request_id: Some(Integer(5)), reason: None })"),
        );
    }

    #[test]
    fn what_we_cannot_read_is_a_failure_and_what_we_do_not_know_is_not() {
        check(Method::Progress, "", None);
        check(Method::LogMessage, "[]", None);
        check(Method::TaskStatus, "{}", Some("Other"));
        check(Method::ListTools, "{}", Some("Other"));
        let unknown = ServerNotification::parse("notifications/new", b"").unwrap();
        assert!(matches!(unknown, ServerNotification::Other));
    }
}

#[cfg(test)]
mod cancel_tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, request_id: Option<Token>, reason: Option<&str>) {
        let read: Cancelled = serde_json::from_str(json).unwrap();
        assert_eq!(read, Cancelled { request_id, reason: reason.map(str::to_owned) });
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
    }

    #[test]
    fn the_id_keeps_its_type() {
        check(r#"{"requestId":1}"#, Some(Token::from(1)), None);
        check(r#"{"requestId":"1","reason":"late"}"#, Some(Token::from("1")), Some("late"));
        check("{}", None, None);
    }
}

#[cfg(test)]
mod progress_tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<Progress>) {
        assert_eq!(serde_json::from_str(json).ok(), expected, "{json}");
    }

    #[test]
    fn numbers_may_be_whole_or_not() {
        let token = Token::from("t");
        let (progress, total, message) = (0.5, Some(2.0), Some("half".to_owned()));
        check(
            r#"{"progressToken":"t","progress":0.5,"total":2,"message":"half","x":1}"#,
            Some(Progress { token, progress, total, message }),
        );
        let bare = Progress { token: Token::from(7), progress: 3.0, total: None, message: None };
        check(r#"{"progressToken":7,"progress":3}"#, Some(bare.clone()));
        check(r#"{"progressToken":7,"progress":3,"total":"all","message":null}"#, Some(bare));
        check(r#"{"progress":3}"#, None);
        check(r#"{"progressToken":7,"progress":"3"}"#, None);
    }
}

#[cfg(test)]
mod progress_token_tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<Token>) {
        assert_eq!(serde_json::from_str(json).ok(), expected, "{json}");
    }

    #[test]
    fn tokens_keep_their_type() {
        check("1", Some(Token::Integer(1)));
        check("-7", Some(Token::Integer(-7)));
        check("\"1\"", Some(Token::Text("1".to_owned())));
        check("1.0", Some(Token::Integer(1)));
        check("1.5", None);
        check("1e300", None);
        check("18446744073709551615", None);
        check("null", None);
        check("true", None);
    }

    #[test]
    fn tokens_are_written_as_they_came() {
        let tokens = [Token::Integer(-7), Token::from("a\"b")];
        assert_eq!(serde_json::to_string(&tokens).unwrap(), r#"[-7,"a\"b"]"#);
    }
}
