//! What some errors say beyond their message.

use serde::Deserialize;

use crate::client_capabilities::ClientCapabilities;
use crate::elicitation::UrlElicitation;
use crate::error_code::ErrorCode;
use crate::serde_lenient::{decode, or_absent};

/// What an error says beyond its message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ErrorDetail {
    /// The server speaks other revisions. Also of legacy servers, that say "invalid params" to
    /// `initialize`.
    UnsupportedVersion(UnsupportedVersion),
    /// The server needs something that the request did not offer.
    MissingCapability(MissingCapability),
    /// The user must open these pages; then the request can be repeated.
    UrlElicitationRequired(Vec<UrlElicitation>),
}

/// Which revisions a server speaks, as it wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct UnsupportedVersion {
    /// What it speaks.
    pub supported: Vec<String>,
    /// What it was asked to speak.
    #[serde(default, deserialize_with = "or_absent")]
    pub requested: Option<String>,
}

/// What a server needs and was not offered.
#[derive(Debug, Clone, Deserialize)]
pub struct MissingCapability {
    /// The least that would do.
    #[serde(rename = "requiredCapabilities")]
    pub required: ClientCapabilities,
}

impl ErrorDetail {
    /// Reads the `data` of an error, as far as its code gives it a meaning.
    pub fn read(code: ErrorCode, data: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Pages {
            elicitations: Vec<UrlElicitation>,
        }
        match code {
            ErrorCode::UNSUPPORTED_VERSION | ErrorCode::INVALID_PARAMS => {
                decode(data).ok().map(Self::UnsupportedVersion)
            }
            ErrorCode::MISSING_CLIENT_CAPABILITY => decode(data).ok().map(Self::MissingCapability),
            ErrorCode::URL_ELICITATION_REQUIRED => {
                decode(data).ok().map(|it: Pages| Self::UrlElicitationRequired(it.elicitations))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: ErrorCode, data: &str, expected: Option<&str>) {
        let said = ErrorDetail::read(code, data.as_bytes()).map(|it| match it {
            ErrorDetail::UnsupportedVersion(UnsupportedVersion { supported, requested }) => {
                format!("speaks {supported:?}, asked {requested:?}")
            }
            ErrorDetail::MissingCapability(MissingCapability { required }) => {
                format!("needs elicitation {:?}", required.elicitation.map(|it| it.url))
            }
            ErrorDetail::UrlElicitationRequired(pages) => {
                let urls: Vec<_> = pages.into_iter().map(|it| it.url).collect();
                format!("open {urls:?}")
            }
        });
        assert_eq!(said.as_deref(), expected, "{code} {data}");
    }

    /// Protocol facts §2.1.
    #[test]
    fn details_are_read_by_their_code() {
        let versions = r#"{"supported":["2026-07-28"],"requested":"2027-01-01"}"#;
        let speaks = Some(r#"speaks ["2026-07-28"], asked Some("2027-01-01")"#);
        check(ErrorCode::UNSUPPORTED_VERSION, versions, speaks);
        check(ErrorCode::INVALID_PARAMS, versions, speaks);
        check(ErrorCode::INTERNAL_ERROR, versions, None);
        check(
            ErrorCode::INVALID_PARAMS,
            r#"{"supported":["2024-11-05"]}"#,
            Some(r#"speaks ["2024-11-05"], asked None"#),
        );
        check(
            ErrorCode::MISSING_CLIENT_CAPABILITY,
            r#"{"requiredCapabilities":{"elicitation":{"url":{}}}}"#,
            Some("needs elicitation Some(true)"),
        );
        check(
            ErrorCode::URL_ELICITATION_REQUIRED,
            r#"{"elicitations":[{"mode":"url","elicitationId":"1","url":"u:","message":"m"}]}"#,
            Some(r#"open ["u:"]"#),
        );
    }

    #[test]
    fn unreadable_details_are_none() {
        check(ErrorCode::UNSUPPORTED_VERSION, "", None);
        check(ErrorCode::UNSUPPORTED_VERSION, "null", None);
        check(ErrorCode::INVALID_PARAMS, r#"{"field":"name"}"#, None);
        check(ErrorCode::URL_ELICITATION_REQUIRED, r#"{"elicitations":7}"#, None);
    }
}
