//! Opening the service: what is on disk, a manager for it, and the task that follows.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_config::McpServerConfig;
use toolrack_manager::{FileWatch, McpManager};
use toolrack_stdio::StdioOptions;
use toolrack_transport::Mask;

use super::crud::view_of;
use super::{Inner, LocalService};
use crate::atomic_file::{close_to_others, make_private};
use crate::authorizers::Logins;
use crate::config_snapshot::View;
use crate::config_store::{ConfigStore, Stored};
use crate::error::{ErrorCode, ServiceError};
use crate::error_mapping;
use crate::options::{Autostart, Follow, ServiceOptions};
use crate::packages::Installer;
use crate::paths::Home;
use crate::secret_store::SecretStore;
use crate::server_logs::LogStore;
use crate::variable_lookup::{SharedLookup, Values};

/// The first view.
const FIRST: u64 = 1;

impl LocalService {
    /// Opens the service of a home. Nothing has to be there yet.
    ///
    /// Servers that start by themselves are waited for, at most as long as the options say. One that fails is no
    /// error: its status says why.
    ///
    /// # Errors
    ///
    /// When the config file cannot be used; with every fault of it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends whatever was started.
    pub async fn open(home: Home, options: ServiceOptions) -> Result<Self, ServiceError> {
        // Where the config file lies too, others may have been let in on purpose; what is secret is private by itself.
        if !home.config_file().starts_with(home.dir()) {
            close_to_others(home.dir());
        }
        let store = ConfigStore::new(home.config_file());
        let stored = read(store.clone()).await?;
        let view = Arc::new(view_of(FIRST, options.agent.as_deref(), &stored)?);
        let (autostart, follow) = (options.autostart, options.follow);
        let service = assemble(home, store, options, stored, Arc::clone(&view));
        let inner = Arc::clone(&service.inner);
        service.inner.tasks.spawn(inner.follow(view));
        let inner = Arc::clone(&service.inner);
        service.inner.tasks.spawn(inner.record(service.subscribe()));
        if autostart == Autostart::Enabled {
            let begun = service.inner.manager.connect_all().await;
            begun.map_err(|error| ServiceError::from(error_mapping::of_rack(&error)))?;
        }
        if follow == Follow::Yes {
            *service.watch.lock().unwrap_or_else(PoisonError::into_inner) = service.watch_file();
        }
        Ok(service)
    }

    /// Follows the file. A machine that cannot watch files does not keep anybody from working.
    fn watch_file(&self) -> Option<FileWatch> {
        let path = self.inner.home.config_file();
        // A folder that is not there cannot be watched.
        let made = path.parent().map_or(Ok(()), make_private);
        match made.and_then(|()| self.inner.watch(path)) {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "changes of the config go unnoticed");
                None
            }
        }
    }
}

async fn read(store: ConfigStore) -> Result<Stored, ServiceError> {
    let read = tokio::task::spawn_blocking(move || store.read()).await;
    read.unwrap_or_else(|_crashed| {
        Err(ServiceError::new(ErrorCode::Internal, "the config could not be read"))
    })
}

/// Puts the parts together. Has to be called within a tokio runtime.
fn assemble(
    home: Home,
    store: ConfigStore,
    options: ServiceOptions,
    stored: Stored,
    view: Arc<View>,
) -> LocalService {
    let mask = Mask::default();
    let secrets = SecretStore::new(home.secrets_dir());
    let values: SharedLookup =
        Arc::new(Values { secrets: secrets.clone(), others: options.lookup, mask: mask.clone() });
    let (browser, tokens) = (options.browser, home.tokens_dir());
    let logins = Logins::new(tokens, browser, Arc::clone(&values), mask.clone());
    let logins = Arc::new(logins);
    let credentials = {
        let logins = Arc::clone(&logins);
        move |server: &McpServerConfig| logins.credentials(server)
    };
    let packages = options.packages.unwrap_or_else(|| Arc::new(Installer::new(home.dir())));
    let mut builder = McpManager::builder()
        .names(options.names.unwrap_or_else(|| stored.file.names()))
        .catalog(home.catalog_dir())
        .lookup(values)
        .stdio(StdioOptions { mask: mask.clone(), ..options.stdio })
        .http(options.http)
        .credentials(Arc::new(credentials))
        .packages(packages)
        .limits(options.limits)
        .ready_wait(options.ready_wait);
    if let Some(client) = options.client {
        builder = builder.client(client);
    }
    if let Some(handler) = options.handler {
        builder = builder.handler(handler);
    }
    let stop = CancellationToken::new();
    let inner = Inner {
        manager: Arc::new(builder.build(view.configs())),
        logs: LogStore::new(home.logs_dir()),
        home,
        agent: options.agent,
        autostart: options.autostart,
        store,
        secrets,
        mask,
        logins,
        view: ArcSwap::new(view),
        writing: Mutex::new(stored.generation),
        bell: Notify::new(),
        applied: watch::Sender::new(FIRST),
        errands: TaskTracker::new(),
        tasks: TaskTracker::new(),
        recall: Mutex::new(stop.child_token()),
        stop,
    };
    LocalService { inner: Arc::new(inner), watch: Mutex::new(None) }
}
