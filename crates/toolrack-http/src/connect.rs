//! Opens connections: DNS, TCP, Unix sockets, proxy CONNECT and TLS.
//!
//! **Invariant:** connecting never takes longer than the connect timeout.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use toolrack_platform::tls_client_config;
use toolrack_transport::deadline_after;
use url::Host;

use crate::endpoint_url::{Origin, Security};
use crate::proxy::Proxy;

/// Limit of a proxy's response to CONNECT.
const MAX_CONNECT_HEAD_BYTES: usize = 8 << 10;

/// Opens connections to one origin.
pub(crate) struct Connector {
    pub(crate) origin: Origin,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) extra_roots: Vec<u8>,
    pub(crate) connect_timeout: Duration,
    /// Built for the first connection that needs it: loading certificates is slow.
    pub(crate) tls: OnceCell<TlsConnector>,
}

/// HTTP version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
}

impl Connector {
    /// Proxy that forwards plain HTTP requests, if there is one.
    pub(crate) fn forward_proxy(&self) -> Option<&Proxy> {
        match self.origin {
            Origin::Tcp { security: Security::Plain, .. } => self.proxy.as_ref(),
            _ => None,
        }
    }

    pub(crate) async fn open(&self) -> io::Result<(NetStream, HttpVersion)> {
        let opened = timeout(self.connect_timeout, self.open_now()).await;
        opened.map_err(|_elapsed| {
            let reason = format!("not connected within {:?}", self.connect_timeout);
            io::Error::new(io::ErrorKind::TimedOut, reason)
        })?
    }

    async fn open_now(&self) -> io::Result<(NetStream, HttpVersion)> {
        let (security, host, port) = match &self.origin {
            Origin::Unix(path) => return Ok((connect_unix(path).await?, HttpVersion::Http1)),
            Origin::Tcp { security, host, port } => (*security, host, *port),
        };
        let stream = match &self.proxy {
            Some(proxy) => self.connect_tcp(&proxy.host, proxy.port).await,
            None => self.connect_tcp(&without_brackets(host), port).await,
        }?;
        // Requests are written whole, so Nagle's algorithm could only delay their last segment.
        stream.set_nodelay(true)?;
        // HTTP/2 is chosen by ALPN, which needs TLS.
        if security == Security::Plain {
            return Ok((Box::new(stream), HttpVersion::Http1));
        }
        let stream = match &self.proxy {
            Some(proxy) => open_tunnel(stream, proxy, host, port).await?,
            None => stream,
        };
        // A failed load is not stored, so the next connection tries again.
        let connector = self.tls.get_or_try_init(|| tls_connector(&self.extra_roots)).await?;
        let name = ServerName::try_from(without_brackets(host)).map_err(io::Error::other)?;
        let stream = connector.connect(name, stream).await?;
        let version = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => HttpVersion::Http2,
            _ => HttpVersion::Http1,
        };
        Ok((Box::new(stream), version))
    }

    /// Tries every address of a host. An unresponsive address gets only its share of the time.
    async fn connect_tcp(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let deadline = deadline_after(Instant::now(), self.connect_timeout);
        let addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        for (index, address) in addresses.iter().enumerate() {
            let n_left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            let share = deadline.saturating_duration_since(Instant::now()) / n_left;
            match timeout_at(Instant::now() + share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(_elapsed) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}

#[cfg(unix)]
pub(crate) async fn connect_unix(path: &std::path::Path) -> io::Result<NetStream> {
    Ok(Box::new(UnixStream::connect(path).await?))
}

#[cfg(not(unix))]
pub(crate) async fn connect_unix(_path: &std::path::Path) -> io::Result<NetStream> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "Unix sockets are not supported on this system"))
}

/// Host for the resolver and TLS: IPv6 without brackets.
pub(crate) fn without_brackets<S: AsRef<str>>(host: &Host<S>) -> String {
    match host {
        Host::Domain(name) => name.as_ref().to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

/// Opens a tunnel with CONNECT.
async fn open_tunnel(
    mut stream: TcpStream,
    proxy: &Proxy,
    host: &Host,
    port: u16,
) -> io::Result<TcpStream> {
    let authorization = match proxy.authorization.as_ref().and_then(|value| value.to_str().ok()) {
        Some(value) => format!("Proxy-Authorization: {value}\r\n"),
        None => String::new(),
    };
    let head = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    stream.write_all(format!("{head}{authorization}\r\n").as_bytes()).await?;
    let mut head = Vec::new();
    // Byte by byte: the bytes after the head belong to TLS.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_CONNECT_HEAD_BYTES {
            return Err(io::Error::other("the proxy's response head is too large"));
        }
        head.push(stream.read_u8().await?);
    }
    match parse_connect_status(&head) {
        Some(200..=299) => Ok(stream),
        Some(status) => Err(io::Error::other(format!("the proxy responded with status {status}"))),
        None => Err(io::Error::other("the proxy did not respond with HTTP")),
    }
}

fn parse_connect_status(head: &[u8]) -> Option<u16> {
    // Any minor version: a proxy may answer CONNECT with HTTP/1.0.
    let line = head.strip_prefix(b"HTTP/1.")?;
    std::str::from_utf8(line.get(2..5)?).ok()?.parse().ok()
}

/// Byte stream to a server: TCP, a Unix socket, or TLS.
pub(crate) type NetStream = Box<dyn Duplex>;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// TLS connector that trusts the platform and `extra_roots`. Offers HTTP/2 and HTTP/1.1.
pub(crate) async fn tls_connector(extra_roots: &[u8]) -> io::Result<TlsConnector> {
    let extra_roots = extra_roots.to_vec();
    // Blocking: reads the certificate files of the platform.
    let loading = tokio::task::spawn_blocking(move || tls_client_config(&extra_roots));
    let mut config = loading.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &str, expected: Option<u16>) {
        assert_eq!(parse_connect_status(head.as_bytes()), expected, "{head}");
    }

    #[test]
    fn connect_response_status_is_parsed() {
        check("HTTP/1.1 200 Connection established\r\n\r\n", Some(200));
        check("HTTP/1.0 407 Proxy Authentication Required\r\n\r\n", Some(407));
        check("HTTP/2 200\r\n\r\n", None);
        check("SSH-2.0\r\n\r\n", None);
    }
}
