//! SSRF protection: which addresses a URL from metadata may lead to, enforced in the DNS resolver.
//!
//! Metadata can name any URL, so without a check a server could make us send requests to hosts that only we can
//! reach.
//!
//! **Invariant:** a URL from metadata leads to a private address only if the URL from the config does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use toolrack_transport::AuthError;
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
        let class = server.host().and_then(|host| classify_host(&host));
        Self(class.unwrap_or(AddressClass::Public))
    }

    /// Also allows private addresses.
    pub(crate) fn with_private(self) -> Self {
        Self(self.0.max(AddressClass::Private))
    }

    pub(crate) fn allows(self, address: IpAddr) -> bool {
        self.allows_class(classify(address))
    }

    fn allows_class(self, class: AddressClass) -> bool {
        // Checked apart: a configured link-local server has this class itself and would allow all
        // of it.
        class != AddressClass::Forbidden && class <= self.0
    }

    /// Checks a URL from metadata before a request: `https`, or `http` to loopback; no user name; no forbidden
    /// address. Host names are checked again when they are resolved.
    pub(crate) fn check(self, url: &Url) -> Result<(), AuthError> {
        let reject = |fault: &str| Err(untrusted(format_args!("{} {fault}", display_url(url))));
        let Some(host) = url.host() else { return reject("has no host") };
        let class = classify_host(&host);
        let is_safe = match url.scheme() {
            "https" => true,
            "http" => class == Some(AddressClass::Loopback),
            _ => false,
        };
        if !is_safe {
            return reject("is not https");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return reject("contains a user name");
        }
        if class.is_some_and(|class| !self.allows_class(class)) {
            return reject("is a private address");
        }
        Ok(())
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
        // Teredo, which tunnels to an IPv4 address inside it; documentation.
        (0x2001, 0 | 0xdb8) => AddressClass::Forbidden,
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

/// DNS resolver that rejects forbidden addresses. The check runs on the addresses that are connected to, so a
/// second DNS answer cannot bypass it.
pub(crate) struct PolicyResolver {
    /// `None` for the host from the config.
    pub(crate) policy: Option<AddressPolicy>,
    /// The address of every host name, in tests.
    pub(crate) fixed_address: Option<SocketAddr>,
}

/// A host name resolves to a forbidden address.
#[derive(Debug, thiserror::Error)]
#[error("private address")]
pub(crate) struct ForbiddenAddress;

impl Resolve for PolicyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, fixed_address) = (self.policy, self.fixed_address);
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = match fixed_address {
                Some(address) => vec![address],
                // The connector sets the port.
                None => tokio::net::lookup_host((name.as_str(), 0)).await?.collect(),
            };
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

#[cfg(test)]
mod tests;
