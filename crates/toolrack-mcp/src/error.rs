//! Errors: decode failures, JSON-RPC error codes and typed `error.data`.

use std::fmt;

use serde::Deserialize;

use crate::client_capabilities::ClientCapabilities;
use crate::elicitation::UrlElicitation;
use crate::serde_lenient::{decode, or_absent};

/// A payload that does not match the protocol.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Invalid JSON, or another shape than the protocol defines.
    #[error("invalid payload")]
    Shape(#[from] serde_json::Error),
    /// A required member is missing.
    #[error("missing member `{member}`")]
    Missing {
        /// Name on the wire.
        member: &'static str,
    },
}

/// Code of a JSON-RPC error. Any number is valid; known codes have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i64);

macro_rules! codes {
    ($($name:ident $code:literal $text:literal $doc:literal;)*) => {
        impl ErrorCode {
            $(#[doc = $doc] pub const $name: Self = Self($code);)*

            /// Name in the protocol, for a known code.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($code => Some($text),)* _ => None }
            }
        }
    };
}

codes! {
    PARSE_ERROR -32700 "parse error" "The message was no JSON.";
    INVALID_REQUEST -32600 "invalid request" "The message was no request.";
    METHOD_NOT_FOUND -32601 "method not found" "The peer does not have the method.";
    INVALID_PARAMS -32602 "invalid params"
        "The parameters do not fit: an unknown tool or prompt, a bad cursor, a missing member.";
    INTERNAL_ERROR -32603 "internal error" "The peer failed.";
    RESOURCE_NOT_FOUND -32002 "resource not found" "There is no such resource. Legacy era only.";
    HEADER_MISMATCH -32020 "header mismatch" "Headers and body disagree. Since 2026-07-28.";
    MISSING_CLIENT_CAPABILITY -32021 "missing required client capability"
        "The server needs something that the request did not offer. Since 2026-07-28.";
    UNSUPPORTED_VERSION -32022 "unsupported protocol version"
        "The server does not speak the revision of the request. Since 2026-07-28.";
    URL_ELICITATION_REQUIRED -32042 "URL elicitation required"
        "The user must open a page first. Only in 2025-11-25.";
    USER_REJECTED -1 "user rejected sampling request"
        "What we answer when the user does not want to ask a model. Legacy era only.";
}

impl ErrorCode {
    /// Whether only modern servers send this code (spec 2026-07-28, versioning).
    pub fn is_modern_only(self) -> bool {
        matches!(
            self,
            Self::HEADER_MISMATCH | Self::MISSING_CLIENT_CAPABILITY | Self::UNSUPPORTED_VERSION
        )
    }

    /// Whether the code may mean a missing resource. Modern servers use a general code.
    pub fn may_be_missing_resource(self) -> bool {
        matches!(self, Self::RESOURCE_NOT_FOUND | Self::INVALID_PARAMS)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => self.0.fmt(f),
        }
    }
}

/// Typed `data` of an error.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ErrorData {
    /// The server supports other revisions. Legacy servers send this as "invalid params" to
    /// `initialize`.
    UnsupportedVersion(UnsupportedVersion),
    /// The server needs a capability that the request did not declare.
    MissingCapability(MissingCapability),
    /// The user must open these URLs; then the request can be sent again.
    UrlElicitationRequired(Vec<UrlElicitation>),
}

/// Revisions that a server supports, as written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct UnsupportedVersion {
    /// Supported revisions.
    pub supported: Vec<String>,
    /// Requested revision.
    #[serde(default, deserialize_with = "or_absent")]
    pub requested: Option<String>,
}

/// Capabilities that a server needs.
#[derive(Debug, Clone, Deserialize)]
pub struct MissingCapability {
    /// The required capabilities.
    #[serde(rename = "requiredCapabilities")]
    pub required: ClientCapabilities,
}

impl ErrorData {
    /// Reads `data` of an error, if its code defines it.
    pub fn from_code(code: ErrorCode, data: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct UrlElicitations {
            elicitations: Vec<UrlElicitation>,
        }
        match code {
            ErrorCode::UNSUPPORTED_VERSION | ErrorCode::INVALID_PARAMS => {
                decode(data).ok().map(Self::UnsupportedVersion)
            }
            ErrorCode::MISSING_CLIENT_CAPABILITY => decode(data).ok().map(Self::MissingCapability),
            ErrorCode::URL_ELICITATION_REQUIRED => decode(data)
                .ok()
                .map(|pages: UrlElicitations| Self::UrlElicitationRequired(pages.elicitations)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod error_code_tests {
    use super::*;

    /// Protocol facts §5: only these codes prove a modern server.
    #[test]
    fn three_error_codes_are_modern_only() {
        let proof: Vec<i64> =
            (-33000..0).filter(|&code| ErrorCode(code).is_modern_only()).collect();
        assert_eq!(proof, [-32022, -32021, -32020]);
    }

    /// The first five belong to JSON-RPC 2.0.
    #[test]
    fn error_codes_display_their_name() {
        let table = [
            (ErrorCode::PARSE_ERROR, "-32700 (parse error)"),
            (ErrorCode::INVALID_REQUEST, "-32600 (invalid request)"),
            (ErrorCode::METHOD_NOT_FOUND, "-32601 (method not found)"),
            (ErrorCode::INVALID_PARAMS, "-32602 (invalid params)"),
            (ErrorCode::INTERNAL_ERROR, "-32603 (internal error)"),
            (ErrorCode(-32000), "-32000"),
        ];
        for (code, shown) in table {
            assert_eq!(code.to_string(), shown);
        }
    }
}

#[cfg(test)]
mod error_data_tests {
    use super::*;

    #[track_caller]
    fn check(code: ErrorCode, data: &str, expected: Option<&str>) {
        let actual = ErrorData::from_code(code, data.as_bytes()).map(|data| match data {
            ErrorData::UnsupportedVersion(UnsupportedVersion { supported, requested }) => {
                format!("speaks {supported:?}, asked {requested:?}")
            }
            ErrorData::MissingCapability(MissingCapability { required }) => {
                format!(
                    "needs elicitation {:?}",
                    required.elicitation.map(|elicitation| elicitation.url)
                )
            }
            ErrorData::UrlElicitationRequired(pages) => {
                let urls: Vec<_> = pages.into_iter().map(|page| page.url).collect();
                format!("open {urls:?}")
            }
        });
        assert_eq!(actual.as_deref(), expected, "{code} {data}");
    }

    /// Protocol facts §2.1.
    #[test]
    fn error_data_is_typed_by_code() {
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
    fn unreadable_error_data_is_none() {
        check(ErrorCode::UNSUPPORTED_VERSION, "", None);
        check(ErrorCode::UNSUPPORTED_VERSION, "null", None);
        check(ErrorCode::INVALID_PARAMS, r#"{"field":"name"}"#, None);
        check(ErrorCode::URL_ELICITATION_REQUIRED, r#"{"elicitations":7}"#, None);
    }
}
