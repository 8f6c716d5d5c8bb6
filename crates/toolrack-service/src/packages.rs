//! Package installer: installs npm and PyPI packages and Docker images, and returns how their servers are started.
//!
//! [`plan_install`] decides what to do, as data; this module carries it out. An npm or PyPI package gets a directory of
//! its own, and its server is started from there directly: later starts are fast, need no network, and have no package
//! manager between Toolrack and the server. With a `runtime_hint`, that program runs the package instead.
//!
//! **Invariant:** a package whose installation did not complete is never started.

mod docker;
mod executable;
mod install_error;
mod install_plan;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use install_plan::{InstallPlan, PackageInstall, plan_install};
use tokio::time::sleep;
use toolrack_http::HttpServerDef;
use toolrack_manager::{
    ErrorKind, Failure, Installation, PackageInstaller, PackageRequest, PreparedServer, error_chain,
};
use toolrack_platform::{create_private_dir, read_at_most, replace};
use toolrack_stdio::{
    CommandOutput, EnvInheritance, McpServerDef, RunOptions, StdioOptions, find_program,
    new_process_tag, run_command,
};
use toolrack_transport::{BoxFuture, SpawnError, TransportError};

/// Installs packages and returns how their servers are started.
pub struct Installer {
    dir: PathBuf,
    env: HashMap<String, String>,
}

impl Installer {
    /// An installer that keeps packages in `data_dir/packages`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { dir: data_dir.into().join("packages"), env: HashMap::new() }
    }

    /// Sets an environment variable for installers and servers. `PATH` is also where programs are searched.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    fn stdio(&self, command: String, wanted: PackageRequest) -> PreparedServer {
        let mut env = self.env.clone();
        // The variables of the server take precedence.
        env.extend(wanted.env);
        let definition = McpServerDef { command, args: wanted.package.args, env, cwd: wanted.cwd };
        PreparedServer::Stdio { definition, cleanup: None }
    }
}

impl PackageInstaller for Installer {
    fn prepare(
        &self,
        wanted: PackageRequest,
        installation: Installation,
    ) -> BoxFuture<'_, Result<PreparedServer, Failure>> {
        Box::pin(async move {
            let runner = CommandRunner { env: &self.env, installation: &installation };
            let path = self.env.get("PATH").map(OsStr::new);
            let has_program = |program: &str| find_program(program, path).is_ok();
            // Names the owner of the attempt, so that two processes never write into one directory.
            let attempt = new_process_tag();
            match plan_install(&wanted.package, has_program, &self.dir, &attempt)? {
                InstallPlan::Endpoint { url } => {
                    let headers = wanted.headers.into_iter().collect();
                    Ok(PreparedServer::Http(HttpServerDef { url, headers }))
                }
                InstallPlan::Binary { command } => {
                    // A relative path is relative to the server's working directory, as in a shell.
                    executable::check_binary(&command, path, wanted.cwd.as_deref())?;
                    Ok(self.stdio(command, wanted))
                }
                InstallPlan::Package(install) => {
                    let program = install.ensure_installed(&runner).await?;
                    Ok(self.stdio(program.to_string_lossy().into_owned(), wanted))
                }
                InstallPlan::Runner { program, mut args } => {
                    let mut wanted = wanted;
                    args.append(&mut wanted.package.args);
                    wanted.package.args = args;
                    Ok(self.stdio(program, wanted))
                }
                InstallPlan::Image { runtime, image } => {
                    docker::prepare(runtime, &image, wanted, &runner).await
                }
            }
        })
    }
}

impl fmt::Debug for Installer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Installer").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Environment variables of package managers and version managers. Only installers get them; servers do not, because
/// tokens are among them.
const PASSED_PREFIXES: &[&str] =
    &["npm_config_", "NPM_CONFIG_", "PIP_", "UV_", "PYENV_", "NVM_", "VOLTA_", "ASDF_", "MISE_"];

/// The caller limits an installation by its own timeout; this is only an upper bound.
const MAX_DURATION: Duration = Duration::from_hours(24);

/// Runs the commands of one installation.
pub(super) struct CommandRunner<'a> {
    pub(super) env: &'a HashMap<String, String>,
    pub(super) installation: &'a Installation,
}

impl CommandRunner<'_> {
    /// Runs a command of the installation and forwards its output.
    pub(super) async fn run(
        &self,
        program: &str,
        args: &[String],
        cwd: Option<&Path>,
    ) -> Result<CommandOutput, Failure> {
        let report = |line: &str| self.installation.report_output(line);
        self.execute(program, args, (cwd, MAX_DURATION), &report).await
    }

    /// Runs a command that returns at once, without forwarding its output.
    pub(super) async fn query(
        &self,
        program: &str,
        args: &[&str],
        timeout: Duration,
    ) -> Result<CommandOutput, Failure> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.execute(program, &args, (None, timeout), &|_line| {}).await
    }

    async fn execute(
        &self,
        program: &str,
        args: &[String],
        (cwd, timeout): (Option<&Path>, Duration),
        on_line: &(dyn Fn(&str) + Sync),
    ) -> Result<CommandOutput, Failure> {
        let definition = McpServerDef {
            command: program.to_owned(),
            args: args.to_vec(),
            env: self.env.clone(),
            cwd: cwd.map(Path::to_owned),
        };
        let base = self.installation.stdio();
        let inherit_env = match base.inherit_env {
            EnvInheritance::All => EnvInheritance::All,
            _ => EnvInheritance::AllowlistAnd(PASSED_PREFIXES),
        };
        let options = StdioOptions { inherit_env, cleanup: None, ..base.clone() };
        let run_options = RunOptions {
            options: &options,
            timeout,
            cancel: self.installation.stop(),
            on_stderr: on_line,
        };
        run_command(&definition, run_options).await.map_err(|error| run_failure(program, &error))
    }
}

