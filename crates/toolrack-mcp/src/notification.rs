//! Notifications: server notifications, `cancelled`, `progress` and the progress token.

use serde::{Deserialize, Serialize};

use crate::elicitation::ElicitationComplete;
use crate::error::DecodeError;
use crate::logging::LogMessage;
use crate::method::Method;
use crate::serde_lenient::{as_integer, decode_params, or_absent};
use crate::subscriptions_listen::SubscriptionAcknowledged;

/// A notification from a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ServerNotification {
    /// Cancels a request of the server; in the modern era, ends a subscription.
    Cancelled(Cancelled),
    /// Progress of a request.
    Progress(Progress),
    /// A log message.
    LogMessage(LogMessage),
    /// A list changed.
    ListChanged(ListKind),
    /// A resource changed.
    ResourceUpdated(ResourceUpdated),
    /// The user finished at a URL.
    ElicitationComplete(ElicitationComplete),
    /// The acknowledged subscription filter.
    SubscriptionAcknowledged(SubscriptionAcknowledged),
    /// An unknown notification, to be ignored.
    Other,
}

/// Lists with change notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListKind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources and resource templates.
    Resources,
}

/// `notifications/resources/updated`: a resource changed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ResourceUpdated {
    /// URI of the resource. May be below the subscribed URI.
    pub uri: String,
}

impl ServerNotification {
    /// Reads a notification. Absent parameters are an empty slice.
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

/// `notifications/cancelled`: the sender no longer wants the response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// Id of the request. Only 2025-11-25 allows its absence, for tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<ProgressToken>,
    /// Reason, for display.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `notifications/progress`: progress of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Progress token of the request.
    #[serde(rename = "progressToken")]
    pub token: ProgressToken,
    /// Progress so far; only increases.
    pub progress: f64,
    /// Total, if known.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Description of the present step, since 2025-03-26.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Progress token, or a request id in a notification: both are a string or an integer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged, try_from = "TokenMember")]
pub enum ProgressToken {
    /// A JSON integer.
    Integer(i64),
    /// A JSON string.
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a string or an integer")]
enum TokenMember {
    Integer(i64),
    Float(f64),
    Text(String),
}

impl TryFrom<TokenMember> for ProgressToken {
    type Error = &'static str;

    fn try_from(member: TokenMember) -> Result<Self, Self::Error> {
        match member {
            TokenMember::Integer(number) => Ok(Self::Integer(number)),
            TokenMember::Float(number) => {
                as_integer(number).map(Self::Integer).ok_or("not an integer")
            }
            TokenMember::Text(text) => Ok(Self::Text(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, params: &str, expected: Option<&str>) {
        let read = ServerNotification::parse(method.as_str(), params.as_bytes()).ok();
        let actual = read.map(|notification| format!("{notification:?}"));
        assert_eq!(actual.as_deref(), expected, "{method} {params}");
    }

    #[test]
    fn every_notification_is_parsed() {
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
    fn malformed_notifications_fail_and_unknown_ones_do_not() {
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
    fn check(json: &str, request_id: Option<ProgressToken>, reason: Option<&str>) {
        let read: Cancelled = serde_json::from_str(json).unwrap();
        assert_eq!(read, Cancelled { request_id, reason: reason.map(str::to_owned) });
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
    }

    #[test]
    fn request_id_keeps_its_type() {
        check(r#"{"requestId":1}"#, Some(ProgressToken::Integer(1)), None);
        check(
            r#"{"requestId":"1","reason":"late"}"#,
            Some(ProgressToken::Text("1".to_owned())),
            Some("late"),
        );
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
    fn progress_may_be_integer_or_float() {
        let token = ProgressToken::Text("t".to_owned());
        let (progress, total, message) = (0.5, Some(2.0), Some("half".to_owned()));
        check(
            r#"{"progressToken":"t","progress":0.5,"total":2,"message":"half","x":1}"#,
            Some(Progress { token, progress, total, message }),
        );
        let bare = Progress {
            token: ProgressToken::Integer(7),
            progress: 3.0,
            total: None,
            message: None,
        };
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
    fn check(json: &str, expected: Option<ProgressToken>) {
        assert_eq!(serde_json::from_str(json).ok(), expected, "{json}");
    }

    #[test]
    fn progress_tokens_keep_their_type() {
        check("1", Some(ProgressToken::Integer(1)));
        check("-7", Some(ProgressToken::Integer(-7)));
        check("\"1\"", Some(ProgressToken::Text("1".to_owned())));
        check("1.0", Some(ProgressToken::Integer(1)));
        check("1.5", None);
        check("1e300", None);
        check("18446744073709551615", None);
        check("null", None);
        check("true", None);
    }

    #[test]
    fn progress_tokens_round_trip() {
        let tokens = [ProgressToken::Integer(-7), ProgressToken::Text("a\"b".to_owned())];
        assert_eq!(serde_json::to_string(&tokens).unwrap(), r#"[-7,"a\"b"]"#);
    }
}
