//! Chaos proxy: a TCP proxy that delays, throttles, corrupts, cuts, resets, refuses or swallows connections.
//!
//! **Invariant:** the impairments of a connection follow from the seed, the plan and the connection number. Dropping
//! the proxy closes its port and every connection.

mod connection;
mod impairments;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

pub use impairments::ProxyPlan;

use self::connection::{CloseKind, ProxiedConnection};
use self::impairments::Impairments;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const BACKLOG: i32 = 256;
const STACK_BYTES: usize = 256 * 1024;

/// A running proxy.
#[derive(Debug)]
pub struct ChaosProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accept_thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    listener: TcpListener,
    upstream: SocketAddr,
    seed: u64,
    plan: Mutex<ProxyPlan>,
    /// Incremented with each plan, so that connections notice a change without a lock.
    epoch: AtomicU64,
    /// Incremented to reset every connection.
    breaks: AtomicU64,
    n_connections: AtomicU64,
    n_open: AtomicU64,
    stopped: AtomicBool,
}

impl ChaosProxy {
    /// Listens on a free loopback port and forwards to `upstream`.
    pub fn start(upstream: SocketAddr, plan: ProxyPlan, seed: u64) -> io::Result<Self> {
        // Bound by its number: the kernel releases a port that it chose itself when the socket stops listening.
        let chosen = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let listener = TcpListener::bind(chosen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            listener,
            upstream,
            seed,
            plan: Mutex::default(),
            epoch: AtomicU64::new(0),
            breaks: AtomicU64::new(0),
            n_connections: AtomicU64::new(0),
            n_open: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let accept_thread = Arc::clone(&shared);
        let accept_thread = Some(thread::spawn(move || accept_thread.accept()));
        let proxy = Self { address, shared, accept_thread };
        proxy.set_plan(plan)?;
        Ok(proxy)
    }

    /// Listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the plan, for open connections too, and restarts their byte counts.
    pub fn set_plan(&self, plan: ProxyPlan) -> io::Result<()> {
        let mut current = self.shared.plan.lock();
        match (current.refuses, plan.refuses) {
            // After the shutdown the socket keeps its port, and connections are refused.
            (false, true) => {
                rustix::net::shutdown(&self.shared.listener, rustix::net::Shutdown::Read)?;
            }
            (true, false) => rustix::net::listen(&self.shared.listener, BACKLOG)?,
            _ => (),
        }
        *current = plan;
        // Under the plan lock, so that no connection pairs the old plan with the new epoch.
        self.shared.epoch.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes all impairments.
    pub fn heal(&self) -> io::Result<()> {
        self.set_plan(ProxyPlan::default())
    }

    /// Resets every open connection.
    pub fn reset_all(&self) {
        self.shared.breaks.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of connections accepted so far.
    pub fn n_connections(&self) -> u64 {
        self.shared.n_connections.load(Ordering::Relaxed)
    }

    /// Number of open connections.
    pub fn n_open(&self) -> u64 {
        self.shared.n_open.load(Ordering::Relaxed)
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        if let Some(accept_thread) = self.accept_thread.take() {
            // A panicked thread has ended too.
            drop(accept_thread.join());
        }
    }
}

impl Shared {
    /// Accepts connections until the proxy is dropped.
    fn accept(self: Arc<Self>) {
        while !self.stopped.load(Ordering::Relaxed) {
            let Ok((client, _)) = self.listener.accept() else {
                // No connection is waiting, or the plan refuses them.
                thread::sleep(POLL_INTERVAL);
                continue;
            };
            let number = self.n_connections.fetch_add(1, Ordering::Relaxed);
            self.n_open.fetch_add(1, Ordering::Relaxed);
            let shared = Arc::clone(&self);
            let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
                // A failed connection is closed at once.
                shared.forward(client, number).unwrap_or_default();
                shared.n_open.fetch_sub(1, Ordering::Relaxed);
            });
            if started.is_err() {
                self.n_open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn forward(&self, client: TcpStream, number: u64) -> io::Result<()> {
        let (mut epoch, mut impairments) = self.impairments(number);
        let breaks = self.breaks.load(Ordering::Relaxed);
        let server = match TcpStream::connect_timeout(&self.upstream, CONNECT_TIMEOUT) {
            Ok(server) => server,
            Err(error) => {
                // With linger 0, dropping the socket sends an RST.
                let linger = Some(Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(&client, linger)?;
                return Err(error);
            }
        };
        let mut connection = ProxiedConnection::new(client, server)?;
        loop {
            if self.stopped.load(Ordering::Relaxed)
                || self.breaks.load(Ordering::Relaxed) != breaks
                || impairments.reset == Some(0)
            {
                connection.end(CloseKind::Reset);
                return Ok(());
            }
            if self.epoch.load(Ordering::Relaxed) != epoch {
                (epoch, impairments) = self.impairments(number);
                connection.restart_counts();
                continue;
            }
            if let Some(close_kind) = connection.step(&impairments) {
                connection.end(close_kind);
                return Ok(());
            }
        }
    }

    fn impairments(&self, number: u64) -> (u64, Impairments) {
        let plan = self.plan.lock();
        (self.epoch.load(Ordering::Relaxed), plan.sample(self.seed, number))
    }
}
