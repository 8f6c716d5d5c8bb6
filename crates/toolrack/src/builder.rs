//! How a rack is set up: from a file, from code, or from both.
//!
//! Why a rack cannot be opened.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use toolrack_client::ClientHandler;
use toolrack_config::{ConfigFile, Fault, Lookup, McpServerConfig, Names};
use toolrack_http::HttpOptions;
use toolrack_manager::{FileWatch, McpManager, RackBuilder, RackError};
use toolrack_mcp::Implementation;
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_transport::Credentials;

use crate::config_source::{Environment, Selection, load};
use crate::toolrack::Toolrack;

/// Everything that can be set about a rack. Made by [`Toolrack::builder`].
#[must_use = "nothing happens until it is opened"]
#[derive(Default)]
pub struct ToolrackBuilder {
    path: Option<PathBuf>,
    selection: Selection,
    lookup: Option<Arc<dyn Lookup + Send + Sync>>,
    names: Option<Names>,
    stdio: StdioOptions,
    manager: RackBuilder,
}

impl ToolrackBuilder {
    /// A config file, which is followed from then on.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Which agent of the file this is. It has the servers of every agent, and its own.
    pub fn agent(mut self, id: impl Into<String>) -> Self {
        self.selection.agent = Some(id.into());
        self
    }

    /// Adds a server. It takes the place of one with the same name in the file. Its name has to be one that a file
    /// may have: not empty, and without slashes.
    pub fn server(mut self, config: McpServerConfig) -> Self {
        self.selection.servers.push(config);
        self
    }

    /// Denies tools on every server, as a name or as a pattern such as `write_*`. Each call adds one.
    pub fn deny(mut self, pattern: impl Into<String>) -> Self {
        self.selection.deny.push(pattern.into());
        self
    }

    /// Who knows the values that configs refer to, such as `${TOKEN}` or `${secret:name}`.
    ///
    /// Unless this is set, variables come from the environment of the process and files from the machine, with
    /// relative paths beginning at the folder of the config file; there are no secrets. An [`Environment`] can be
    /// asked for what the caller does not know.
    pub fn lookup(mut self, lookup: impl Lookup + Send + Sync + 'static) -> Self {
        self.lookup = Some(Arc::new(lookup));
        self
    }

    /// Who speaks for the user at each server over HTTP. Asked with each connection.
    pub fn credentials<F>(mut self, credentials: F) -> Self
    where
        F: Fn(&McpServerConfig) -> Option<Arc<dyn Credentials>> + Send + Sync + 'static,
    {
        self.manager = self.manager.credentials(Arc::new(credentials));
        self
    }

    /// Where tools are remembered between runs, so that those of a server with `start = "lazy"` are listed before
    /// it runs. Nothing is remembered unless this is set.
    pub fn tool_cache(mut self, dir: impl Into<PathBuf>) -> Self {
        self.manager = self.manager.catalog(dir);
        self
    }

    /// How public names of tools are made. As the file says, unless set.
    pub fn names(mut self, names: Names) -> Self {
        self.names = Some(names);
        self
    }

    /// Who watches over child processes. This program itself if it called [`init`](crate::init), unless set.
    pub fn guardian(mut self, guardian: Guardian) -> Self {
        self.stdio.guardian = guardian;
        self
    }

    /// How servers over HTTP are reached. Limits are those of each config.
    pub fn http(mut self, options: HttpOptions) -> Self {
        self.manager = self.manager.http(options);
        self
    }

    /// Who we say we are. Toolrack itself, unless set.
    pub fn client(mut self, client: Implementation) -> Self {
        self.manager = self.manager.client(client);
        self
    }

    /// Who answers what servers ask. Without one, nothing is offered to them.
    pub fn handler(mut self, handler: Arc<dyn ClientHandler>) -> Self {
        self.manager = self.manager.handler(handler);
        self
    }

