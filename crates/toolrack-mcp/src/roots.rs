//! Roots: the directories that we tell servers about.
//!
//! **Invariant:** a [`Root`] always has a `file://` URI.

use serde::Serialize;

/// A directory that a server may regard as its place of work. No access control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Root {
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// Why a URI cannot be a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RootFault {
    /// Its scheme is not `file://`.
    #[error("a root must be a `file://` URI")]
    Scheme,
    /// It has characters that a URI cannot have; they must be percent-encoded.
    #[error("a root's URI must not hold spaces, control characters or non-ASCII characters")]
    Characters,
}

impl Root {
    /// Takes a URI that names a local directory.
    pub fn new(uri: String, name: Option<String>) -> Result<Self, RootFault> {
        if !uri.starts_with("file://") {
            return Err(RootFault::Scheme);
        }
        if !uri.bytes().all(|it| it.is_ascii_graphic()) {
            return Err(RootFault::Characters);
        }
        Ok(Self { uri, name })
    }

    /// Where it is.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The name for people.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

/// The answer to `roots/list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RootsResult {
    /// All roots.
    pub roots: Vec<Root>,
}

/// `notifications/roots/list_changed`: the roots are others now. Legacy era only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RootsListChanged {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uri: &str, expected: Result<&str, RootFault>) {
        let root = Root::new(uri.to_owned(), None);
        assert_eq!(root.as_ref().map(Root::uri), expected.as_ref().copied());
    }

    #[test]
    fn only_files_are_roots() {
        check("file:///home/a%20b", Ok("file:///home/a%20b"));
        check("https://example.org", Err(RootFault::Scheme));
        check("/home", Err(RootFault::Scheme));
        check("file:/home", Err(RootFault::Scheme));
        check("file:///a b", Err(RootFault::Characters));
        check("file:///\n", Err(RootFault::Characters));
        check("file:///é", Err(RootFault::Characters));
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
