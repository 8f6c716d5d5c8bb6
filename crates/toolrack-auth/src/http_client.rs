//! HTTP client for authorization servers: limits, TLS and the address policy.
//!
//! **Invariant:** no redirect is followed, no body larger than 1 MiB is read, no request takes longer than 10
//! s, and a host from metadata is connected only at an address that the policy has checked.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, Method, RequestBuilder, redirect};
use rustls::ClientConfig;
use serde::Deserialize;
use toolrack_platform::tls_client_config;
use toolrack_transport::AuthError;
use url::{Url, form_urlencoded};

use crate::address_policy::{AddressPolicy, ForbiddenAddress, PolicyResolver, display_url};
use crate::error::{refused, unreachable, untrusted};
use crate::secret::Secret;
use crate::settings::{AuthSettings, Network};
use crate::www_authenticate::BearerChallenge;

/// Content type of a [`Form`].
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";
const MAX_BODY_BYTES: usize = 1024 * 1024;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP client for the authorization servers of one server.
#[derive(Debug)]
pub(crate) struct HttpClient {
    server: Url,
    policy: AddressPolicy,
    network: Network,
    protocol_version: String,
    /// The address of every host name, in tests.
    fixed_address: Option<SocketAddr>,
    /// Built on first use: many servers never need a login.
    clients: OnceLock<Clients>,
}

/// One client for the server from the config, and one for hosts from metadata.
#[derive(Debug)]
struct Clients {
    server: Client,
    discovered: Client,
}

/// A response with any status.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Error response of an authorization server (RFC 6749 §5.2, RFC 7591 §3.2.2).
#[derive(Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: String,
    error_description: Option<String>,
}

/// Form parameters. Every value is a secret, because most are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Form(Vec<(&'static str, Secret)>);

impl HttpClient {
    /// For `server`, the URL from the config.
    pub(crate) fn new(server: &Url, settings: &AuthSettings) -> Self {
        let policy = AddressPolicy::for_server(server);
        let allows_private = settings.network.allow_private_addresses;
        Self {
            server: server.clone(),
            policy: if allows_private { policy.with_private() } else { policy },
            network: settings.network.clone(),
            protocol_version: settings.protocol_version.clone(),
            fixed_address: None,
            clients: OnceLock::new(),
        }
    }

    /// Parses and checks an endpoint from metadata.
    pub(crate) fn endpoint(&self, text: Option<&str>, what: &str) -> Result<Url, AuthError> {
        let text =
            text.ok_or_else(|| refused(format_args!("no {what} endpoint in its metadata")))?;
        let url = Url::parse(text)
            .map_err(|_syntax| untrusted(format_args!("the {what} endpoint is not a valid URL")))?;
        self.policy.check(&url)?;
        Ok(url)
    }

    /// Fetches a document. The server's own origin is exempt from the policy.
    pub(crate) async fn get(&self, url: &Url) -> Result<HttpResponse, AuthError> {
        if !self.is_server_origin(url) {
            self.policy.check(url)?;
        }
        let request = self.request(Method::GET, url)?;
        self.send(url, request.header("mcp-protocol-version", &self.protocol_version)).await
    }

