//! Roots: directories of the client.
//!
//! **Invariant:** a [`Root`] always has a `file://` URI.

use serde::Serialize;

/// A directory of the client. Not access control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Root {
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// Why a URI cannot be a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// The scheme is not `file://`.
    #[error("a root must be a `file://` URI")]
    Scheme,
    /// Characters that must be percent-encoded.
    #[error("a root's URI must not hold spaces, control characters or non-ASCII characters")]
    Characters,
}

impl Root {
    /// Checks and wraps a URI of a local directory.
    pub fn new(uri: String, name: Option<String>) -> Result<Self, RootError> {
        if !uri.starts_with("file://") {
            return Err(RootError::Scheme);
        }
        if !uri.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RootError::Characters);
        }
        Ok(Self { uri, name })
    }
}

/// Result of `roots/list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RootsResult {
    /// All roots.
    pub roots: Vec<Root>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uri: &str, expected: Result<&str, RootError>) {
        let root = Root::new(uri.to_owned(), None);
        assert_eq!(root.as_ref().map(|root| root.uri.as_str()), expected.as_ref().copied());
    }

    #[test]
    fn roots_are_file_uris() {
        check("file:///home/a%20b", Ok("file:///home/a%20b"));
        check("https://example.org", Err(RootError::Scheme));
        check("/home", Err(RootError::Scheme));
        check("file:/home", Err(RootError::Scheme));
        check("file:///a b", Err(RootError::Characters));
        check("file:///\n", Err(RootError::Characters));
        check("file:///é", Err(RootError::Characters));
    }

    #[test]
    fn roots_are_written_with_their_names() {
        let name = Some("work".to_owned());
        let roots = vec![
            Root::new("file:///a".to_owned(), name).unwrap(),
            Root::new("file:///b".to_owned(), None).unwrap(),
        ];
        assert_eq!(
            serde_json::to_string(&RootsResult { roots }).unwrap(),
            r#"{"roots":[{"uri":"file:///a","name":"work"},{"uri":"file:///b"}]}"#
        );
    }
}
