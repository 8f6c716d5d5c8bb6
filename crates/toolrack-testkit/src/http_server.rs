//! Real MCP servers over HTTP for tests: started on a free port, restarted on the same one, and killed at the end.
//!
//! **Invariant:** a stopped or dropped server leaves no process.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::harness::command;
use crate::process::Marker;
use crate::programs::program;
use crate::wait::poll;

/// Longer than any of these servers takes to listen, even on a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Kills a server that ignores stdin at the end of stdin, so a killed test leaves no process.
const SUPERVISOR_SCRIPT: &str = r#""$0" "$@" </dev/null & cat >/dev/null; kill -9 $!"#;
const TAIL_BYTES: usize = 8 * 1024;
/// Below the ephemeral port range.
const FIRST_PORT: u32 = 20_000;
const N_PORTS: u32 = 10_000;

/// Directory of the installed servers, and the script of server-everything in it.
const SERVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/servers");
const EVERYTHING: &str = "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
/// Placeholder of the port in arguments, and the variable that server-everything reads.
const PORT: &str = "PORT";

/// Last bytes of a server's stderr.
type StderrTail = Arc<Mutex<Vec<u8>>>;

/// An HTTP server that tests can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpServerKind {
    /// `scripted-server --http` with more arguments.
    Scripted(Vec<String>),
    /// npm server-everything, Streamable HTTP with sessions, TypeScript SDK 1.x.
    Everything,
    /// npm server-everything, HTTP+SSE of 2024-11-05.
    EverythingSse,
    /// PyPI fastmcp, both eras.
    FastMcp,
    /// fastmcp with OAuth login at its own authorization server.
    FastMcpLogin,
    /// PyPI mcp 1.x with sessions and resumable streams.
    Mcp1,
    /// PyPI mcp 1.x without sessions.
    Mcp1Stateless,
    /// PyPI mcp 2.x, both eras.
    Mcp2,
}

/// A running server.
#[derive(Debug)]
pub struct HttpServer {
    kind: HttpServerKind,
    address: SocketAddr,
    marker: Marker,
    child: Option<Child>,
}

impl HttpServerKind {
    /// The scripted server with these arguments.
    pub fn scripted(args: &[&str]) -> Self {
        Self::Scripted(args.iter().map(|arg| (*arg).to_owned()).collect())
    }

    /// Why the server cannot run here; `None` if it can.
    pub fn unavailable_reason(&self) -> Option<String> {
        let (interpreter, script, _) = self.installed()?;
        // Node comes from the system, so only its script can be checked.
        let is_missing = |path: &PathBuf| path.is_absolute() && !path.exists();
        let missing = [interpreter, script].into_iter().find(is_missing)?;
        Some(format!("{} is missing; run `cargo xtask servers`", missing.display()))
    }

    /// Interpreter, script and arguments of an installed server; `None` for a scripted one.
    fn installed(&self) -> Option<(PathBuf, PathBuf, &'static [&'static str])> {
        let root = PathBuf::from(SERVERS);
        let node = |args: &'static [&'static str]| {
            Some((PathBuf::from("node"), root.join(EVERYTHING), args))
        };
        let python = |dir: &str, script: &str, args: &'static [&'static str]| {
            let dir = root.join(dir);
            Some((dir.join("venv/bin/python"), dir.join(script), args))
        };
        match self {
            Self::Scripted(_) => None,
            Self::Everything => node(&["streamableHttp"]),
            Self::EverythingSse => node(&["sse"]),
            Self::FastMcp => python("python/fastmcp", "server.py", &[PORT]),
            Self::FastMcpLogin => python("python/fastmcp", "server.py", &[PORT, "login"]),
            Self::Mcp1 => python("python/mcp1", "server.py", &[PORT]),
            Self::Mcp1Stateless => python("python/mcp1", "server.py", &[PORT, "stateless"]),
            Self::Mcp2 => python("python", "mcp2_server.py", &[PORT]),
        }
    }

    /// Command for a server on this port; a scripted server may choose its own.
    fn command(&self, port: u16) -> Command {
        let port = port.to_string();
        if let Self::Scripted(args) = self {
            let mut server = command(program("scripted-server"));
            server.args(["--http", &format!("127.0.0.1:{port}")]).args(args);
            return server;
        }
        let (interpreter, script, args) = self.installed().unwrap_or_default();
        let args = args.iter().map(|arg| if *arg == PORT { port.as_str() } else { arg });
        let mut shell = command("sh");
        shell.args(["-c", SUPERVISOR_SCRIPT]).arg(interpreter).arg(script).args(args);
        shell.env(PORT, &port);
        shell
    }
}

