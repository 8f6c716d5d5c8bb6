//! Child processes of a scripted server: launchers, idle children, escaped daemons.
//!
//! Each is this same program in another role, so it inherits the environment and needs no `fork`.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::options::Options;
use crate::harness::command;
use crate::plan::EscapeeKind;

/// The variable by which the stdio transport finds the processes of a server.
const TAG_VARIABLE: &str = "TOOLRACK_RUN";

/// Two commands: with a single one, some shells `exec` it and disappear.
const SHELL_SCRIPT: &str = r#""$0" "$@"; exit $?"#;

/// Runs the rest of the tree below this process, like a package runner: launcher, shell, server.
pub(super) fn launch(args: Vec<String>, levels_left: u64) -> io::Result<ExitCode> {
    let mut shell = command("sh");
    shell.arg("-c").arg(SHELL_SCRIPT).arg(std::env::current_exe()?).args(args);
    let status = shell.arg("--role").arg(format!("inside:{}", levels_left - 1)).status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Starts processes that only sleep and die of the first signal.
pub(super) fn start_children(n_children: u64, options: &Options) -> io::Result<()> {
    for _ in 0..n_children {
        // Not reaped on purpose: the client under test must find them.
        drop(start("child", options, Stdio::null())?);
    }
    Ok(())
}

/// Starts a process that only keeps stdout open.
pub(super) fn start_stdout_holder(options: &Options) -> io::Result<()> {
    drop(start("child", options, Stdio::inherit())?);
    Ok(())
}

/// Starts processes in their own session and without a parent; returns when they have escaped.
pub(super) fn start_escapees(
    n_escapees: u64,
    kind: EscapeeKind,
    options: &Options,
) -> io::Result<()> {
    let role_name = match kind {
        EscapeeKind::Tagged | EscapeeKind::Untagged => "between",
        EscapeeKind::Leaderless => "between-leaderless",
    };
    let mut between = role(&format!("{role_name}:{n_escapees}"), options, Stdio::null())?;
    if kind == EscapeeKind::Untagged {
        between.env_remove(TAG_VARIABLE);
    }
    let between = between.spawn()?.wait()?;
    if between.success() { Ok(()) } else { Err(io::Error::other("no process escaped")) }
}

pub(super) fn run_intermediate(
    n_escapees: u64,
    role_name: &str,
    options: &Options,
) -> io::Result<ExitCode> {
    for _ in 0..n_escapees {
        let mut escapee = start(role_name, options, Stdio::piped())?;
        // The escapee writes a byte once it has left the session; only then may its parent exit.
        if let Some(mut pipe) = escapee.stdout.take() {
            pipe.read_exact(&mut [0])?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn run_escapee(lifetime: Duration) -> io::Result<ExitCode> {
    escape()?;
    sleep_then_exit(lifetime)
}

/// Escapes, and goes on without its main thread.
pub(super) fn run_leaderless_escapee(lifetime: Duration) -> io::Result<ExitCode> {
    escape()?;
    thread::spawn(move || sleep_then_exit(lifetime));
    exit_this_thread()
}

fn escape() -> io::Result<()> {
    rustix::process::setsid()?;
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        ignore_signal(signal)?;
    }
    io::stdout().write_all(b"\n").and_then(|()| io::stdout().flush())
}

/// Ends the calling thread and leaves the other threads of the process alone.
#[expect(unsafe_code, reason = "no safe function ends the main thread alone")]
fn exit_this_thread() -> ! {
    loop {
        // SAFETY: takes only a number. The thread runs no destructor and holds no lock that another thread takes.
        unsafe {
            libc::syscall(libc::SYS_exit, 0);
        }
    }
}

/// Stops the process that started this one.
pub(super) fn stop_parent() -> io::Result<()> {
    let parent = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
    Ok(rustix::process::kill_process(parent, rustix::process::Signal::STOP)?)
}

pub(super) fn ignore_sigterm() -> io::Result<()> {
    ignore_signal(SIGTERM)
}

/// Sleeps until the lifetime is over, then exits.
pub(super) fn sleep_then_exit(lifetime: Duration) -> ! {
    thread::sleep(lifetime);
    exit(0)
}

#[expect(clippy::exit, reason = "a plan may exit anywhere")]
pub(crate) fn exit(code: i32) -> ! {
    std::process::exit(code)
}

/// Registering any handler replaces the default action; the flag itself is unused.
fn ignore_signal(signal: i32) -> io::Result<()> {
    signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).map(|_registered| ())
}

fn start(role_name: &str, options: &Options, stdout: Stdio) -> io::Result<Child> {
    role(role_name, options, stdout)?.spawn()
}

/// This program in another role.
fn role(role: &str, options: &Options, stdout: Stdio) -> io::Result<Command> {
    let mut child = command(std::env::current_exe()?);
    child.args(["--role", role, "--lifetime", &format!("{}ms", options.lifetime.as_millis())]);
    if let Some(marker) = &options.marker {
        child.args(["--marker", marker]);
    }
    child.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
    Ok(child)
}
