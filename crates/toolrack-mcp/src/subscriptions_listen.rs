//! `subscriptions/listen`: change notifications of the modern era.

use serde::{Deserialize, Serialize};

use crate::serde_lenient::{is_off, or_default};

/// Parameters of `subscriptions/listen`. The filter cannot change later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListenParams<'a> {
    /// Requested notifications.
    pub notifications: &'a SubscriptionFilter,
}

/// Filter: requested by the client, granted by the server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "three independent switches, as the spec has them"
)]
pub struct SubscriptionFilter {
    /// The list of tools changed.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_off")]
    pub tools_list_changed: bool,
    /// The list of prompts changed.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_off")]
    pub prompts_list_changed: bool,
    /// The list of resources changed.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_off")]
    pub resources_list_changed: bool,
    /// One of these resources changed.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_subscriptions: Vec<String>,
}

impl SubscriptionFilter {
    /// The part of `self` that was not granted.
    #[must_use]
    pub fn without(&self, granted: &Self) -> Self {
        let missing = |uri: &&String| !granted.resource_subscriptions.contains(uri);
        Self {
            tools_list_changed: self.tools_list_changed && !granted.tools_list_changed,
            prompts_list_changed: self.prompts_list_changed && !granted.prompts_list_changed,
            resources_list_changed: self.resources_list_changed && !granted.resources_list_changed,
            resource_subscriptions: self
                .resource_subscriptions
                .iter()
                .filter(missing)
                .cloned()
                .collect(),
        }
    }
}

/// `notifications/subscriptions/acknowledged`: the granted filter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SubscriptionAcknowledged {
    /// The granted part of our filter.
    #[serde(default, deserialize_with = "or_default")]
    pub notifications: SubscriptionFilter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filter: &SubscriptionFilter, expected: &str) {
        let params = ListenParams { notifications: filter };
        assert_eq!(serde_json::to_string(&params).unwrap(), expected);
    }

    fn asked() -> SubscriptionFilter {
        SubscriptionFilter {
            tools_list_changed: true,
            resource_subscriptions: vec!["a:".to_owned(), "b:".to_owned()],
            ..SubscriptionFilter::default()
        }
    }

    #[test]
    fn empty_filter_is_sent() {
        check(&SubscriptionFilter::default(), r#"{"notifications":{}}"#);
        check(
            &asked(),
            r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:","b:"]}}"#,
        );
    }

    #[test]
    fn missing_grants_are_computed() {
        let json =
            r#"{"notifications":{"resourceSubscriptions":["b:"],"promptsListChanged":null}}"#;
        let granted: SubscriptionAcknowledged = serde_json::from_str(json).unwrap();
        let missing = SubscriptionFilter {
            tools_list_changed: true,
            resource_subscriptions: vec!["a:".to_owned()],
            ..SubscriptionFilter::default()
        };
        assert_eq!(asked().without(&granted.notifications), missing);
    }
}