    /// How long [`open`](Self::open) waits for slow servers. Five seconds, unless set, which is too short for the
    /// first start of a server that has to be fetched: see [`Toolrack::ready`].
    pub fn ready_wait(mut self, wait: Duration) -> Self {
        self.manager = self.manager.ready_wait(wait);
        self
    }

    /// Reads the file, starts every server, and follows the file from then on.
    ///
    /// Returns when every server is connected or has failed, and at the latest after the time set with
    /// [`ready_wait`](Self::ready_wait); what is slower goes on by itself, and [`Toolrack::ready`] waits for it. A
    /// server that fails is no error: see [`Toolrack::servers`].
    ///
    /// The runtime in which this is called has to run for as long as the rack is used. It needs its timer and its IO
    /// (`enable_all`).
    ///
    /// # Cancel safety
    /// Dropping the future ends whatever was started.
    pub async fn open(self) -> Result<Toolrack, OpenError> {
        Handle::try_current().map_err(|_none| OpenError::NoRuntime)?;
        self.selection.check()?;
        let (file, warnings) = match self.path.clone() {
            Some(path) => read(path).await?,
            None => (ConfigFile::default(), Vec::new()),
        };
        let servers = self.selection.servers(&file);
        let lookup = self.lookup.unwrap_or_else(|| process_environment(self.path.as_deref()));
        let names = self.names.unwrap_or_else(|| file.names());
        let manager = self.manager.names(names).lookup(lookup).stdio(self.stdio);
        let manager = Arc::new(manager.build(servers.clone()));
        manager.connect_all().await.map_err(OpenError::Start)?;
        let watch =
            self.path.and_then(|path| watch_config(&manager, path, servers, self.selection));
        Ok(Toolrack::new(manager, watch, warnings))
    }
}

async fn read(path: PathBuf) -> Result<(ConfigFile, Vec<Fault>), OpenError> {
    let shown_path = path.clone();
    let loaded = tokio::task::spawn_blocking(move || load(&path)).await;
    loaded.unwrap_or_else(|panicked| {
        Err(OpenError::Unreadable { path: shown_path, source: io::Error::other(panicked) })
    })
}

fn process_environment(path: Option<&Path>) -> Arc<dyn Lookup + Send + Sync> {
    let dir = path.and_then(Path::parent).unwrap_or(Path::new(""));
    Arc::new(Environment::from_process().with_base_dir(dir))
}

/// Follows the file. A machine that cannot watch files does not keep an agent from working.
fn watch_config(
    manager: &McpManager,
    path: PathBuf,
    servers: Vec<McpServerConfig>,
    selection: Selection,
) -> Option<FileWatch> {
    let reload = move |path: &Path, text: &str| selection.reload(path, text);
    match manager.watch_file(&path, servers, Arc::new(reload)) {
        Ok(watch) => Some(watch),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "changes of the config go unnoticed");
            None
        }
    }
}

impl fmt::Debug for ToolrackBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolrackBuilder")
            .field("path", &self.path)
            .field("selection", &self.selection)
            .field("manager", &self.manager)
            .finish_non_exhaustive()
    }
}

/// Why a rack cannot be opened. [`with_causes`](crate::with_causes) gives the whole reason in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The config file is not there or cannot be read.
    #[error("the config file {} cannot be read", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no tokio runtime that the servers could run in.
    #[error("a rack has to be opened within a tokio runtime")]
    NoRuntime,
    /// The config file, or a server from code, cannot be used. Its text names every fault with its place, one to a line.
    #[error("{}", DiagnosticLines(.diagnostics))]
    Invalid {
        /// Everything that is wrong, in the order of the file and then of the code. Warnings are among them.
        diagnostics: Vec<Fault>,
    },
    /// The manager does not take orders.
    #[error("the servers cannot be started")]
    Start(#[source] RackError),
}

/// Faults as people read them: one to a line.
pub(crate) struct DiagnosticLines<'a>(pub(crate) &'a [Fault]);

impl fmt::Display for DiagnosticLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_char('\n')?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}
