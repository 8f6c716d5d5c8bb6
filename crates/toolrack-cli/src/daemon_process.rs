//! Starting the daemon in the background, and waiting until it can be used.
//!
//! It is this program once more, in a session of its own. What it says before it can be used goes into its log, from
//! where it is repeated here if it ends too soon.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use toolrack_daemon::Running;
use toolrack_service::{ErrorCode, Home, ServiceFault};

use crate::args::daemon::DaemonStartOptions;
use crate::context::Surroundings;
use crate::daemon_client::log_file;
use crate::error::Failure;
use crate::exit_code::Verdict;
use crate::server_selection::Servers;
use crate::settings::{Settings, Variable, of_process};

/// How long it may take until the daemon can be used. It does not wait for its servers.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);
/// How long somebody else may take to be the daemon, if ours has ended and it cannot be read why.
const UNSAID: Duration = Duration::from_secs(1);
/// What is read of a log at most.
const LARGEST_BYTES: u64 = 64 << 10;

/// Starts the daemon of this home in the background, and waits until it can be used.
pub(crate) async fn start(
    options: &DaemonStartOptions,
    surroundings: &Surroundings,
) -> Result<Running, Failure> {
    let settings = &surroundings.settings;
    let home = settings.home()?;
    // What cannot work is said before anything is made.
    Servers::must_be_sound(settings)?;
    let log = log_file(home);
    make_home(home)?;
    let mut file = open_log(&log).map_err(|error| unusable(&log, &error))?;
    let begin = file.seek(SeekFrom::End(0))?;
    let mut child = spawn(arguments(options, settings)?, file)?;
    let mut deadline = Instant::now() + PATIENCE;
    // Why it has ended, if somebody else was faster and may only need a moment to say so.
    let mut beaten = None;
    loop {
        let found = Running::find(home)?;
        if let Some(running) = found.filter(|it| it.pid == child.id() || beaten.is_some()) {
            return Ok(running);
        }
        if beaten.is_none()
            && let Some(status) = child.try_wait()?
        {
            let failure = ended(status.code(), &log, begin);
            match failure.summary().code {
                ErrorCode::Conflict => {}
                // What several daemons say at once may be unreadable.
                ErrorCode::ServiceUnavailable => deadline = Instant::now() + UNSAID,
                _ => return Err(failure),
            }
            beaten = Some(failure);
        }
        if Instant::now() >= deadline {
            return Err(beaten.unwrap_or_else(|| too_late(&mut child, &log)));
        }
        let pause = async {
            sleep(LOOK).await;
            Ok(())
        };
        surroundings.unless_stopped(pause).await?;
    }
}

/// Why the daemon has ended before it could be used.
fn ended(code: Option<i32>, log: &Path, begin: u64) -> Failure {
    let said = last_words(log, begin).unwrap_or_default();
    let verdict = Verdict::ALL.into_iter().find(|it| Some(i32::from(it.code())) == code);
    match (fault_in(&said), verdict) {
        (Some(fault), Some(verdict)) => Failure::all(verdict, vec![fault]),
        _ => Failure::new(
            Verdict::Unreachable,
            ErrorCode::ServiceUnavailable,
            "the daemon ended before it could be used",
            format!("its log is {}", log.display()),
        ),
    }
}

fn too_late(child: &mut Child, log: &Path) -> Failure {
    let killed = child.kill().and_then(|()| child.wait());
    let message = match killed {
        Ok(_) => "the daemon does not get ready, and was ended".to_owned(),
        Err(error) => format!("the daemon does not get ready, and cannot be ended: {error}"),
    };
    let hint = format!("its log is {}", log.display());
    Failure::new(Verdict::Unreachable, ErrorCode::ServiceUnavailable, message, hint)
}

/// What the program is told to become the daemon. Its failures are to be read by a program.
fn arguments(options: &DaemonStartOptions, settings: &Settings) -> io::Result<Vec<String>> {
    let mut words: Vec<String> =
        ["-o", "json", "daemon", "start", "--foreground", "--detached"].map(str::to_owned).into();
    if settings.is_config_given
        && let Ok(home) = settings.home()
    {
        let file = std::path::absolute(home.config_file())?;
        words.extend(["--config".to_owned(), file.display().to_string()]);
    }
    if let Some(agent) = &settings.agent {
        words.extend(["--agent".to_owned(), agent.clone()]);
    }
    if let Some(listen) = options.listen.or(settings.listen) {
        words.extend(["--listen".to_owned(), listen.to_string()]);
    }
    Ok(words)
}

fn spawn(arguments: Vec<String>, log: File) -> io::Result<Child> {
    let program = std::env::current_exe()?;
    #[expect(clippy::disallowed_methods, reason = "the daemon is this program, not a server")]
    let mut command = Command::new(program);
    if let Some(dir) = of_process(Variable::UserHome).filter(|it| Path::new(it).is_dir()) {
        // It may live longer than the folder that we are in.
        command.current_dir(dir);
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
}

/// The log, for its owner alone.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    let no_links = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(no_links).open(path)
}

/// Makes the folder of a home, unless it is there.
pub(crate) fn make_home(home: &Home) -> Result<(), Failure> {
    let dir = home.dir();
    std::fs::create_dir_all(dir).map_err(|error| {
        let hint = "check its rights and those of the folders above it, or set `TOOLRACK_HOME` to another folder";
        unusable(dir, &error).advising(hint)
    })
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    let message = format!("{} cannot be made or opened: {error}", path.display());
    Failure::from(io::Error::new(error.kind(), message))
}

fn last_words(log: &Path, begin: u64) -> io::Result<String> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut said = Vec::new();
    file.take(LARGEST_BYTES).read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// The last failure that a program has written as JSON.
fn fault_in(said: &str) -> Option<ServiceFault> {
    said.lines().rev().find_map(|it| serde_json::from_str(it).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failure_is_found_among_other_lines() {
        let said = "x\n{\"code\":\"CONFLICT\",\"message\":\"a\"}\nbye\n";
        let fault = fault_in(said).unwrap();
        assert_eq!((fault.code, fault.message.as_str()), (ErrorCode::Conflict, "a"));
        assert!(fault_in("nothing").is_none());
    }
}
