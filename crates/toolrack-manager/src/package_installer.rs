//! Where packages are turned into servers that can be started: the hook, and what goes through it.
//!
//! **Invariant:** `Debug` shows no argument and no value of a variable or header.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use toolrack_config::{Filled, PackageKind, ResolvedTransport};
use toolrack_http::HttpServerDef;
use toolrack_stdio::{Farewell, McpServerDef, StdioOptions};
use toolrack_transport::{BoxFuture, plain_text};

use crate::events::{Bulletin, RackEvent};
use crate::failure::Failure;

/// The longest line of an installer that is passed on.
const LINE_CHARS: usize = 1000;

/// Whoever can install packages.
pub trait Packages: Send + Sync {
    /// Has a package ready to be started or reached, after installing it if it is not there.
    ///
    /// The caller's clock is [`Installation::stop`]: when that is cancelled, everything that was started ends,
    /// and then this returns.
    ///
    /// # Cancel safety
    /// Dropping the future ends what it started, without waiting.
    fn prepare(
        &self,
        wanted: WantedPackage,
        installation: Installation,
    ) -> BoxFuture<'_, Result<Prepared, Failure>>;
}

/// A package as its config wants it, with everything filled in.
#[derive(Clone, PartialEq, Eq)]
pub struct WantedPackage {
    /// The server that it is for.
    pub server: Arc<str>,
    /// Where it comes from.
    pub kind: PackageKind,
    /// Its name there.
    pub identifier: String,
    /// Which one of it. The newest, if not given.
    pub version: Option<String>,
    /// Passed to the server.
    pub args: Vec<String>,
    /// Which of its programs is the server.
    pub program: Option<String>,
    /// Passed to what runs the server.
    pub runtime_args: Vec<String>,
    /// Variables of the server.
    pub env: HashMap<String, String>,
    /// Where it runs.
    pub cwd: Option<PathBuf>,
    /// Sent with every request, if it is an endpoint.
    pub headers: HashMap<String, String>,
}

/// A package that is ready.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prepared {
    /// A process to start.
    Stdio {
        /// What to start.
        definition: McpServerDef,
        /// What to run once nothing is left of it.
        farewell: Option<Farewell>,
    },
    /// An endpoint to reach.
    Http(HttpServerDef),
}

/// One installation under way, as whoever carries it out sees it.
#[derive(Clone)]
pub struct Installation {
    pub(crate) server: Arc<str>,
    pub(crate) stdio: StdioOptions,
    pub(crate) stop: CancellationToken,
    pub(crate) begun: Arc<dyn Fn() + Send + Sync>,
    pub(crate) bulletin: Arc<Bulletin>,
}

impl Installation {
    /// Says that there is something to install. Until then the server counts as being started.
    pub fn begin(&self) {
        (self.begun)();
    }

    /// Passes on what an installer says. It is cleaned for people to see.
    pub fn say(&self, line: &str) {
        let line = plain_text(&self.stdio.mask.clean(line), LINE_CHARS);
        self.bulletin
            .tell(|| RackEvent::Install { server: Arc::clone(&self.server), line: line.into() });
    }

    /// Cancelled when nobody wants the package any more, or its time is over.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// How processes are run for this server.
    pub fn stdio(&self) -> &StdioOptions {
        &self.stdio
    }
}

/// The package that a resolved config wants, or the config itself if it wants none. Boxed because it is large.
pub(crate) fn wanted(
    server: &Arc<str>,
    resolved: ResolvedTransport,
) -> Result<WantedPackage, Box<ResolvedTransport>> {
    let reveal = |list: Vec<Filled>| list.into_iter().map(Filled::into_revealed).collect();
    match resolved {
        ResolvedTransport::Package {
            kind,
            identifier,
            version,
            args,
            program,
            runtime_args,
            env,
            cwd,
            headers,
        } => Ok(WantedPackage {
            server: Arc::clone(server),
            kind,
            identifier: identifier.into_revealed(),
            version,
            args: reveal(args),
            program,
            runtime_args: reveal(runtime_args),
            env: revealed(env),
            cwd: cwd.map(|it| PathBuf::from(it.into_revealed())),
            headers: revealed(headers),
        }),
        other => Err(Box::new(other)),
    }
}

pub(crate) fn revealed(map: HashMap<String, Filled>) -> HashMap<String, String> {
    map.into_iter().map(|(name, value)| (name, value.into_revealed())).collect()
}

impl fmt::Debug for WantedPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WantedPackage")
            .field("server", &self.server)
            .field("kind", &self.kind)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Prepared::Stdio { .. } => "Stdio",
            Prepared::Http(_) => "Http",
        };
        f.debug_struct(name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Installation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installation").field("server", &self.server).finish_non_exhaustive()
    }
}
