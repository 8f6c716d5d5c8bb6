//! Clients of others before the gateway, and servers of others behind it: over HTTP and over a pipe, in both eras.
//!
//! Every client lists, calls, follows progress and cancels; what one of them cannot do stands at its test. Each is a
//! program of its own that says `done`, and what it cancels is looked for in what server-everything was sent.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use toolrack_testkit::{Kept, eventually, program, skipped};

/// Two interpreters and two servers start for each of these, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// Writes down what the server is sent, on its way.
const OVERHEARD: &str = r#"tee -a "$0" | exec node "$1" stdio"#;
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

/// The first of these files that is not there. A bare name is looked up by whoever starts it.
fn missing<'a>(needed: impl IntoIterator<Item = &'a PathBuf>) -> Option<&'a PathBuf> {
    needed.into_iter().find(|it| it.is_absolute() && !it.exists())
}

/// What an endpoint with server-everything and mcp-server-time behind it is started with.
#[derive(Debug)]
pub(crate) struct Endpoint {
    log: PathBuf,
}

/// An endpoint on a socket.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) url: String,
    _program: Kept,
}

impl Endpoint {
    /// One whose server-everything is overheard into a file of this name, or what this machine lacks.
    pub(crate) fn new(dir: &Path, name: &str) -> Result<Self, String> {
        match missing(&[everything(), time()]) {
            Some(missing) => Err(format!("{} is missing; run `{INSTALL}`", missing.display())),
            None => Ok(Self { log: dir.join(name) }),
        }
    }

    pub(crate) fn args(&self) -> Vec<String> {
        let (log, everything) =
            (self.log.display().to_string(), everything().display().to_string());
        let words = ["--server", "everything", "sh", "-c", OVERHEARD, &log, &everything];
        let mut args: Vec<String> = words.iter().map(|&it| it.to_owned()).collect();
        args.extend(["--server".to_owned(), "time".to_owned(), time().display().to_string()]);
        args
    }

    pub(crate) fn listen(&self) -> Listening {
        let mut args = vec!["--http".to_owned(), "127.0.0.1:0".to_owned()];
        args.extend(self.args());
        let mut child = start(&program("toolrack-endpoint"), &args);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let kept = Kept::new(child);
        let url = line.trim().strip_prefix("listening ").expect("the endpoint listens").to_owned();
        Listening { url, _program: kept }
    }

    /// How often server-everything was told that a call is cancelled.
    pub(crate) fn n_cancelled(&self) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|it| it.contains(r#""notifications/cancelled""#)).count()
    }
}

#[expect(clippy::disallowed_methods, reason = "tests start real clients")]
fn start(program: &Path, args: &[impl AsRef<OsStr>]) -> Child {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Whether what a client cancels must be heard of by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cancels {
    Surely,
    Perhaps,
}

/// A client of others: the program with its first arguments, the modes that it has, and how it is installed.
struct Client {
    words: Vec<PathBuf>,
    modes: &'static [&'static str],
    install: &'static str,
    cancels: Cancels,
}

/// Has a client do everything, over HTTP and over a pipe, in every mode that it has.
fn check(test: &str, client: &Client) {
    let dir = tempfile::tempdir().unwrap();
    let endpoints = Endpoint::new(dir.path(), "http")
        .and_then(|http| Ok((http, Endpoint::new(dir.path(), "stdio")?)));
    let (http, pipe) = match endpoints {
        Ok(endpoints) => endpoints,
        Err(reason) => return skipped(test, &reason),
    };
    if let Some(missing) = missing(&client.words) {
        let reason = format!("{} is missing; run `{}`", missing.display(), client.install);
        return skipped(test, &reason);
    }
    let listening = http.listen();
    let mut piped = vec!["stdio".to_owned(), program("toolrack-endpoint").display().to_string()];
    piped.extend(pipe.args());
    for mode in client.modes {
        for (endpoint, way) in
            [(&http, vec!["http".to_owned(), listening.url.clone()]), (&pipe, piped.clone())]
        {
            let before = endpoint.n_cancelled();
            let mut args: Vec<&OsStr> = client.words[1..].iter().map(|it| it.as_os_str()).collect();
            args.push(mode.as_ref());
            args.extend(way.iter().map(OsStr::new));
            let (status, said, complained) =
                Kept::new(start(&client.words[0], &args)).output(PATIENCE).unwrap();
            assert!(status.success(), "{mode} {way:?}: {said}{complained}");
            assert!(said.contains("done"), "{mode} {way:?}: {said}{complained}");
            if client.cancels == Cancels::Surely {
                let what = format!("the server hears that {mode} over {} cancels", way[0]);
                eventually(PATIENCE, &what, || endpoint.n_cancelled() == before + 1);
            }
        }
    }
}

#[test]
fn the_python_client() {
    let python = servers().join("python");
    let words = vec![python.join("venv/bin/python"), python.join("gateway_client.py")];
    let modes = &["legacy", "2026-07-28"];
    check(
        "the_python_client",
        &Client { words, modes, install: INSTALL, cancels: Cancels::Surely },
    );
}

fn check_typescript(test: &str, package: &str, modes: &'static [&'static str]) {
    let node = servers().join("node");
    if !node.join("node_modules/@modelcontextprotocol").join(package).exists() {
        return skipped(test, &format!("the TypeScript {package} is missing; run `{INSTALL}`"));
    }
    let words = vec![PathBuf::from("node"), node.join("gateway-client.mjs")];
    check(test, &Client { words, modes, install: INSTALL, cancels: Cancels::Surely });
}

#[test]
fn the_typescript_client() {
    check_typescript("the_typescript_client", "client", &["legacy", "auto"]);
}

/// The SDK 1.x, which most clients of today are built on. It is of the legacy era alone.
#[test]
fn the_older_typescript_client() {
    check_typescript("the_older_typescript_client", "sdk", &["sdk-1"]);
}

/// The official Rust SDK.
#[test]
fn the_rust_client() {
    let words = vec![program("toolrack-endpoint").with_file_name("rmcp-client")];
    let install = "cargo build -p toolrack-rmcp";
    let modes = &["legacy", "modern"];
    check("the_rust_client", &Client { words, modes, install, cancels: Cancels::Surely });
}

/// mcporter, as a command line and as a library. It is of the legacy era alone.
///
/// It cannot follow progress: it never asks for it. It cannot cancel but by a timeout, after which it closes the
/// connection at once, so that it is a race whether the server still hears of it; that the next call works is checked.
#[test]
fn mcporter() {
    let dir = servers().join("node/mcporter");
    let words = vec![dir.join("node_modules/node/bin/node"), dir.join("gateway-client.mjs")];
    let modes = &["cli"];
    check("mcporter", &Client { words, modes, install: INSTALL, cancels: Cancels::Perhaps });
}
