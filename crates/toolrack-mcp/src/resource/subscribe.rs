//! `resources/subscribe` and `resources/unsubscribe`: to be told of changes. Legacy era only.

use serde::Serialize;

/// Asks to be told when a resource changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SubscribeParams<'a> {
    /// The URI as the server wrote it.
    pub uri: &'a str,
}

/// Asks to be told no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UnsubscribeParams<'a> {
    /// The URI as the server wrote it.
    pub uri: &'a str,
}