fn run_failure(program: &str, error: &TransportError) -> Failure {
    let kind = match error {
        TransportError::Spawn(SpawnError::NotFound { .. } | SpawnError::NoSuchFile(_)) => {
            ErrorKind::MissingTool
        }
        TransportError::Shutdown => ErrorKind::Stopped,
        TransportError::Timeout(_) => ErrorKind::InstallTimedOut,
        _ => ErrorKind::InstallFailed,
    };
    Failure::new(kind, format!("cannot run `{program}`: {}", error_chain(error)))
}

/// Marker file of a complete installation; it holds the path of the executable.
const COMPLETE_FILE: &str = ".toolrack-program";
/// It holds a path.
const MAX_MARKER_BYTES: u64 = 64 << 10;

/// Pause between two attempts to take the lock.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// The directory of one package is shared by all processes of a user. Each attempt to install it has a subdirectory
/// of its own. The marker file names the executable in the attempt that completed.
///
/// **Invariant:** the marker is written last and removed first, so the installation that it names is complete; only
/// the holder of the lock starts an attempt.
impl PackageInstall {
    /// The executable of the package, which is installed first if needed.
    async fn ensure_installed(&self, runner: &CommandRunner<'_>) -> Result<PathBuf, Failure> {
        // Without the lock: the usual start, of a package that is installed.
        if let Some(program) = self.executable() {
            return Ok(program);
        }
        runner.installation.report_started();
        let lock = self.lock(runner.installation).await?;
        // Another process may have installed it while this one waited for the lock.
        if let Some(program) = self.executable() {
            return Ok(program);
        }
        self.remove_attempts().await;
        create_private_dir(&self.attempt_dir).map_err(|error| self.unusable(&error))?;
        let outcome = self.run_commands(runner).await;
        match &outcome {
            // Still under the lock: a waiting process checks for the marker as soon as it
            // gets the lock.
            Ok(program) => {
                let marker = self.package_dir.join(COMPLETE_FILE);
                replace(&marker, program.as_os_str().as_encoded_bytes())
                    .map_err(|error| self.unusable(&error))?;
            }
            Err(_failure) => self.remove_attempts().await,
        }
        drop(lock);
        outcome
    }

    async fn run_commands(&self, runner: &CommandRunner<'_>) -> Result<PathBuf, Failure> {
        for command in &self.commands {
            let finished =
                runner.run(&command.program, &command.args, Some(&self.attempt_dir)).await?;
            if !finished.is_success() {
                return Err(install_error::install_failure(self, command, &finished));
            }
        }
        executable::find_entry_point(self).map_err(|reason| {
            let reason = format!("`{}` was installed, but {reason}", self.spec);
            Failure::new(ErrorKind::InstallFailed, reason)
                .with_hint("choose the server's executable with `package.program`")
        })
    }

    /// The executable, if the installation is complete.
    fn executable(&self) -> Option<PathBuf> {
        let marker = self.package_dir.join(COMPLETE_FILE);
        let program = PathBuf::from(read_at_most(&marker, MAX_MARKER_BYTES).ok()?);
        // The user may have cleared the directory, or moved the home: then the marker names
        // a missing file.
        program.is_file().then_some(program)
    }

    /// Waits for the lock, which other processes and other servers with the same package take too. The kernel
    /// releases it when the file is closed or the process dies.
    async fn lock(&self, installation: &Installation) -> Result<File, Failure> {
        let parent = self.package_dir.parent().unwrap_or(&self.package_dir);
        let open = || {
            create_private_dir(parent)?;
            // Beside the directory and not in it: removing old attempts must not remove the lock.
            File::create(self.package_dir.with_added_extension("lock"))
        };
        let file = open().map_err(|error| self.unusable(&error))?;
        let mut is_reported = false;
        loop {
            // Not a blocking `lock`: the wait must end when the server is stopped.
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(self.unusable(&error)),
            }
            if !std::mem::replace(&mut is_reported, true) {
                installation.report_output("another process is installing the package; waiting");
            }
            tokio::select! {
                () = installation.stop().cancelled() => {
                    return Err(Failure::new(ErrorKind::Stopped, "the installation was stopped"));
                }
                () = sleep(LOCK_POLL) => {}
            }
        }
    }

    /// Removes earlier attempts. The installer of a killed process may still be running and write into its directory;
    /// then the rest is left to the next installation, which has another directory.
    async fn remove_attempts(&self) {
        let dir = self.package_dir.clone();
        let removed = tokio::task::spawn_blocking(move || {
            // The marker first: without it no process starts what is being removed.
            fs::remove_file(dir.join(COMPLETE_FILE)).or_else(ignore_missing)?;
            let entries = fs::read_dir(&dir)?.flatten().map(|entry| entry.path());
            for attempt in entries.filter(|path| path.is_dir()) {
                fs::remove_dir_all(attempt).or_else(ignore_missing)?;
            }
            Ok::<(), io::Error>(())
        });
        if let Ok(Err(error)) = removed.await {
            tracing::debug!(dir = %self.package_dir.display(), %error, "cannot remove an earlier installation attempt");
        }
    }

    fn unusable(&self, error: &io::Error) -> Failure {
        let reason = format!("cannot use the directory `{}`: {error}", self.package_dir.display());
        Failure::new(ErrorKind::InstallFailed, reason)
            .with_hint("check its permissions and the free disk space")
    }
}

/// Treats a missing file as removed.
fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
