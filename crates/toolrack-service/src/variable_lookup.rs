//! Where the values come from that configs refer to: secrets from the store, the rest from whoever runs us.
//!
//! **Invariant:** a secret is read when a server is started and not before, and from then on nothing that the
//! server writes for people shows it.

use std::sync::Arc;

use toolrack_config::{Lookup, Source};
use toolrack_transport::Mask;

use crate::secret_store::SecretStore;

/// Whoever knows variables and files.
pub type SharedLookup = Arc<dyn Lookup + Send + Sync>;

/// Secrets from the store, everything else from somebody else.
pub(crate) struct Values {
    pub(crate) secrets: SecretStore,
    pub(crate) others: Option<SharedLookup>,
    pub(crate) mask: Mask,
}

impl Lookup for Values {
    fn look_up(&self, source: Source, name: &str) -> Result<Option<String>, String> {
        let Source::Secret = source else {
            return self.others.as_ref().map_or(Ok(None), |it| it.look_up(source, name));
        };
        let found = self.secrets.get(name).map_err(|error| error.to_string())?;
        Ok(found.map(|secret| {
            self.mask.learn(name, secret.reveal());
            secret.reveal().to_owned()
        }))
    }

    fn advice(&self, variable: &str) -> Option<String> {
        self.others.as_ref()?.advice(variable)
    }
}
