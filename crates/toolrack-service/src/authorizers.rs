//! Logins at servers over HTTP: one [`Authorizer`] for each, with its tokens in private files.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use toolrack_auth::{
    AuthSettings, Authorizer, Browser, DiscreetTokenStore, FileTokenStore, TokenStore,
};
use toolrack_config::{McpServerConfig, McpTransport, PackageKind, ResolvedTransport, interpolate};
use toolrack_transport::{Credentials, Mask};
use url::Url;

use crate::error::{ErrorCode, ServiceError, ServiceFault};
use crate::secret_store::SharedLookup;

/// Everybody who speaks for the user.
pub(crate) struct Logins {
    store: Arc<dyn TokenStore>,
    browser: Option<Arc<dyn Browser>>,
    values: SharedLookup,
    /// By name of the server and URL.
    known: Mutex<HashMap<(String, Url), Arc<Authorizer>>>,
}

impl Logins {
    pub(crate) fn new(
        tokens_dir: PathBuf,
        browser: Option<Arc<dyn Browser>>,
        values: SharedLookup,
        mask: Mask,
    ) -> Self {
        let files = Arc::new(FileTokenStore::new(tokens_dir));
        Self {
            store: Arc::new(DiscreetTokenStore::new(files, mask)),
            browser,
            values,
            known: Mutex::default(),
        }
    }

    /// Who speaks for the user at a server. Nobody where the config says what to send, or nothing is reached.
    pub(crate) fn credentials(&self, server: &McpServerConfig) -> Option<Arc<dyn Credentials>> {
        match self.authorizer(server) {
            Ok(authorizer) => Some(authorizer),
            Err(error) => {
                tracing::debug!(server = server.name, %error, "nobody can log in here");
                None
            }
        }
    }

    pub(crate) fn authorizer(
        &self,
        server: &McpServerConfig,
    ) -> Result<Arc<Authorizer>, ServiceError> {
        let url = self.endpoint(server)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (server.name.clone(), url);
        if let Some(authorizer) = known.get(&key) {
            return Ok(Arc::clone(authorizer));
        }
        let settings =
            AuthSettings { server_name: Some(server.name.clone()), ..AuthSettings::default() };
        let (store, browser) = (Arc::clone(&self.store), self.browser.clone());
        let authorizer = Authorizer::new(&key.1, settings, store, browser)
            .map_err(|error| ServiceError::new(ErrorCode::ValidationError, error.to_string()))?;
        known.insert(key, Arc::clone(&authorizer));
        Ok(authorizer)
    }

    /// Waits until nothing is under way any more: a token that was renewed and not saved is lost.
    pub(crate) async fn settle(&self) {
        let known: Vec<Arc<Authorizer>> = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.values().map(Arc::clone).collect()
        };
        for authorizer in known {
            authorizer.settle().await;
        }
    }

    /// Where a server is reached, if a login can help there.
    fn endpoint(&self, server: &McpServerConfig) -> Result<Url, ServiceError> {
        match &server.transport {
            McpTransport::Http { .. } => {}
            McpTransport::Package { package, .. } if package.kind == PackageKind::Http => {}
            _ => return Err(no_login("it runs on this machine, so nobody logs in")),
        }
        if server.has_authorization() {
            return Err(no_login("its config says what to send as `Authorization`"));
        }
        let url = match interpolate(server, &*self.values) {
            Ok(ResolvedTransport::Http { url, .. }) => url.into_revealed(),
            Ok(ResolvedTransport::Package { identifier, .. }) => identifier.into_revealed(),
            Ok(_) | Err(_) => return Err(no_login("its URL cannot be filled in")),
        };
        Url::parse(&url).map_err(|_malformed| no_login("its URL is none"))
    }
}

fn no_login(reason: &str) -> ServiceError {
    let message = format!("there is no login for this server: {reason}");
    let hint = "a login is for a server over HTTP without an `Authorization` of its own";
    ServiceFault::new(ErrorCode::Conflict, message).hint(hint).into()
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_known = self.known.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Logins").field("n_known", &n_known).finish_non_exhaustive()
    }
}
