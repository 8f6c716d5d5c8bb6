//! What a server asks for when it says no: the values of `WWW-Authenticate`, read as RFC 9110 §11 has them.
//!
//! Several challenges may share one header, and several headers may come; only `Bearer` concerns us.

/// What the `Bearer` challenges of one answer say together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BearerChallenge {
    /// Where the server describes itself.
    pub(crate) resource_metadata: Option<String>,
    /// The scopes that would do. `None` if nothing is said about them.
    pub(crate) scopes: Option<Vec<String>>,
    /// `invalid_token`, `insufficient_scope`, …
    pub(crate) error: Option<String>,
}

/// One challenge: a scheme and its parameters, names in lower case.
#[derive(Debug, PartialEq, Eq)]
struct RawChallenge {
    scheme: String,
    params: Vec<(String, String)>,
}

impl BearerChallenge {
    /// Reads all values of all headers. The first `Bearer` challenge that says something about a matter wins.
    pub(crate) fn from_headers(values: &[String]) -> Self {
        let mut challenge = Self::default();
        let challenges = values.iter().flat_map(|value| parse(value));
        for raw in challenges.filter(|raw| raw.scheme == "bearer") {
            for (name, value) in raw.params {
                match name.as_str() {
                    "resource_metadata" => challenge.resource_metadata.get_or_insert(value),
                    "error" => challenge.error.get_or_insert(value),
                    "scope" => {
                        let scopes = value.split_ascii_whitespace().map(str::to_owned).collect();
                        challenge.scopes.get_or_insert(scopes);
                        continue;
                    }
                    _ => continue,
                };
            }
        }
        // An empty list says nothing, and asking for nothing would not help.
        challenge.scopes = challenge.scopes.filter(|scopes| !scopes.is_empty());
        challenge
    }

    pub(crate) fn is_insufficient_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// Cuts one header value into its challenges. Whatever makes no sense is skipped.
fn parse(value: &str) -> Vec<RawChallenge> {
    let mut challenges: Vec<RawChallenge> = Vec::new();
    let mut rest = value;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (word, after) = token(rest);
        if word.is_empty() {
            // Neither a name nor the end: step over one character, so that this ends.
            let mut characters = rest.chars();
            if characters.next().is_none() {
                return challenges;
            }
            rest = characters.as_str();
            continue;
        }
        match parameter(after) {
            Some((content, after)) => {
                if let Some(challenge) = challenges.last_mut() {
                    challenge.params.push((word.to_ascii_lowercase(), content));
                }
                rest = after;
            }
            None => {
                let scheme = word.to_ascii_lowercase();
                challenges.push(RawChallenge { scheme, params: Vec::new() });
                rest = after;
            }
        }
    }
}

/// The value of a parameter, if `text` goes on with `=` and one.
fn parameter(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start_matches([' ', '\t']).strip_prefix('=')?;
    let text = text.trim_start_matches([' ', '\t']);
    match text.strip_prefix('"') {
        Some(quoted) => Some(unquote(quoted)),
        None => {
            // A bare value ends at a comma or a space. URLs are no tokens, but come without quotes too.
            let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
            let (content, after) = text.split_at(end);
            Some((content.to_owned(), after))
        }
    }
}

/// What stands before the closing quote, and what comes after it.
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

/// The longest start of `text` that is a token of RFC 9110, and the rest.
fn token(text: &str) -> (&str, &str) {
    let is_token = |it: char| it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(it);
    let end = text.find(|it| !is_token(it)).unwrap_or(text.len());
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
            scopes: scopes.map(|it| it.split(' ').map(str::to_owned).collect()),
            error: error.map(str::to_owned),
        }
    }

    #[track_caller]
    fn check(values: &[&str], expected: BearerChallenge) {
        let values: Vec<String> = values.iter().map(|&it| it.to_owned()).collect();
        assert_eq!(BearerChallenge::from_headers(&values), expected);
    }

    #[test]
    fn a_challenge_is_read_however_it_is_written() {
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
    fn challenges_may_share_a_header_and_headers_may_be_several() {
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
    fn only_one_error_asks_for_more_scope() {
        assert!(challenge(None, None, Some("insufficient_scope")).is_insufficient_scope());
        assert!(!challenge(None, Some("a"), Some("invalid_token")).is_insufficient_scope());
        assert!(!challenge(None, Some("a"), None).is_insufficient_scope());
    }

    proptest! {
        #[test]
        fn reading_ends_whatever_comes(values in proptest::collection::vec(".{0,80}", 0..4)) {
            let _demand = BearerChallenge::from_headers(&values);
        }
    }
}
