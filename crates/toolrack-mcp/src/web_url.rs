//! Web addresses that servers ask people to open: which are refused, and how the others are shown.
//!
//! **Invariant:** what is shown is the parsed form, as a browser reads it: without a user name, tabs or line breaks, with
//! backslashes as slashes, and with the host in ASCII (punycode), so that it cannot imitate another host by its letters.

use std::fmt;

use url::Url;

/// A longer address cannot be read before it is opened, and no known page needs one.
const MAX_BYTES: usize = 8 << 10;

/// A web address that may be shown to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebUrl(Url);

/// Why an address is not shown to a person. A clause that follows "because".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebUrlError {
    /// Not a URL.
    #[error("its URL is invalid")]
    Invalid,
    /// Neither `http:` nor `https:`.
    #[error("its URL is not a web address (`https:`)")]
    Scheme,
    /// A user name or password.
    #[error("its URL contains a user name, which can disguise the host")]
    UserInfo,
    /// Too long to be read.
    #[error("its URL is longer than {} bytes", MAX_BYTES)]
    TooLong,
}

impl WebUrl {
    /// Checks an address of a server.
    pub fn parse(address: &str) -> Result<Self, WebUrlError> {
        if address.len() > MAX_BYTES {
            return Err(WebUrlError::TooLong);
        }
        let url = Url::parse(address).map_err(|_error| WebUrlError::Invalid)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(WebUrlError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(WebUrlError::UserInfo);
        }
        Ok(Self(url))
    }

    /// The address as a browser reads it, in ASCII.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Note for the person, if the host has letters that are not ASCII and may look like those of another host.
    pub fn host_note(&self) -> Option<String> {
        let host = self.0.host_str()?;
        let is_encoded = host.split('.').any(|label| label.starts_with("xn--"));
        is_encoded.then(|| {
            format!("the host `{host}` has letters that are not ASCII and may imitate another host")
        })
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicious_urls_are_refused() {
        let check = |address: &str, expected: Result<&str, WebUrlError>| {
            let url = WebUrl::parse(address);
            assert_eq!(url.as_ref().map(WebUrl::as_str), expected.as_ref().copied(), "{address}");
        };
        check("https://example.com/pay?id=7", Ok("https://example.com/pay?id=7"));
        check("http://127.0.0.1:8080/", Ok("http://127.0.0.1:8080/"));
        check("javascript:alert(1)", Err(WebUrlError::Scheme));
        check(" java\nscript:alert(1)", Err(WebUrlError::Scheme));
        check("file:///etc/passwd", Err(WebUrlError::Scheme));
        check("data:text/html,x", Err(WebUrlError::Scheme));
        check("ftp://example.com/", Err(WebUrlError::Scheme));
        check("https://bank.example@evil.example/", Err(WebUrlError::UserInfo));
        check("https://:x@evil.example/", Err(WebUrlError::UserInfo));
        check("nonsense", Err(WebUrlError::Invalid));
        check("", Err(WebUrlError::Invalid));
        check("https://", Err(WebUrlError::Invalid));
        let long = format!("https://e.org/{}", "x".repeat(MAX_BYTES));
        check(&long, Err(WebUrlError::TooLong));
        // What a browser opens, not what is written.
        check("https:\\\\evil.example\\@bank.example/", Ok("https://evil.example/@bank.example/"));
        check("HTTPS://Bank.Example/\u{202e}x\t", Ok("https://bank.example/%E2%80%AEx"));
    }

    #[test]
    fn host_is_ascii_and_noted_if_it_was_not() {
        let check = |address: &str, expected: &str, is_noted: bool| {
            let url = WebUrl::parse(address).unwrap();
            assert_eq!(
                (url.as_str(), url.host_note().is_some()),
                (expected, is_noted),
                "{address}"
            );
        };
        check("https://example.com/xn--", "https://example.com/xn--", false);
        // The first letter is Cyrillic.
        check("https://\u{430}pple.com/", "https://xn--pple-43d.com/", true);
        check("https://login.b\u{fc}cher.example/", "https://login.xn--bcher-kva.example/", true);
        check("https://[::1]/", "https://[::1]/", false);
    }
}
