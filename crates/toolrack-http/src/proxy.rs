//! Proxy selection: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.
//!
//! **Invariant:** loopback addresses are never reached through a proxy.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::connect::without_brackets;
use crate::endpoint_url::{Origin, Security, is_loopback};

/// Proxy settings as values. This library does not read the environment; pass its variables to
/// [`from_pairs`](Self::from_pairs).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxySettings {
    /// Proxy for `http` URLs: `http://[name:password@]host:port`.
    pub http: Option<String>,
    /// Proxy for `https` URLs, used with CONNECT. The proxy itself is reached over plain HTTP.
    pub https: Option<String>,
    /// Hosts reached without a proxy, separated by commas: domains with their subdomains, IP addresses, or `*`
    /// for all.
    pub no_proxy: Option<String>,
}

/// Proxy for one server.
// No `Debug`: it may hold a password.
pub(crate) struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) authorization: Option<HeaderValue>,
}

impl ProxySettings {
    /// Reads `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` from a list of variables. Lowercase names
    /// take precedence.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let pairs: Vec<(String, String)> = pairs.into_iter().collect();
        let exact = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let find = |name: &str| {
            // An empty lowercase variable hides the uppercase one, so it switches the proxy off.
            let found = exact(&name.to_ascii_lowercase()).or_else(|| exact(name));
            found.filter(|value| !value.trim().is_empty()).cloned()
        };
        let all = find("ALL_PROXY");
        Self {
            http: find("HTTP_PROXY").or_else(|| all.clone()),
            https: find("HTTPS_PROXY").or(all),
            no_proxy: find("NO_PROXY"),
        }
    }

    /// Proxy to use for `origin`, if any.
    pub(crate) fn proxy_for(&self, origin: &Origin) -> Result<Option<Proxy>, String> {
        let Origin::Tcp { security, host, port } = origin else { return Ok(None) };
        let setting = match security {
            Security::Plain => &self.http,
            Security::Tls => &self.https,
        };
        let Some(setting) = setting else { return Ok(None) };
        if is_loopback(host) || self.bypasses_proxy(host, *port) {
            return Ok(None);
        }
        parse(setting).map(Some)
    }

    fn bypasses_proxy(&self, host: &Host, port: u16) -> bool {
        let Some(no_proxy) = &self.no_proxy else { return false };
        let bare = without_brackets(host).to_ascii_lowercase();
        no_proxy.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
            let entry = entry.to_ascii_lowercase();
            let entry = match entry.rsplit_once(':') {
                // In an IPv6 address the part after the last colon is not a port.
                Some((name, entry_port)) if !name.contains(':') => {
                    if entry_port.parse() == Ok(port) {
                        name
                    } else {
                        return false;
                    }
                }
                _ => entry.as_str(),
            };
            let name = entry.trim_start_matches("*.").trim_start_matches('.');
            let name = name.trim_start_matches('[').trim_end_matches(']');
            // For names only: the address 10.1.2.3 is not below an entry `2.3`.
            let below = bare.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
            name == "*" || bare == name || (below && matches!(host, Host::Domain(_)))
        })
    }
}

fn parse(setting: &str) -> Result<Proxy, String> {
    let text =
        if setting.contains("://") { setting.to_owned() } else { format!("http://{setting}") };
    // The error must not quote the text, which may contain a password.
    let url = Url::parse(&text).map_err(|error| format!("invalid proxy URL: {error}"))?;
    if url.scheme() != "http" {
        return Err(format!("unsupported proxy scheme `{}`; use http", url.scheme()));
    }
    let host = url.host().ok_or_else(|| "the proxy URL has no host".to_owned())?;
    let host = without_brackets(&host);
    let port = url.port_or_known_default().unwrap_or(80);
    let authorization = match (url.username(), url.password()) {
        ("", None) => None,
        (name, password) => {
            let decode = |text| percent_decode_str(text).collect::<Vec<u8>>();
            let password = decode(password.unwrap_or_default());
            let token = BASE64_STANDARD.encode([decode(name), b":".to_vec(), password].concat());
            let mut value = HeaderValue::from_str(&format!("Basic {token}"))
                .map_err(|error| format!("invalid proxy credentials: {error}"))?;
            value.set_sensitive(true);
            Some(value)
        }
    };
    Ok(Proxy { host, port, authorization })
}

/// Proxy URLs may contain passwords.
impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |proxy: &Option<String>| proxy.as_ref().map(|_| "…");
        f.debug_struct("ProxySettings")
            .field("http", &hidden(&self.http))
            .field("https", &hidden(&self.https))
            .field("no_proxy", &self.no_proxy)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint_url::EndpointUrl;

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[track_caller]
    fn check(no_proxy: &str, url: &str, expected: Option<&str>) {
        let settings = ProxySettings::from_pairs([
            pair("HTTPS_PROXY", "secure:1"),
            pair("http_proxy", "http://plain:2"),
            pair("HTTP_PROXY", "http://ignored:3"),
            pair("NO_PROXY", no_proxy),
        ]);
        let proxy = settings.proxy_for(&EndpointUrl::parse(url).unwrap().origin).unwrap();
        let found = proxy.map(|proxy| format!("{}:{}", proxy.host, proxy.port));
        assert_eq!(found.as_deref(), expected, "{no_proxy} {url}");
    }

    #[test]
    fn proxy_environment_rules() {
        check("", "https://a.example/", Some("secure:1"));
        check("", "http://a.example/", Some("plain:2"));
        check("", "http://localhost:8080/", None);
        check("", "https://127.0.0.1/", None);
        check("", "unix:/run/x.sock", None);
        check("*", "https://a.example/", None);
        check("a.example", "https://a.example/", None);
        check("b.example, .example", "https://a.example/", None);
        check("*.example", "https://a.example/", None);
        check("xample", "https://a.example/", Some("secure:1"));
        check("a.example:443", "https://a.example/", None);
        check("a.example:8443", "https://a.example/", Some("secure:1"));
        check("10.0.0.1", "http://10.0.0.1/", None);
        check("0.0.1", "http://10.0.0.1/", Some("plain:2"));
        check("fd00::1", "http://[fd00::1]/", None);
    }

    #[test]
    fn proxy_credentials_become_basic_auth() {
        let settings = ProxySettings {
            https: Some("http://me:a%40b@p.example:8080".to_owned()),
            ..ProxySettings::default()
        };
        let proxy = settings.proxy_for(&EndpointUrl::parse("https://a/").unwrap().origin);
        let proxy = proxy.unwrap().unwrap();
        assert_eq!(proxy.authorization.as_ref().unwrap(), "Basic bWU6YUBi");
        assert_eq!(format!("{settings:?}").find("a%40b"), None);
    }

    #[test]
    fn non_http_proxy_is_rejected() {
        for text in ["socks5://p:1", "https://p:1", "http://", "http://[::"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