    /// Posts a document, with the value of the `Authorization` header if there is one.
    pub(crate) async fn post(
        &self,
        url: &Url,
        content_type: &str,
        body: String,
        authorization: Option<&Secret>,
    ) -> Result<HttpResponse, AuthError> {
        // Also for the origin of the server, unlike in `get`: a form contains secrets, so it needs
        // https or loopback.
        self.policy.check(url)?;
        let mut request = self.request(Method::POST, url)?.header(CONTENT_TYPE, content_type);
        if let Some(secret) = authorization {
            let mut value = HeaderValue::from_str(secret.reveal())
                .map_err(|_bytes| refused("the client secret cannot be sent"))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        self.send(url, request.body(body)).await
    }

    /// Sends `ping` to the server without credentials, to get its challenge.
    pub(crate) async fn probe(&self) -> Result<BearerChallenge, AuthError> {
        let request = self
            .request(Method::POST, &self.server)?
            .header("mcp-protocol-version", &self.protocol_version)
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#);
        let response = request.send().await.map_err(|error| request_error(&self.server, &error))?;
        // The body is not read: it is not needed, and may be an endless stream.
        let values = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let values: Vec<String> =
            values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
        Ok(BearerChallenge::from_headers(&values))
    }

    fn request(&self, method: Method, url: &Url) -> Result<RequestBuilder, AuthError> {
        let clients = self.clients()?;
        let client = if self.is_server_origin(url) { &clients.server } else { &clients.discovered };
        Ok(client.request(method, url.clone()).header(ACCEPT, "application/json"))
    }

    async fn send(&self, url: &Url, request: RequestBuilder) -> Result<HttpResponse, AuthError> {
        let mut response = request.send().await.map_err(|error| request_error(url, &error))?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| request_error(url, &error))?
        {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(untrusted(format_args!(
                    "the response from {} is too large",
                    display_url(url)
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse { status, body })
    }

    fn is_server_origin(&self, url: &Url) -> bool {
        // `origin` does not include the user name.
        url.origin() == self.server.origin() && url.username().is_empty()
    }

    fn clients(&self) -> Result<&Clients, AuthError> {
        if let Some(clients) = self.clients.get() {
            return Ok(clients);
        }
        let tls = tls_client_config(&self.network.extra_roots)
            .map_err(|error| unreachable(format_args!("TLS settings: {error}")))?;
        let resolver = |policy| PolicyResolver { policy, fixed_address: self.fixed_address };
        let clients = Clients {
            server: client(&self.network, tls.clone(), resolver(None))?,
            discovered: client(&self.network, tls, resolver(Some(self.policy)))?,
        };
        Ok(self.clients.get_or_init(|| clients))
    }
}

fn client(
    network: &Network,
    tls: ClientConfig,
    resolver: PolicyResolver,
) -> Result<Client, AuthError> {
    let build_error = |error: reqwest::Error| unreachable(format_args!("no HTTP client: {error}"));
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls)
        // A redirect would lead to a URL that the policy has not checked.
        .redirect(redirect::Policy::none())
        .timeout(REQUEST_TIMEOUT)
        .connect_timeout(REQUEST_TIMEOUT)
        // Requests are rare; a pooled connection would mostly be closed by then.
        .pool_max_idle_per_host(0)
        .user_agent(concat!("toolrack/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(resolver)
        // Libraries do not read the environment; the proxy comes from the settings.
        .no_proxy();
    if let Some(proxy) = &network.proxy {
        builder = builder.proxy(reqwest::Proxy::all(proxy.clone()).map_err(build_error)?);
    }
    builder.build().map_err(build_error)
}

/// Error of a failed request. Shows URLs without their queries, and no bodies.
fn request_error(url: &Url, error: &reqwest::Error) -> AuthError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut last = String::new();
    while let Some(error) = cause {
        // reqwest wraps the error of the resolver in its own.
        if error.is::<ForbiddenAddress>() {
            return untrusted(format_args!("{} leads to a private address", display_url(url)));
        }
        if !error.is::<reqwest::Error>() {
            last = error.to_string();
        }
        cause = error.source();
    }
    let what = if error.is_timeout() { "timed out" } else { last.as_str() };
    unreachable(format_args!("{}: {what}", display_url(url)))
}

impl ErrorBody {
    /// Code and description, for messages.
    pub(crate) fn text(&self) -> String {
        match &self.error_description {
            Some(description) => format!("{}: {description}", self.error),
            None => self.error.clone(),
        }
    }
}

impl HttpResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether the document is absent, so that the next URL may be tried. Redirects count: they are not
    /// followed, and many servers redirect every unknown path to a login page.
    pub(crate) fn is_not_found(&self) -> bool {
        // 429 says nothing about whether the document exists.
        (300..500).contains(&self.status) && self.status != 429
    }
}

impl Form {
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Secret>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    pub(crate) fn with_option(self, name: &'static str, value: Option<impl Into<Secret>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Values that must not appear in an error text.
    pub(crate) fn secrets(&self) -> Vec<&Secret> {
        let public = ["grant_type", "resource", "scope", "client_id", "redirect_uri", "audience"];
        self.0.iter().filter(|(name, _)| !public.contains(name)).map(|(_, value)| value).collect()
    }

    pub(crate) fn encode(&self) -> String {
        let pairs = self.0.iter().map(|(name, value)| (*name, value.reveal()));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod tls_tests {
    use super::*;

    #[test]
    fn invalid_certificate_is_rejected() {
        assert!(tls_client_config(b"").is_ok());
        let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(tls_client_config(broken).is_err());
    }
}
