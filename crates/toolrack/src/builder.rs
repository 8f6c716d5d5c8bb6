//! `ToolrackBuilder`: options of the facade, from a config file, from code, or both.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use toolrack_client::ClientHandler;
use toolrack_config::{ConfigFile, Diagnostic, Lookup, McpServerConfig, ToolNaming};
use toolrack_http::HttpOptions;
use toolrack_manager::{Environment, ManagerBuilder, ManagerError};
use toolrack_mcp::Implementation;
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_transport::Credentials;

use crate::config_source::{Selection, load};
use crate::toolrack::Toolrack;

/// Options of a [`Toolrack`]. Made by [`Toolrack::builder`].
#[must_use = "does nothing until `open`"]
#[derive(Default)]
pub struct ToolrackBuilder {
    path: Option<PathBuf>,
    selection: Selection,
    lookup: Option<Arc<dyn Lookup + Send + Sync>>,
    names: Option<ToolNaming>,
    manager: ManagerBuilder,
}

impl ToolrackBuilder {
    /// Reads and watches a config file.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Selects an agent of the file. It has the default servers and its own.
    pub fn agent(mut self, id: impl Into<String>) -> Self {
        self.selection.agent = Some(id.into());
        self
    }

    /// Adds a server. It replaces a server with the same name in the file. Its name must not be empty or contain
    /// slashes.
    pub fn server(mut self, config: McpServerConfig) -> Self {
        self.selection.servers.push(config);
        self
    }

    /// Denies tools on every server, by name or by a pattern such as `write_*`. Each call adds one.
    pub fn deny(mut self, pattern: impl Into<String>) -> Self {
        self.selection.deny.push(pattern.into());
        self
    }

    /// Sets the source of values that configs refer to, such as `${TOKEN}` or `${secret:name}`.
    ///
    /// By default, variables come from the process environment and files are relative to the config file's
    /// directory; there are no secrets. A custom lookup can fall back to an [`Environment`].
    pub fn lookup(mut self, lookup: impl Lookup + Send + Sync + 'static) -> Self {
        self.lookup = Some(Arc::new(lookup));
        self
    }

    /// Sets the credentials of HTTP servers. Called for each connection.
    pub fn credentials<F>(mut self, credentials: F) -> Self
    where
        F: Fn(&McpServerConfig) -> Option<Arc<dyn Credentials>> + Send + Sync + 'static,
    {
        self.manager = self.manager.credentials(Arc::new(credentials));
        self
    }

    /// Sets the directory of the tool cache, so that the tools of a server with `start = "lazy"` are listed before
    /// it runs. Without one, nothing is cached.
    pub fn tool_cache(mut self, dir: impl Into<PathBuf>) -> Self {
        self.manager = self.manager.tool_cache(dir);
        self
    }

    /// Sets how public tool names are built. Defaults to the file's settings.
    pub fn names(mut self, names: ToolNaming) -> Self {
        self.names = Some(names);
        self
    }

    /// Sets the guardian of child processes. Defaults to this program, if it called [`init`](crate::init).
    pub fn guardian(mut self, guardian: Guardian) -> Self {
        self.manager = self.manager.stdio(StdioOptions { guardian, ..StdioOptions::default() });
        self
    }

    /// Sets the HTTP options. Limits come from each server's config.
    pub fn http(mut self, options: HttpOptions) -> Self {
        self.manager = self.manager.http(options);
        self
    }

    /// Sets the client info sent to servers. Defaults to Toolrack.
    pub fn client(mut self, client: Implementation) -> Self {
        self.manager = self.manager.client_info(client);
        self
    }

    /// Sets the handler for server requests. Without one, no client capabilities are declared.
    pub fn handler(mut self, handler: Arc<dyn ClientHandler>) -> Self {
        self.manager = self.manager.handler(handler);
        self
    }

    /// Sets how long [`open`](Self::open) waits for slow servers. Defaults to five seconds, which is too short for
    /// the first start of a server that has to be installed: see [`Toolrack::ready`].
    pub fn ready_wait(mut self, wait: Duration) -> Self {
        self.manager = self.manager.ready_wait(wait);
        self
    }

    /// Reads the file, starts every server, and watches the file.
    ///
    /// Returns when every server is connected or has failed, at the latest after
    /// [`ready_wait`](Self::ready_wait); slower servers keep connecting, and [`Toolrack::ready`] waits for them. A
    /// failed server is not an error: see [`Toolrack::servers`].
    ///
    /// The Tokio runtime that calls this must outlive the [`Toolrack`]. It needs time and IO (`enable_all`).
    ///
    /// # Cancel safety
    /// Dropping the future stops all servers.
    pub async fn open(self) -> Result<Toolrack, OpenError> {
        // Otherwise `build` would panic.
        Handle::try_current().map_err(|_none| OpenError::NoRuntime)?;
        self.selection.check()?;
        let (file, warnings) = match self.path.clone() {
            Some(path) => read(path).await?,
            None => (ConfigFile::default(), Vec::new()),
        };
        let servers = self.selection.servers(&file);
        let lookup = self.lookup.unwrap_or_else(|| {
            let dir = self.path.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
            Arc::new(Environment::from_process().with_base_dir(dir))
        });
        let names = self.names.unwrap_or_else(|| file.names());
        let manager = self.manager.names(names).lookup(lookup);
        let manager = Arc::new(manager.build(servers.clone()));
        manager.connect_all().await.map_err(OpenError::Start)?;
        let watch = self.path.and_then(|path| {
            let selection = self.selection;
            let reload = move |path: &Path, text: &str| selection.reload(path, text);
            let watch = manager.watch_file(&path, servers, Arc::new(reload));
            // Without file watching the agent still works, so a failure is only logged.
            let log = |error: &io::Error| {
                tracing::warn!(%error, path = %path.display(), "cannot watch the config file");
            };
            watch.inspect_err(log).ok()
        });
        let watch = Arc::new(Mutex::new(watch));
        Ok(Toolrack { manager, watch, warnings: warnings.into() })
    }
}

async fn read(path: PathBuf) -> Result<(ConfigFile, Vec<Diagnostic>), OpenError> {
    let shown_path = path.clone();
    let loaded = tokio::task::spawn_blocking(move || load(&path)).await;
    loaded.unwrap_or_else(|panic| {
        Err(OpenError::Unreadable { path: shown_path, source: io::Error::other(panic) })
    })
}

impl fmt::Debug for ToolrackBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolrackBuilder").finish_non_exhaustive()
    }
}

/// Why opening failed. [`error_chain`](crate::error_chain) joins the error and its causes in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The config file does not exist or cannot be read.
    #[error("cannot read the config file {}", path.display())]
    Unreadable {
        /// Config file.
        path: PathBuf,
        /// IO error.
        source: io::Error,
    },
    /// There is no Tokio runtime.
    #[error("no tokio runtime is running")]
    NoRuntime,
    /// The config file, or a server from code, is invalid. The message has one line per diagnostic.
    #[error("{}", join_lines(.diagnostics))]
    Invalid {
        /// All diagnostics, first of the file, then of the code. Includes warnings.
        diagnostics: Vec<Diagnostic>,
    },
    /// The manager is closed.
    #[error("cannot start the servers")]
    Start(#[source] ManagerError),
}

/// Diagnostics, one per line.
pub(crate) fn join_lines(diagnostics: &[Diagnostic]) -> String {
    let lines: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
