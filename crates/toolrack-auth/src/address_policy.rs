//! SSRF protection: which addresses a URL from metadata may lead to, enforced in the DNS resolver.
//!
//! Metadata can name any URL, so without a check a server could make us send requests to hosts that only we can
//! reach.
//!
//! **Invariant:** a URL from metadata leads to a private address only if the URL from the config does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::{fmt, io};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use toolrack_transport::{AuthError, BoxFuture};
use url::{Host, Url};

use crate::error::untrusted;

/// Class of an IP address, ordered from far to near.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AddressClass {
    /// Reachable from anywhere.
    Public,
    /// In a private network.
    Private,
    /// This machine.
    Loopback,
    /// Never a legitimate target: link-local (cloud metadata), unspecified, multicast, reserved.
    Forbidden,
}

/// The nearest class that an address may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressPolicy(AddressClass);

impl AddressPolicy {
    /// Policy for the server from the config: a private address allows private addresses, and loopback allows
    /// loopback too. A host name allows neither, even if it resolves to such an address.
    pub(crate) fn for_server(server: &Url) -> Self {
        match server.host() {
            Some(host) => Self(classify_host(&host).unwrap_or(AddressClass::Public)),
            None => Self(AddressClass::Public),
        }
    }

    /// Also allows private addresses.
    pub(crate) fn with_private(self) -> Self {
        Self(self.0.max(AddressClass::Private))
    }

    pub(crate) fn allows(self, address: IpAddr) -> bool {
        let class = classify(address);
        // Checked apart: a configured link-local server has this class itself and would allow all
        // of it.
        class != AddressClass::Forbidden && class <= self.0
    }

    /// Checks a URL from metadata before a request: `https`, or `http` to loopback; no user name; no forbidden
    /// address. Host names are checked again when they are resolved.
    pub(crate) fn check(self, url: &Url) -> Result<(), AuthError> {
        let host = url
            .host()
            .ok_or_else(|| untrusted(format_args!("{} has no host", display_url(url))))?;
        let class = classify_host(&host);
        let is_safe = match url.scheme() {
            "https" => true,
            "http" => class == Some(AddressClass::Loopback),
            _ => false,
        };
        if !is_safe {
            return Err(untrusted(format_args!("{} is not https", display_url(url))));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(untrusted(format_args!("{} contains a user name", display_url(url))));
        }
        match class {
            Some(class) if class == AddressClass::Forbidden || class > self.0 => {
                Err(untrusted(format_args!("{} is a private address", display_url(url))))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A URL for messages: without query, fragment and user.
pub(crate) fn display_url(url: &Url) -> String {
    match url.host_str() {
        Some(_) => format!("{}{}", url.origin().ascii_serialization(), url.path()),
        None => format!("a URL of the scheme {}", url.scheme()),
    }
}

/// Class of a host, if it is known without DNS.
fn classify_host(host: &Host<&str>) -> Option<AddressClass> {
    match host {
        Host::Ipv4(address) => Some(classify(IpAddr::V4(*address))),
        Host::Ipv6(address) => Some(classify(IpAddr::V6(*address))),
        Host::Domain(name) => {
            // `localhost.` is the same host.
            let name = name.strip_suffix('.').unwrap_or(name);
            let local = name == "localhost" || name.ends_with(".localhost");
            local.then_some(AddressClass::Loopback)
        }
    }
}

pub(crate) fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        // The connection goes to the embedded address, so its class decides.
        IpAddr::V6(address) => match embedded_ipv4(address) {
            Some(inner) => classify_v4(inner),
            None => classify_v6(address),
        },
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (127, ..) => AddressClass::Loopback,
        // The last one is carrier-grade NAT (RFC 6598), used inside companies and clouds.
        (10, ..) | (192, 168, _) | (172, 16..=31, _) | (100, 64..=127, _) => AddressClass::Private,
        // This network, multicast, reserved; link-local; protocol assignments, documentation, benchmarks.
        (0 | 224..=255, ..)
        | (169, 254, _)
        | (192, 0, 0 | 2)
        | (198, 18..=19, _)
        | (198, 51, 100)
        | (203, 0, 113) => AddressClass::Forbidden,
        _ => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    let [first, second, ..] = address.segments();
    if address == Ipv6Addr::LOCALHOST {
        return AddressClass::Loopback;
    }
    match (first, second) {
        (0xfc00..=0xfdff, _) => AddressClass::Private,
        (0x2001, 0xdb8) => AddressClass::Forbidden,
        // The only block with global unicast addresses; the rest is special or unassigned.
        (0x2000..=0x3fff, _) => AddressClass::Public,
        _ => AddressClass::Forbidden,
    }
}

/// The IPv4 address inside an IPv6 address: mapped, compatible, NAT64, 6to4.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let inner = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        // `::` and `::1` are not IPv4-compatible addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(inner(high, low)),
        _ => None,
    }
}

/// Resolves a host name.
#[derive(Clone)]
pub(crate) struct Lookup(LookupFn);

type LookupFn =
    Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// DNS resolver that rejects forbidden addresses. The check runs on the addresses that are connected to, so a
/// second DNS answer cannot bypass it.
pub(crate) struct PolicyResolver {
    /// `None` for the host from the config.
    policy: Option<AddressPolicy>,
    lookup: Lookup,
}

/// A host name resolves to a forbidden address.
#[derive(Debug, thiserror::Error)]
#[error("private address")]
pub(crate) struct ForbiddenAddress;

impl Lookup {
    pub(crate) fn new(
        lookup: impl Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(lookup))
    }

    /// The system's resolver.
    pub(crate) fn system() -> Self {
        Self::new(|name| {
            Box::pin(async move {
                // The connector sets the port.
                Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect())
            })
        })
    }
}

impl PolicyResolver {
    pub(crate) fn new(policy: Option<AddressPolicy>, lookup: Lookup) -> Self {
        Self { policy, lookup }
    }
}

impl Resolve for PolicyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, policy) = ((self.lookup.0)(name.as_str().to_owned()), self.policy);
        Box::pin(async move {
            let addresses = lookup.await?;
            // One forbidden address rejects the host: a legitimate one has none.
            let allowed =
                |policy: AddressPolicy| addresses.iter().all(|address| policy.allows(address.ip()));
            if !policy.is_none_or(allowed) {
                return Err(ForbiddenAddress.into());
            }
            let addresses: Addrs = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

#[cfg(test)]
mod tests;