impl HttpServer {
    /// Starts a server and waits until it listens.
    ///
    /// Fails when its program cannot be started, or with `TimedOut` when it does not listen within a minute.
    pub fn start(kind: HttpServerKind) -> io::Result<Self> {
        // A scripted server prints its port, so it needs no reserved one.
        let port = match kind {
            HttpServerKind::Scripted(_) => 0,
            _ => free_port()?,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Self { kind, address, marker: Marker::new(), child: None };
        server.launch()?;
        Ok(server)
    }

    /// The URL to give to a client.
    pub fn url(&self) -> String {
        let path = if self.kind == HttpServerKind::EverythingSse { "sse" } else { "mcp" };
        format!("http://{}/{path}", self.address)
    }

    /// Listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Marker of all its processes.
    pub fn marker(&self) -> &Marker {
        &self.marker
    }

    /// Pid of the started process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the server and all its child processes; afterwards its port is free.
    pub fn kill(&mut self) {
        self.marker.kill_survivors();
        if let Some(mut child) = self.child.take() {
            // It may have exited by itself; either way it is reaped.
            child.kill().unwrap_or_default();
            drop(child.wait());
        }
        // A process loses its environment before its sockets are closed.
        poll(KILL_TIMEOUT, || !is_listening(self.address));
    }

    /// Kills the server and starts a new one on the same port.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        self.launch()
    }

    /// Starts the server again after `kill`, on the same port.
    pub fn launch(&mut self) -> io::Result<()> {
        let (name, value) = self.marker.env_var();
        let mut server = self.kind.command(self.address.port());
        let prints_address = matches!(self.kind, HttpServerKind::Scripted(_));
        let stdout = if prints_address { Stdio::piped() } else { Stdio::null() };
        server.env(name, value).stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
        let mut child = server.spawn()?;
        let line = child.stdout.take().map(read_address);
        let errors = child.stderr.take().map(capture_stderr).unwrap_or_default();
        self.child = Some(child);
        let address = match line {
            Some(line) => line.recv_timeout(START_TIMEOUT).ok().flatten(),
            None => poll(START_TIMEOUT, || is_listening(self.address)).then_some(self.address),
        };
        self.address = address.ok_or_else(|| {
            let stderr = String::from_utf8_lossy(&errors.lock()).into_owned();
            let why = format!("the server does not listen; last output: {stderr}");
            io::Error::new(io::ErrorKind::TimedOut, why)
        })?;
        Ok(())
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a free port outside of the ephemeral range, because the server binds it only seconds later. Each port is
/// returned once.
fn free_port() -> io::Result<u16> {
    static N_ASSIGNED: AtomicU32 = AtomicU32::new(0);
    // Each process starts at another offset.
    let begin = std::process::id().wrapping_mul(97);
    for _ in 0..N_PORTS {
        let step = begin.wrapping_add(N_ASSIGNED.fetch_add(1, Ordering::Relaxed)) % N_PORTS;
        let port = u16::try_from(FIRST_PORT + step).map_err(io::Error::other)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port is free"))
}

/// Whether a server listens. Connecting to a port without a listener can connect the socket to itself.
fn is_listening(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
        .and_then(|stream| stream.local_addr())
        .is_ok_and(|own| own != address)
}

/// Parses the address that a scripted server prints first. The thread ends with the server.
fn read_address(pipe: impl Read + Send + 'static) -> mpsc::Receiver<Option<SocketAddr>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut line = String::new();
        // A server that exits without output has no address.
        BufReader::new(pipe).read_line(&mut line).unwrap_or_default();
        let url = line.strip_prefix("listening http://").and_then(|rest| rest.split('/').next());
        // The receiver may have given up.
        sender.send(url.and_then(|url| url.trim().parse().ok())).unwrap_or_default();
    });
    receiver
}

/// Keeps the last bytes of stderr. The thread ends with the server.
fn capture_stderr(mut pipe: impl Read + Send + 'static) -> StderrTail {
    let tail = StderrTail::default();
    let kept = Arc::clone(&tail);
    thread::spawn(move || {
        let mut some = [0; 4096];
        while let Ok(n_bytes @ 1..) = pipe.read(&mut some) {
            let mut kept = kept.lock();
            kept.extend_from_slice(some.get(..n_bytes).unwrap_or_default());
            let excess = kept.len().saturating_sub(TAIL_BYTES);
            kept.drain(..excess);
        }
    });
    tail
}
