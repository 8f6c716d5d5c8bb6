//! What can be chosen when a service is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use toolrack_auth::Browser;
use toolrack_client::{ClientHandler, Limits};
use toolrack_config::Names;
use toolrack_http::HttpOptions;
use toolrack_manager::Packages;
use toolrack_mcp::Implementation;
use toolrack_stdio::StdioOptions;

use crate::variable_lookup::SharedLookup;

/// What can be chosen when a service is opened. The default is for a program that does one thing and ends: it
/// starts nothing by itself, and does not follow the file.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Whose servers these are. Without one, those that every agent has.
    pub agent: Option<String>,
    /// Who knows variables and files that configs refer to, such as `${HOME}`. Secrets come from the store.
    pub lookup: Option<SharedLookup>,
    /// Which servers are started by themselves.
    pub autostart: Autostart,
    /// Whether changes of the file are followed.
    pub follow: Follow,
    /// Who answers what servers ask.
    pub handler: Option<Arc<dyn ClientHandler>>,
    /// How much is taken from each server.
    pub limits: Limits,
    /// Who shows login pages to the user. Without one, a login that is needed is an error that says so.
    pub browser: Option<Arc<dyn Browser>>,
    /// How public names of tools are made. As the file says, unless set.
    pub names: Option<Names>,
    /// How child processes are run.
    pub stdio: StdioOptions,
    /// Who installs packages. Our own installer, unless set.
    pub packages: Option<Arc<dyn Packages>>,
    /// How servers over HTTP are reached.
    pub http: HttpOptions,
    /// Who we say we are. Toolrack itself, unless set.
    pub client: Option<Implementation>,
    /// How long opening waits for servers that are slow to start; they go on by themselves.
    pub ready_wait: Duration,
}

/// Which servers are started by themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Autostart {
    /// None: each one is started when somebody says so.
    #[default]
    Nothing,
    /// All that are enabled, now and when they are added.
    Enabled,
}

/// Whether changes of the file are followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Follow {
    /// They are.
    Yes,
    /// Not until the service is told to look.
    #[default]
    No,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            agent: None,
            lookup: None,
            autostart: Autostart::default(),
            follow: Follow::default(),
            handler: None,
            limits: Limits::default(),
            browser: None,
            names: None,
            stdio: StdioOptions::default(),
            packages: None,
            http: HttpOptions::default(),
            client: None,
            ready_wait: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for ServiceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceOptions")
            .field("agent", &self.agent)
            .field("autostart", &self.autostart)
            .field("follow", &self.follow)
            .field("names", &self.names)
            .field("stdio", &self.stdio)
            .field("ready_wait", &self.ready_wait)
            .finish_non_exhaustive()
    }
}
