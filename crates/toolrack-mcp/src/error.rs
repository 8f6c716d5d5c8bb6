//! Errors: decode failures and JSON-RPC error codes.

use std::fmt;

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
