//! A published package instead of a command: what it is called and where it comes from.

use std::fmt;

/// A package that is a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Package {
    /// Where it comes from, which decides how it is run.
    pub kind: PackageKind,
    /// Its name there: a package, an image, a path or an URL.
    pub identifier: String,
    /// Which one of it. The newest, if not given.
    pub version: Option<String>,
    /// Passed to the server.
    pub args: Vec<String>,
    /// Which of its programs is the server. Its own, or the only one, if not given.
    pub program: Option<String>,
    /// Passed to what runs the server, such as `docker run`.
    pub runtime_args: Vec<String>,
}

/// Where a package comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PackageKind {
    /// A package of the npm registry.
    Npm,
    /// A package of the Python package index.
    Pypi,
    /// A container image.
    Docker,
    /// A program on this machine.
    Binary,
    /// An endpoint that runs already.
    Http,
}

impl PackageKind {
    /// Every kind.
    pub const ALL: [PackageKind; 5] =
        [Self::Npm, Self::Pypi, Self::Docker, Self::Binary, Self::Http];

    /// The word for it in a config file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
            Self::Docker => "docker",
            Self::Binary => "binary",
            Self::Http => "http",
        }
    }
}

impl fmt::Debug for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Package")
            .field("kind", &self.kind)
            .field("identifier", &crate::server::without_secrets(&self.identifier))
            .field("version", &self.version)
            .field("n_args", &self.args.len())
            .field("program", &self.program)
            .field("n_runtime_args", &self.runtime_args.len())
            .finish()
    }
}
