//! OAuth authorizers: one [`Authorizer`] per HTTP server, with tokens in private files.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use toolrack_auth::{AuthSettings, Authorizer, Browser, FileTokenStore, TokenStore};
use toolrack_config::{McpServerConfig, McpTransport, PackageKind, ResolvedTransport, interpolate};
use toolrack_transport::{Credentials, Redactor};
use url::Url;

use crate::error::{ErrorCode, ErrorDetail, ServiceError};
use crate::paths::Home;
use crate::secret_store::SharedLookup;

/// The authorizers of all servers.
pub(crate) struct Authorizers {
    pub(crate) home: Home,
    /// `None` for files in the home.
    pub(crate) store: Option<Arc<dyn TokenStore>>,
    pub(crate) browser: Option<Arc<dyn Browser>>,
    pub(crate) lookup: SharedLookup,
    pub(crate) redactor: Redactor,
    /// By id, or name if the server has none, and URL.
    pub(crate) by_server: Mutex<HashMap<(String, Url), Arc<Authorizer>>>,
}

impl Authorizers {
    /// The credentials of a server. `None` if it is a local process or its config sets `Authorization`.
    pub(crate) fn credentials(&self, server: &McpServerConfig) -> Option<Arc<dyn Credentials>> {
        match self.authorizer(server) {
            Ok(authorizer) => Some(authorizer),
            Err(error) => {
                tracing::debug!(server = server.name, %error, "no OAuth for this server");
                None
            }
        }
    }

    pub(crate) fn authorizer(
        &self,
        server: &McpServerConfig,
    ) -> Result<Arc<Authorizer>, ServiceError> {
        // Before the lock, because resolving the URL may read secrets from disk.
        let url = self.endpoint(server)?;
        // Held until the new authorizer is inserted: two of them for one server would refresh its token independently.
        let mut by_server = self.by_server.lock();
        let key = (server.id.as_ref().unwrap_or(&server.name).clone(), url);
        if let Some(authorizer) = by_server.get(&key) {
            return Ok(Arc::clone(authorizer));
        }
        let settings = AuthSettings { redactor: self.redactor.clone(), ..AuthSettings::default() };
        let store = self.store.clone().unwrap_or_else(|| {
            let tokens = self.home.tokens_dir();
            Arc::new(match &server.id {
                Some(id) => FileTokenStore::for_server(self.home.secrets_dir(), id, tokens),
                // Not a configured server.
                None => FileTokenStore::new(tokens),
            })
        });
        let authorizer = Authorizer::new(&key.1, settings, store, self.browser.clone())
            .map_err(|error| ServiceError::new(ErrorCode::ValidationError, error.to_string()))?;
        by_server.insert(key, Arc::clone(&authorizer));
        Ok(authorizer)
    }

    /// Waits for token requests in progress: a refreshed token that is not saved is lost.
    pub(crate) async fn wait_idle(&self) {
        // A copy: the lock must not be held across `await`.
        let authorizers: Vec<Arc<Authorizer>> = {
            let by_server = self.by_server.lock();
            by_server.values().map(Arc::clone).collect()
        };
        for authorizer in authorizers {
            authorizer.wait_idle().await;
        }
    }

    /// The URL of a server that can use OAuth.
    fn endpoint(&self, server: &McpServerConfig) -> Result<Url, ServiceError> {
        match &server.transport {
            McpTransport::Http { .. } => {}
            McpTransport::Package { package, .. } if package.kind == PackageKind::Http => {}
            _ => return Err(no_login("it is a local process")),
        }
        if server.has_authorization() {
            return Err(no_login("its config sets the `Authorization` header"));
        }
        let url = match interpolate(server, &*self.lookup) {
            Ok(ResolvedTransport::Http { url, .. }) => url.into_revealed(),
            Ok(ResolvedTransport::Package { package, .. }) => package.identifier.into_revealed(),
            Ok(_) | Err(_) => return Err(no_login("its URL has unresolved variables")),
        };
        Url::parse(&url).map_err(|_malformed| no_login("its URL is invalid"))
    }
}

fn no_login(reason: &str) -> ServiceError {
    let message = format!("cannot log in to this server: {reason}");
    let hint = "login is for HTTP servers whose config sets no `Authorization` header";
    ErrorDetail::new(ErrorCode::Conflict, message).with_hint(hint).into()
}
