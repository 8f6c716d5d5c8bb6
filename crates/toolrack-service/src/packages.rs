//! Packages that become servers: installed if they are not there, and turned into what is started or reached.
//!
//! What to do is planned as data ([`plan`](install_plan::plan)); this file and `runner` carry it out. An npm or PyPI
//! package gets a folder of its own, from which its server is started directly: later starts are fast, need no
//! network, and have no package manager between us and the server.
//!
//! **Invariant:** a package that was not installed to its end is never started.

mod docker;
mod entry_point;
mod find_binary;
mod install_dir;
mod install_error;
mod install_plan;
mod runner;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

use toolrack_http::HttpServerDef;
use toolrack_manager::{Failure, FailureKind, Installation, Packages, Prepared, WantedPackage};
use toolrack_stdio::{McpServerDef, find_program, new_mark};
use toolrack_transport::BoxFuture;

use install_dir::Place;
use install_plan::{Folder, Recipe, Site, Tools, plan};
use runner::Worker;

/// Installs packages and says how their servers are started.
pub struct Installer {
    dir: PathBuf,
    env: HashMap<String, String>,
}

impl Installer {
    /// An installer that keeps packages in the folder `packages` of this one.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { dir: data_dir.into().join("packages"), env: HashMap::new() }
    }

    /// A variable for everything that is run here, in place of ours. `PATH` is also where programs are found.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    async fn ready(
        &self,
        wanted: WantedPackage,
        installation: Installation,
    ) -> Result<Prepared, Failure> {
        let worker = Worker { env: &self.env, installation: &installation };
        let path = self.env.get("PATH").map(OsStr::new);
        let tools = Tools::found(|program| find_program(program, path).is_ok());
        let attempt = new_mark();
        match plan(&wanted, tools, Site { root: &self.dir, attempt: &attempt })? {
            Recipe::Endpoint { url } => {
                let headers = wanted.headers.into_iter().collect();
                Ok(Prepared::Http(HttpServerDef { url, headers }))
            }
            Recipe::Program { command } => {
                // Relative to where it will run, as a shell would have it.
                find_binary::check(&command, path, wanted.cwd.as_deref())?;
                Ok(self.stdio(command, wanted))
            }
            Recipe::Folder(folder) => {
                let program = self.installed(&folder, &worker).await?;
                Ok(self.stdio(program.to_string_lossy().into_owned(), wanted))
            }
            Recipe::Image(image) => docker::prepare(&image, wanted, &worker).await,
        }
    }

    /// The program of a package in its folder, after installing it if it is not there.
    async fn installed(&self, folder: &Folder, worker: &Worker<'_>) -> Result<PathBuf, Failure> {
        let place = Place::new(&folder.place);
        if let Some(program) = place.program() {
            return Ok(program);
        }
        worker.installation.begin();
        let lock = place.lock(worker.installation).await?;
        // Whoever held the lock before may have done the work.
        if let Some(program) = place.program() {
            return Ok(program);
        }
        place.clear().await;
        place.make(&folder.dir)?;
        let outcome = install(folder, worker).await;
        match &outcome {
            Ok(program) => place.finish(program)?,
            Err(_failure) => place.clear().await,
        }
        drop(lock);
        outcome
    }

    fn stdio(&self, command: String, wanted: WantedPackage) -> Prepared {
        let mut env = self.env.clone();
        env.extend(wanted.env);
        let definition = McpServerDef { command, args: wanted.args, env, cwd: wanted.cwd };
        Prepared::Stdio { definition, farewell: None }
    }
}

async fn install(folder: &Folder, worker: &Worker<'_>) -> Result<PathBuf, Failure> {
    for step in &folder.steps {
        let finished = worker.run(&step.program, &step.args, Some(&folder.dir)).await?;
        if !finished.is_success() {
            return Err(install_error::judge(folder, step, &finished));
        }
    }
    entry_point::find(folder).map_err(|reason| {
        let reason = format!("`{}` was installed, but {reason}", folder.spec);
        Failure::new(FailureKind::InstallFailed, reason)
            .hinting("say which one is the server with `package.program`")
    })
}

impl Packages for Installer {
    fn prepare(
        &self,
        wanted: WantedPackage,
        installation: Installation,
    ) -> BoxFuture<'_, Result<Prepared, Failure>> {
        Box::pin(self.ready(wanted, installation))
    }
}

impl fmt::Debug for Installer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installer").field("dir", &self.dir).finish_non_exhaustive()
    }
}
