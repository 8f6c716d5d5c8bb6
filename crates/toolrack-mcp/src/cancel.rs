//! `notifications/cancelled`: the answer to a request is no longer wanted.

use serde::{Deserialize, Serialize};

use crate::progress_token::Token;
use crate::serde_lenient::or_absent;

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

#[cfg(test)]
mod tests {
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
