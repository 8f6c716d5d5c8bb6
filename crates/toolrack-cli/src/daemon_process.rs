//! The background daemon process: spawning, log file and environment.
//!
//! The daemon is this program in a session of its own. Its errors before it is ready go to its log
//! as JSON, from where they are reported here if it exits early.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use toolrack_config::{Lookup, VariableSource};
use toolrack_daemon::DaemonInfo;
use toolrack_service::{ErrorCode, ErrorDetail, Home, SharedLookup};
use tracing::Level;

use crate::args::TargetOptions;
use crate::args::daemon::DaemonStartOptions;
use crate::context::Context;
use crate::daemon_client::{log_file, unavailable};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::server_selection::{Servers, Warnings};
use crate::settings::{Settings, Variable, env_var};
use crate::suggested_command::flags;

/// Maximum time until the daemon is ready. It does not wait for its servers.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long to look for a daemon that won the race for the instance lock, if the log of ours is
/// unreadable.
const OTHER_DAEMON_WAIT: Duration = Duration::from_secs(1);
/// Maximum read from the log.
const MAX_READ_BYTES: u64 = 64 << 10;

/// Starts the daemon in the background, and waits until it is ready.
pub(crate) async fn start(
    options: &DaemonStartOptions,
    context: &Context,
) -> Result<DaemonInfo, CliError> {
    let settings = &context.settings;
    let home = settings.home()?;
    // Report config errors before creating anything.
    Servers::select(&TargetOptions::default(), Warnings::None, context)?;
    let log = log_file(home);
    make_home(home)?;
    let mut file = open_log(&log).map_err(|error| cannot_open(&log, &error))?;
    // Errors of earlier runs in the same log must not be reported as those of this one.
    let begin = file.seek(SeekFrom::End(0))?;
    let mut child = spawn(daemon_args(options, settings)?, file)?;
    let mut deadline = Instant::now() + STARTUP_TIMEOUT;
    // The error of our daemon, if another one may have won the race for the instance lock.
    let mut lost_race = None;
    loop {
        // Polls the lock file, which the daemon writes when its sockets are ready.
        let found = DaemonInfo::find(home)?;
        if let Some(running) =
            found.filter(|running| running.pid == child.id() || lost_race.is_some())
        {
            return Ok(running);
        }
        if lost_race.is_none()
            && let Some(status) = child.try_wait()?
        {
            let failure = exit_error(status.code(), &log, begin);
            match failure.summary().code {
                // Two commands started a daemon at once; the other one serves both.
                ErrorCode::Conflict => {}
                // Interleaved output of several daemons may be unreadable.
                ErrorCode::ServiceUnavailable => deadline = Instant::now() + OTHER_DAEMON_WAIT,
                _ => return Err(failure),
            }
            lost_race = Some(failure);
        }
        if Instant::now() >= deadline {
            return Err(lost_race.unwrap_or_else(|| startup_timeout(&mut child, &log)));
        }
        context.sleep(POLL_INTERVAL).await?;
    }
}

/// Why the daemon exited early, from its log.
fn exit_error(code: Option<i32>, log: &Path, begin: u64) -> CliError {
    let log_text = read_log(log, begin).unwrap_or_default();
    let exit_code =
        ExitCode::ALL.into_iter().find(|exit_code| Some(i32::from(exit_code.code())) == code);
    match (last_error(&log_text), exit_code) {
        (Some(error_detail), Some(exit_code)) => {
            CliError::from_details(exit_code, vec![error_detail])
        }
        _ => unavailable("the daemon exited before it was ready")
            .with_hint(format!("see its log: {}", log.display())),
    }
}

fn startup_timeout(child: &mut Child, log: &Path) -> CliError {
    // Its servers end with it: their guardians notice.
    let killed = child.kill().and_then(|()| child.wait());
    let message = match killed {
        Ok(_) => "the daemon was not ready in time and was stopped".to_owned(),
        Err(error) => format!("the daemon was not ready in time and cannot be stopped: {error}"),
    };
    unavailable(&message).with_hint(format!("see its log: {}", log.display()))
}

/// Arguments of the daemon process. Its errors are requested as JSON, to be parsed here.
fn daemon_args(options: &DaemonStartOptions, settings: &Settings) -> Result<Vec<String>, CliError> {
    let mut words = server_args(settings)?;
    words
        .extend(["-o", "json", "daemon", "start", "--foreground", "--detached"].map(str::to_owned));
    if let Some(listen) = options.listen.or(settings.listen) {
        words.extend(["--listen".to_owned(), listen.to_string()]);
    }
    Ok(words)
}

