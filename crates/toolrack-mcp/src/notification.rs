//! What a server tells unasked.

use serde::Deserialize;

use crate::cancel::Cancelled;
use crate::elicitation::ElicitationComplete;
use crate::error::DecodeError;
use crate::logging::LogMessage;
use crate::method::Method;
use crate::progress::Progress;
use crate::serde_lenient::decode_params;
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
