//! `notifications/progress`: how far a request has come.

use serde::{Deserialize, Serialize};

use crate::progress_token::Token;
use crate::serde_lenient::or_absent;

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

#[cfg(test)]
mod tests {
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
