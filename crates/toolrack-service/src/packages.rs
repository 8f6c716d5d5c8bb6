//! Packages that become servers: installed if they are not there, and turned into what is started or reached.
//!
//! What to do is planned as data ([`plan`](install_plan::plan)); this file and `runner` carry it out. An npm or PyPI
//! package gets a folder of its own, from which its server is started directly: later starts are fast, need no
//! network, and have no package manager between us and the server.
//!
//! **Invariant:** a package that was not installed to its end is never started.

mod docker;
mod executable;
mod install_error;
mod install_plan;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use install_plan::{Folder, Recipe, Site, Tools, plan};
use tokio::time::sleep;
use toolrack_http::HttpServerDef;
use toolrack_manager::{
    Failure, FailureKind, Installation, Packages, Prepared, WantedPackage, with_causes,
};
use toolrack_stdio::{
    Finished, Inheritance, McpServerDef, Run, StdioOptions, find_program, new_mark, run,
};
use toolrack_transport::{BoxFuture, SpawnFault, TransportError};

use crate::atomic_file::make_private;

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
                executable::check_binary(&command, path, wanted.cwd.as_deref())?;
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
    executable::find_entry_point(folder).map_err(|reason| {
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

/// Where package managers and their version managers keep their settings. Servers do not get these, because
/// tokens are among them.
const SETTINGS: &[&str] =
    &["npm_config_", "NPM_CONFIG_", "PIP_", "UV_", "PYENV_", "NVM_", "VOLTA_", "ASDF_", "MISE_"];

/// The clock of an installation is its owner's; this only keeps a forgotten one from going on forever.
const LIMIT: Duration = Duration::from_hours(24);

/// Runs commands for one installation.
pub(super) struct Worker<'a> {
    pub(super) env: &'a HashMap<String, String>,
    pub(super) installation: &'a Installation,
}

impl Worker<'_> {
    /// Runs a step of an installation, and passes on what it says.
    pub(super) async fn run(
        &self,
        program: &str,
        args: &[String],
        cwd: Option<&Path>,
    ) -> Result<Finished, Failure> {
        self.execute(program, args, (cwd, LIMIT), &|line| self.installation.say(line)).await
    }

    /// Asks a program something that it knows at once.
    pub(super) async fn ask(
        &self,
        program: &str,
        args: &[&str],
        limit: Duration,
    ) -> Result<Finished, Failure> {
        let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        self.execute(program, &args, (None, limit), &|_line| {}).await
    }

    async fn execute(
        &self,
        program: &str,
        args: &[String],
        (cwd, limit): (Option<&Path>, Duration),
        heard: &(dyn Fn(&str) + Sync),
    ) -> Result<Finished, Failure> {
        let definition = McpServerDef {
            command: program.to_owned(),
            args: args.to_vec(),
            env: self.env.clone(),
            cwd: cwd.map(Path::to_owned),
        };
        let given = self.installation.stdio();
        let inherit_env = match given.inherit_env {
            Inheritance::Everything => Inheritance::Everything,
            _ => Inheritance::ListedAnd(SETTINGS),
        };
        let options = StdioOptions { inherit_env, farewell: None, ..given.clone() };
        let how = Run { options: &options, limit, stop: self.installation.stop(), heard };
        run(&definition, how).await.map_err(|error| run_failure(program, &error))
    }
}

fn run_failure(program: &str, error: &TransportError) -> Failure {
    let kind = match error {
        TransportError::Spawn(SpawnFault::NotFound { .. } | SpawnFault::NoSuchFile(_)) => {
            FailureKind::MissingTool
        }
        TransportError::Shutdown => FailureKind::Stopped,
        TransportError::Timeout(_) => FailureKind::InstallTimedOut,
        _ => FailureKind::InstallFailed,
    };
    Failure::new(kind, format!("`{program}` could not be run to its end: {}", with_causes(error)))
}

/// Names the program of a package that is complete.
const STAMP: &str = ".toolrack-program";

/// How often a lock that somebody else holds is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// The folder of one package.
pub(super) struct Place {
    dir: PathBuf,
}

/// Held while a package is installed. Let go when it is dropped, also by a crash.
pub(super) struct Lock(#[expect(dead_code, reason = "the lock goes with its file")] File);

impl Place {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The program of the package, if it is completely there.
    pub(super) fn program(&self) -> Option<PathBuf> {
        let program = PathBuf::from(fs::read_to_string(self.dir.join(STAMP)).ok()?);
        program.is_file().then_some(program)
    }

    /// Waits for the lock. Other processes, and other servers with the same package, wait for theirs.
    pub(super) async fn lock(&self, installation: &Installation) -> Result<Lock, Failure> {
        let parent = self.dir.parent().unwrap_or(&self.dir);
        let open = || {
            make_private(parent)?;
            File::create(self.dir.with_added_extension("lock"))
        };
        let file = open().map_err(|error| self.unusable(&error))?;
        let mut is_told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(file)),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(self.unusable(&error)),
            }
            if !std::mem::replace(&mut is_told, true) {
                installation.say("the package is being installed by somebody else; waiting");
            }
            tokio::select! {
                () = installation.stop().cancelled() => {
                    return Err(Failure::new(FailureKind::Stopped, "it was stopped"));
                }
                () = sleep(TRY_AGAIN) => {}
            }
        }
    }

    /// Removes what earlier attempts have left. The installer of a killed process may still be ending and hold on
    /// to its folder; then that is left to whoever comes next.
    pub(super) async fn clear(&self) {
        let dir = self.dir.clone();
        let cleared = tokio::task::spawn_blocking(move || {
            fs::remove_file(dir.join(STAMP)).or_else(ignore_missing)?;
            let entries = fs::read_dir(&dir)?.flatten().map(|it| it.path());
            for attempt in entries.filter(|it| it.is_dir()) {
                fs::remove_dir_all(attempt).or_else(ignore_missing)?;
            }
            Ok::<(), io::Error>(())
        });
        if let Ok(Err(error)) = cleared.await {
            tracing::debug!(dir = %self.dir.display(), %error, "an earlier attempt stays for now");
        }
    }

    /// Makes the folder of an attempt.
    pub(super) fn make(&self, attempt: &Path) -> Result<(), Failure> {
        make_private(attempt).map_err(|error| self.unusable(&error))
    }

    /// Says that the package is complete.
    pub(super) fn finish(&self, program: &Path) -> Result<(), Failure> {
        let draft = self.dir.join(format!("{STAMP}.new"));
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(program.as_os_str().as_encoded_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, self.dir.join(STAMP))
        };
        write().map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &io::Error) -> Failure {
        let reason = format!("the folder `{}` cannot be used: {error}", self.dir.display());
        Failure::new(FailureKind::InstallFailed, reason)
            .hinting("check who may write there, and how much room is left")
    }
}

/// What is not there need not be removed.
fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
