//! Names become addresses here, and here only, so that what was checked is what is connected to.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use toolrack_transport::BoxFuture;

use crate::address_policy::Reach;

/// Asks for the addresses of a name.
#[derive(Clone)]
pub(crate) struct Lookup(LookupFn);

type LookupFn =
    Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Resolves names, and hides addresses that are out of reach.
pub(crate) struct Resolver {
    /// `None` for names that the user has chosen.
    reach: Option<Reach>,
    lookup: Lookup,
}

/// A name leads to an address that may not be connected to.
#[derive(Debug, thiserror::Error)]
#[error("private address")]
pub(crate) struct OutOfReach;

impl Lookup {
    pub(crate) fn new(
        ask: impl Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(ask))
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

impl Resolver {
    pub(crate) fn new(reach: Option<Reach>, lookup: Lookup) -> Self {
        Self { reach, lookup }
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (asked, reach) = ((self.lookup.0)(name.as_str().to_owned()), self.reach);
        Box::pin(async move {
            let addresses = asked.await?;
            // One bad address spoils the name: an honest one has none.
            let allowed = |reach: Reach| addresses.iter().all(|it| reach.allows(it.ip()));
            if !reach.is_none_or(allowed) {
                return Err(OutOfReach.into());
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
