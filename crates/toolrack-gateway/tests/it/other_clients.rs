//! Third-party clients and servers with the gateway in between: over HTTP and stdio, in both eras.
//!
//! Every client lists, calls, reports progress and cancels; exceptions are noted at its test. Each is a program of its
//! own that prints `done`. Cancellations are looked for in the input of server-everything.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use toolrack_testkit::{ChildGuard, eventually, program, skipped};

/// Each test starts two interpreters and two servers, on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Records the server's input in a file.
const RECORDED: &str = r#"tee -a "$0" | exec node "$1" stdio"#;
const INSTALL: &str = "cargo xtask servers";

fn servers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers")
}

fn everything() -> PathBuf {
    servers().join("node/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

fn time() -> PathBuf {
    servers().join("python/venv/bin/mcp-server-time")
}

/// The first of these files that does not exist. A bare name is looked up in PATH when it is started.
fn missing<'a>(needed: impl IntoIterator<Item = &'a PathBuf>) -> Option<&'a PathBuf> {
    needed.into_iter().find(|path| path.is_absolute() && !path.exists())
}

/// A gateway program in front of server-everything and mcp-server-time.
#[derive(Debug)]
pub(crate) struct Endpoint {
    log: PathBuf,
}

/// An endpoint on a socket.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) url: String,
    _program: ChildGuard,
}

impl Endpoint {
    /// Records the input of server-everything in a file of this name. `Err` names a missing program.
    pub(crate) fn new(dir: &Path, name: &str) -> Result<Self, String> {
        match missing(&[everything(), time()]) {
            Some(missing) => Err(format!("{} is missing; run `{INSTALL}`", missing.display())),
            None => Ok(Self { log: dir.join(name) }),
        }
    }

    pub(crate) fn args(&self) -> Vec<String> {
        let (log, everything) =
            (self.log.display().to_string(), everything().display().to_string());
        let words = ["--server", "everything", "sh", "-c", RECORDED, &log, &everything];
        let mut args: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        args.extend(["--server".to_owned(), "time".to_owned(), time().display().to_string()]);
        args
    }

    pub(crate) fn listen(&self) -> Listening {
        let mut args = vec!["--http".to_owned(), "127.0.0.1:0".to_owned()];
        args.extend(self.args());
        let mut child = start(&program("toolrack-endpoint"), &args);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let kept = ChildGuard::new(child);
        let url = line.trim().strip_prefix("listening ").expect("the endpoint listens").to_owned();
        Listening { url, _program: kept }
    }

    /// Number of cancellations that server-everything got.
    pub(crate) fn n_cancelled(&self) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains(r#""notifications/cancelled""#)).count()
    }
}

#[expect(clippy::disallowed_methods, reason = "tests start real clients")]
fn start(program: &Path, args: &[impl AsRef<OsStr>]) -> Child {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Whether a cancellation of the client always reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cancels {
    Always,
    Sometimes,
}

/// A third-party client: its command line, its modes, and the command that installs it.
struct Client {
    command: Vec<PathBuf>,
    modes: &'static [&'static str],
    install: &'static str,
    cancels: Cancels,
}

/// Runs a client over HTTP and stdio, in every mode.
fn check(test: &str, client: &Client) {
    let dir = tempfile::tempdir().unwrap();
    let endpoints = Endpoint::new(dir.path(), "http")
        .and_then(|http| Ok((http, Endpoint::new(dir.path(), "stdio")?)));
    let (http, stdio) = match endpoints {
        Ok(endpoints) => endpoints,
        Err(reason) => return skipped(test, &reason),
    };
    if let Some(missing) = missing(&client.command) {
        let reason = format!("{} is missing; run `{}`", missing.display(), client.install);
        return skipped(test, &reason);
    }
    let listening = http.listen();
    let mut stdio_args =
        vec!["stdio".to_owned(), program("toolrack-endpoint").display().to_string()];
    stdio_args.extend(stdio.args());
    for mode in client.modes {
        for (endpoint, transport) in
            [(&http, vec!["http".to_owned(), listening.url.clone()]), (&stdio, stdio_args.clone())]
        {
            let before = endpoint.n_cancelled();
            let mut args: Vec<&OsStr> =
                client.command[1..].iter().map(|word| word.as_os_str()).collect();
            args.push(mode.as_ref());
            args.extend(transport.iter().map(OsStr::new));
            let (status, stdout, stderr) = ChildGuard::new(start(&client.command[0], &args))
                .wait_with_output(TIMEOUT)
                .unwrap();
            assert!(status.success(), "{mode} {transport:?}: {stdout}{stderr}");
            assert!(stdout.contains("done"), "{mode} {transport:?}: {stdout}{stderr}");
            if client.cancels == Cancels::Always {
                let what =
                    format!("the server gets the cancellation of {mode} over {}", transport[0]);
                eventually(TIMEOUT, &what, || endpoint.n_cancelled() == before + 1);
            }
        }
    }
}

#[test]
fn python_client() {
    let python = servers().join("python");
    let command = vec![python.join("venv/bin/python"), python.join("gateway_client.py")];
    let modes = &["legacy", "2026-07-28"];
    check("python_client", &Client { command, modes, install: INSTALL, cancels: Cancels::Always });
}

fn check_typescript(test: &str, package: &str, modes: &'static [&'static str]) {
    let node = servers().join("node");
    if !node.join("node_modules/@modelcontextprotocol").join(package).exists() {
        return skipped(test, &format!("the TypeScript {package} is missing; run `{INSTALL}`"));
    }
    let command = vec![PathBuf::from("node"), node.join("gateway-client.mjs")];
    check(test, &Client { command, modes, install: INSTALL, cancels: Cancels::Always });
}

#[test]
fn typescript_client() {
    check_typescript("typescript_client", "client", &["legacy", "auto"]);
}

/// SDK 1.x, on which most current clients are built. Legacy era only.
#[test]
fn typescript_sdk_1_client() {
    check_typescript("typescript_sdk_1_client", "sdk", &["sdk-1"]);
}

/// The official Rust SDK.
#[test]
fn rust_sdk_client() {
    let command = vec![program("toolrack-endpoint").with_file_name("rmcp-client")];
    let install = "cargo build -p toolrack-rmcp";
    let modes = &["legacy", "modern"];
    check("rust_sdk_client", &Client { command, modes, install, cancels: Cancels::Always });
}

/// mcporter, as a command line and as a library. Legacy era only.
///
/// It never requests progress. It cancels only by a timeout and then closes the connection at once, so whether the
/// server gets the cancellation is a race; the test checks that the next call works.
#[test]
fn mcporter() {
    let dir = servers().join("node/mcporter");
    let command = vec![dir.join("node_modules/node/bin/node"), dir.join("gateway-client.mjs")];
    let modes = &["cli"];
    check("mcporter", &Client { command, modes, install: INSTALL, cancels: Cancels::Sometimes });
}
