//! Server definition and transport options.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use toolrack_transport::Credentials;

use crate::proxy::ProxySettings;
use crate::request_headers::is_reserved;

/// Server reached over HTTP.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HttpServerDef {
    /// `https://…`, `http://…`, or `unix:/path/to.sock` with an optional `:/path`. Plain `http` to another
    /// machine is allowed, with a warning.
    pub url: String,
    /// Sent with every request. Reserved headers cannot be set.
    pub headers: Vec<(String, String)>,
}

/// Options with defaults.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Largest message from the server, after decompression.
    pub max_message_bytes: usize,
    /// Limit for connecting, TLS included.
    pub connect_timeout: Duration,
    /// Idle timeout of streams that stay open by design.
    pub stream_idle: Duration,
    /// Proxy settings.
    pub proxy: ProxySettings,
    /// PEM certificates trusted in addition to those of the platform.
    pub extra_roots: Vec<u8>,
    /// Source of the `Authorization` header.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// Value of `User-Agent`.
    pub user_agent: String,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            max_message_bytes: 32 << 20,
            connect_timeout: Duration::from_secs(10),
            stream_idle: Duration::from_mins(5),
            proxy: ProxySettings::default(),
            extra_roots: Vec::new(),
            credentials: None,
            user_agent: concat!("toolrack/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl HttpServerDef {
    /// A server at `url` without headers.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), headers: Vec::new() }
    }

    /// Parsed headers with the user agent, or an error that names the invalid one.
    pub(crate) fn checked_headers(&self, options: &HttpOptions) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let parsed = HeaderName::try_from(name.as_str())
                .map_err(|_invalid| format!("`{name}` is not a valid header name"))?;
            if is_reserved(&parsed) {
                return Err(format!("the header `{name}` is set by the protocol"));
            }
            if parsed == AUTHORIZATION && options.credentials.is_some() {
                return Err(format!("the header `{name}` is set by the login"));
            }
            let mut value = HeaderValue::try_from(value.as_str())
                .map_err(|_invalid| format!("the value of the header `{name}` is not valid"))?;
            value.set_sensitive(true);
            headers.append(parsed, value);
        }
        if !headers.contains_key(USER_AGENT) && !options.user_agent.is_empty() {
            let value = HeaderValue::from_str(&options.user_agent)
                .map_err(|_invalid| "the user agent is not a valid header value".to_owned())?;
            headers.insert(USER_AGENT, value);
        }
        Ok(headers)
    }
}

/// Headers and queries often contain keys.
impl fmt::Debug for HttpServerDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.split(['?', '#']).next().unwrap_or_default();
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("HttpServerDef").field("url", &url).field("headers", &names).finish()
    }
}

#[cfg(test)]
mod tests {
    use toolrack_transport::{
        AuthChallenge, AuthError, Authorization, BoxFuture, CachedCredential,
    };

    use super::*;

    #[derive(Debug)]
    struct NoCredentials;

    impl Credentials for NoCredentials {
        fn cached(&self) -> CachedCredential {
            CachedCredential::None
        }

        fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
            Box::pin(async { Ok(None) })
        }

        fn on_challenge<'a>(
            &'a self,
            _rebuff: AuthChallenge<'a>,
        ) -> BoxFuture<'a, Result<(), AuthError>> {
            Box::pin(async { Ok(()) })
        }
    }

    #[track_caller]
    fn check(
        name: &str,
        value: &str,
        credentials: Option<Arc<dyn Credentials>>,
        expected: Option<&str>,
    ) {
        let options = HttpOptions { credentials, ..HttpOptions::default() };
        let headers = vec![(name.to_owned(), value.to_owned())];
        let checked = HttpServerDef { url: String::new(), headers }.checked_headers(&options);
        assert_eq!(checked.err().as_deref(), expected, "{name}");
    }

    #[test]
    fn configured_headers_cannot_override_protocol_headers() {
        let no_credentials = || Some(Arc::new(NoCredentials) as Arc<dyn Credentials>);
        check("X-Api-Key", "k", None, None);
        check("Authorization", "Bearer k", None, None);
        check(
            "Authorization",
            "Bearer k",
            no_credentials(),
            Some("the header `Authorization` is set by the login"),
        );
        check("Content-Type", "x", None, Some("the header `Content-Type` is set by the protocol"));
        check(
            "MCP-Protocol-Version",
            "x",
            None,
            Some("the header `MCP-Protocol-Version` is set by the protocol"),
        );
        check(
            "Mcp-Session-Id",
            "x",
            None,
            Some("the header `Mcp-Session-Id` is set by the protocol"),
        );
        check("Host", "x", None, Some("the header `Host` is set by the protocol"));
        check("a b", "x", None, Some("`a b` is not a valid header name"));
        check("X-Key", "a\nb", None, Some("the value of the header `X-Key` is not valid"));
    }

    #[test]
    fn server_def_debug_hides_secrets() {
        let headers = vec![("X-Api-Key".to_owned(), "s3cret".to_owned())];
        let definition = HttpServerDef { url: "https://a/b?key=s3cret".to_owned(), headers };
        let text = format!("{definition:?}");
        assert_eq!(text, r#"HttpServerDef { url: "https://a/b", headers: ["X-Api-Key"] }"#);
    }
}