/// Arguments that select the current servers, for a process with another working directory.
pub(crate) fn server_args(settings: &Settings) -> Result<Vec<String>, CliError> {
    let mut words = Vec::new();
    if settings.has_explicit_config {
        let file = std::path::absolute(settings.home()?.config_file())?;
        words.extend(["--config".to_owned(), file.display().to_string()]);
    }
    if let Some(agent) = &settings.agent {
        words.extend(["--agent".to_owned(), agent.clone()]);
    }
    Ok(words)
}

fn spawn(arguments: Vec<String>, log: File) -> io::Result<Child> {
    let program = std::env::current_exe()?;
    #[expect(clippy::disallowed_methods, reason = "the daemon is this program, not a server")]
    let mut command = Command::new(program);
    if let Some(dir) = env_var(Variable::UserHome).filter(|dir| Path::new(dir).is_dir()) {
        // The daemon may outlive the current directory.
        command.current_dir(dir);
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
}

/// Opens the log for appending, readable by its owner only.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    let no_links = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(no_links).open(path)
}

/// Creates the data directory.
pub(crate) fn make_home(home: &Home) -> Result<(), CliError> {
    let dir = home.dir();
    std::fs::create_dir_all(dir).map_err(|error| {
        let hint = "check the permissions of it and its parent directories, or set \
             `TOOLRACK_HOME` to another directory";
        cannot_open(dir, &error).with_hint(hint)
    })
}

fn cannot_open(path: &Path, error: &io::Error) -> CliError {
    let message = format!("cannot create or open {}: {error}", path.display());
    CliError::from(io::Error::new(error.kind(), message))
}

fn read_log(log: &Path, begin: u64) -> io::Result<String> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last error that was printed as JSON.
fn last_error(log_text: &str) -> Option<ErrorDetail> {
    log_text.lines().rev().find_map(|line| serde_json::from_str(line).ok())
}

/// Size at which the log is rotated. One old file is kept.
const MAX_LOG_BYTES: u64 = 2 << 20;

/// A log file with rotation.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    n_bytes: u64,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = open_log(&path)?;
        let n_bytes = file.metadata()?.len();
        Ok(Self { path, file, n_bytes })
    }

    fn rotate(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, self.path.with_extension("log.old"))?;
        self.file = open_log(&self.path)?;
        self.n_bytes = 0;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.n_bytes >= MAX_LOG_BYTES {
            self.rotate()?;
        }
        let n_bytes = self.file.write(bytes)?;
        self.n_bytes = self.n_bytes.saturating_add(n_bytes as u64);
        Ok(n_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Sends tracing output to a file, or to stderr.
pub(crate) fn init_logging(path: Option<PathBuf>) -> io::Result<()> {
    let format = tracing_subscriber::fmt().with_max_level(Level::INFO).with_ansi(false);
    match path {
        Some(path) => format.with_writer(Mutex::new(LogFile::open(path)?)).init(),
        None => format.with_writer(io::stderr).init(),
    }
    Ok(())
}

/// Environment lookup of a daemon: variables set after its start never reach it, and hints say so.
pub(crate) struct DaemonEnv {
    pub(crate) values: SharedLookup,
    /// The command that starts the daemon for the same servers.
    pub(crate) start: String,
}

impl Lookup for DaemonEnv {
    fn look_up(&self, source: VariableSource, name: &str) -> Result<Option<String>, String> {
        self.values.look_up(source, name)
    }

    fn advice(&self, variable: &str) -> Option<String> {
        Some(format!(
            "the daemon was started without `{variable}`; set it, run `toolrack daemon stop`, then `{}`",
            self.start
        ))
    }
}

/// The command that starts a daemon for this config file and agent.
pub(crate) fn start_command(config: Option<&Path>, agent: Option<&str>) -> String {
    format!("toolrack {}daemon start", flags(config, agent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_error_is_found_in_the_log() {
        let json = "x\n{\"code\":\"CONFLICT\",\"message\":\"a\"}\nbye\n";
        let error_detail = last_error(json).unwrap();
        assert_eq!((error_detail.code, error_detail.message.as_str()), (ErrorCode::Conflict, "a"));
        assert!(last_error("nothing").is_none());
    }

    #[test]
    fn long_log_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        let mut log = LogFile::open(path.clone()).unwrap();
        log.write_all(&vec![b'x'; 2 << 20]).unwrap();
        log.write_all(b"new\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(std::fs::metadata(dir.path().join("daemon.log.old")).unwrap().len(), 2 << 20);
    }

    #[test]
    fn start_command_keeps_config_and_agent() {
        let check = |config: Option<&str>, agent, expected: &str| {
            assert_eq!(start_command(config.map(Path::new), agent), expected);
        };
        check(None, None, "toolrack daemon start");
        check(Some("/c.toml"), Some("a"), "toolrack --config /c.toml --agent a daemon start");
        check(Some("/my c.toml"), None, "toolrack --config '/my c.toml' daemon start");
    }
}
