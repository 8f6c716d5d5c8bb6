//! Names become addresses here, and here only, so that what was checked is what is connected to.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use toolrack_transport::BoxFuture;

use crate::address_policy::AddressPolicy;

/// Asks for the addresses of a name.
#[derive(Clone)]
pub(crate) struct Lookup(LookupFn);

type LookupFn =
    Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Resolves names, and hides addresses that are out of reach.
pub(crate) struct PolicyResolver {
    /// `None` for names that the user has chosen.
    policy: Option<AddressPolicy>,
    lookup: Lookup,
}

/// A name leads to an address that may not be connected to.
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

    /// The system's own.
    pub(crate) fn system() -> Self {
        Self::new(|name| {
            Box::pin(async move {
                // The port is filled in by whoever connects.
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
            // One bad address spoils the name: an honest one has none.
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
