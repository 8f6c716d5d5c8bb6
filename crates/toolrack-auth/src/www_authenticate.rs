//! `WWW-Authenticate` parser (RFC 9110 §11).
//!
//! Several challenges may share one header, and a response may have several headers; only `Bearer` is used.

/// The `Bearer` challenges of one response, merged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BearerChallenge {
    /// URL of the protected resource metadata.
    pub(crate) resource_metadata: Option<String>,
    /// The scopes that are needed, if named.
    pub(crate) scopes: Option<Vec<String>>,
    /// `invalid_token`, `insufficient_scope`, …
    pub(crate) error: Option<String>,
}

impl BearerChallenge {
    /// Parses all header values. For each parameter, the first `Bearer` challenge that has it wins.
    pub(crate) fn from_headers(values: &[String]) -> Self {
        let mut challenge = Self::default();
        for value in values {
            challenge.add_header(value);
        }
        // An empty list names nothing, and requesting no scope would not help.
        challenge.scopes = challenge.scopes.filter(|scopes| !scopes.is_empty());
        challenge
    }

    /// Adds the parameters of the `Bearer` challenges in a header value. Skips malformed parts.
    fn add_header(&mut self, mut rest: &str) {
        let mut is_bearer = false;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let (word, after) = token(rest);
            if word.is_empty() {
                // Neither a name nor the end: skip one character, so that the loop terminates.
                let mut characters = rest.chars();
                if characters.next().is_none() {
                    return;
                }
                rest = characters.as_str();
                continue;
            }
            // The grammar separates challenges and parameters by commas alike: only `=` tells them
            // apart.
            let Some((value, after)) = parameter(after) else {
                is_bearer = word.eq_ignore_ascii_case("bearer");
                rest = after;
                continue;
            };
            rest = after;
            let is_parameter = |name| is_bearer && word.eq_ignore_ascii_case(name);
            if is_parameter("resource_metadata") {
                self.resource_metadata.get_or_insert(value);
            } else if is_parameter("error") {
                self.error.get_or_insert(value);
            } else if is_parameter("scope") {
                self.scopes.get_or_insert_with(|| split_scopes(&value));
            }
        }
    }

    pub(crate) fn is_insufficient_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// The scopes of a parameter `scope`.
pub(crate) fn split_scopes(scope: &str) -> Vec<String> {
    scope.split_ascii_whitespace().map(str::to_owned).collect()
}

/// Parses `=` and a parameter value at the start of `text`.
fn parameter(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start_matches([' ', '\t']).strip_prefix('=')?;
    let text = text.trim_start_matches([' ', '\t']);
    match text.strip_prefix('"') {
        Some(quoted) => Some(unquote(quoted)),
        None => {
            // An unquoted value ends at a comma or a space. URLs are not tokens, but some servers send them
            // unquoted.
            let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
            let (content, after) = text.split_at(end);
            Some((content.to_owned(), after))
        }
    }
}

/// Splits at the closing quote.
fn unquote(text: &str) -> (String, &str) {
    let mut content = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => content.extend(characters.next()),
            plain => content.push(plain),
        }
    }
    (content, characters.as_str())
}

/// Splits after the longest prefix that is an RFC 9110 token.
fn token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let end = text.find(|c| !is_token(c)).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn challenge(
        metadata: Option<&str>,
        scopes: Option<&str>,
        error: Option<&str>,
    ) -> BearerChallenge {
        BearerChallenge {
            resource_metadata: metadata.map(str::to_owned),
            scopes: scopes.map(|list| list.split(' ').map(str::to_owned).collect()),
            error: error.map(str::to_owned),
        }
    }

    #[track_caller]
    fn check(values: &[&str], expected: BearerChallenge) {
        let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
        assert_eq!(BearerChallenge::from_headers(&values), expected);
    }

    #[test]
    fn challenges_are_parsed_in_every_notation() {
        check(&[], BearerChallenge::default());
        check(&["Bearer"], BearerChallenge::default());
        check(
            &[r#"Bearer resource_metadata="https://h/m", scope="a b""#],
            challenge(Some("https://h/m"), Some("a b"), None),
        );
        check(
            &["bEaReR Scope=a , resource_metadata=https://h/m?x=1,error = invalid_token"],
            challenge(Some("https://h/m?x=1"), Some("a"), Some("invalid_token")),
        );
        check(
            &[r#"Bearer error="insufficient_scope" scope="x""#],
            challenge(None, Some("x"), Some("insufficient_scope")),
        );
        check(&[r#"Bearer scope="a\"b, c""#], challenge(None, Some("a\"b, c"), None));
        check(&[r#"Bearer scope="", realm="r""#], BearerChallenge::default());
        check(&[r#"Bearer scope="open"#], challenge(None, Some("open"), None));
    }

    #[test]
    fn challenges_may_share_or_split_headers() {
        check(
            &[r#"Basic realm="scope=z", Bearer scope="a", DPoP algs="ES256", scope="d""#],
            challenge(None, Some("a"), None),
        );
        check(
            &["Negotiate", "Basic realm=x, scope=no", r#"Bearer error="e""#, r#"bearer scope="s""#],
            challenge(None, Some("s"), Some("e")),
        );
        check(&["Negotiate abc==, Bearer scope=a"], challenge(None, Some("a"), None));
        check(&["Basic scope=a"], BearerChallenge::default());
    }

    #[test]
    fn scopes_are_separated_by_any_number_of_spaces() {
        assert_eq!(split_scopes(" a  b"), ["a", "b"]);
        assert_eq!(split_scopes(""), [""; 0]);
    }

    #[test]
    fn only_insufficient_scope_triggers_step_up() {
        assert!(challenge(None, None, Some("insufficient_scope")).is_insufficient_scope());
        assert!(!challenge(None, Some("a"), Some("invalid_token")).is_insufficient_scope());
        assert!(!challenge(None, Some("a"), None).is_insufficient_scope());
    }

    proptest! {
        #[test]
        fn challenge_parser_accepts_arbitrary_input(values in proptest::collection::vec(".{0,80}", 0..4)) {
            let _demand = BearerChallenge::from_headers(&values);
        }
    }
}
