//! The one way in which reading a payload can fail.

use std::fmt;

use serde::Deserialize;

use crate::client_capabilities::ClientCapabilities;
use crate::elicitation::UrlElicitation;
use crate::serde_lenient::{decode, or_absent};

/// A payload that does not fit the protocol.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not JSON, or not of the shape the protocol gives it.
    #[error("the payload does not fit the protocol")]
    Shape(#[from] serde_json::Error),
    /// A member without which the payload means nothing.
    #[error("the payload has no `{member}`")]
    Missing {
        /// Its name on the wire.
        member: &'static str,
    },
}

/// The code of a JSON-RPC error. Any number is one; those with a meaning have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i64);

macro_rules! codes {
    ($($name:ident $code:literal $text:literal $doc:literal;)*) => {
        impl ErrorCode {
            $(#[doc = $doc] pub const $name: Self = Self($code);)*

            /// What the protocol calls it, if it has a meaning there.
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
    /// Whether only a modern server answers with it (spec 2026-07-28, versioning).
    pub fn proves_modern(self) -> bool {
        matches!(
            self,
            Self::HEADER_MISMATCH | Self::MISSING_CLIENT_CAPABILITY | Self::UNSUPPORTED_VERSION
        )
    }

    /// Whether it may mean that a resource does not exist. Modern servers use a general code.
    pub fn may_mean_no_resource(self) -> bool {
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
mod error_code_tests {
    use super::*;

    /// Protocol facts §5: nothing else proves it.
    #[test]
    fn three_codes_prove_a_modern_server() {
        let proof: Vec<i64> = (-33000..0).filter(|&code| ErrorCode(code).proves_modern()).collect();
        assert_eq!(proof, [-32022, -32021, -32020]);
    }

    /// The first five are those of JSON-RPC 2.0 itself.
    #[test]
    fn codes_are_shown_with_their_meaning() {
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
