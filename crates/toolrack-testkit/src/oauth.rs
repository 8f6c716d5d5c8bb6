//! OAuth server for tests: a protected MCP-like endpoint, two authorization servers and an identity provider on
//! loopback, with many faults.
//!
//! It checks codes, PKCE, registrations, client secrets and signatures, and rotates refresh tokens: a reused one
//! revokes the whole login. The authorization page consents at once.

mod authorization_server;
mod exchange;
mod fault;
mod protected_resource;
mod token_store;

use std::collections::HashSet;
use std::io::{self, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use self::exchange::Response;
pub use self::exchange::{RecordedRequest, follow_redirects, get};
pub use self::fault::Fault;
pub use self::token_store::Stats;
use self::token_store::TokenStore;
use crate::http;

const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// Initial configuration of the server.
#[derive(Debug, Clone)]
pub struct OAuthPlan {
    /// Active faults.
    pub faults: Vec<Fault>,
    /// Lifetime of access tokens.
    pub lifetime: Duration,
    /// Preregistered clients: id and secret.
    pub clients: Vec<(String, String)>,
    /// Public key (uncompressed P-256 point) of clients that sign assertions.
    pub public_key: Option<Vec<u8>>,
}

/// A running OAuth server. It stops on drop.
#[derive(Debug)]
pub struct OAuthServer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Role of one of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The protected resource.
    Resource,
    /// The authorization server.
    First,
    /// The authorization server that the resource migrates to.
    Second,
}

/// State shared by all threads.
#[derive(Debug)]
pub(crate) struct Shared {
    addresses: [SocketAddr; 3],
    plan: OAuthPlan,
    faults: Mutex<HashSet<Fault>>,
    store: Mutex<TokenStore>,
    requests: Mutex<Vec<RecordedRequest>>,
    ending: AtomicBool,
}

impl Default for OAuthPlan {
    fn default() -> Self {
        Self {
            faults: Vec::new(),
            lifetime: Duration::from_mins(10),
            clients: Vec::new(),
            public_key: None,
        }
    }
}

impl OAuthServer {
    /// Starts the server on free ports.
    pub fn start(plan: OAuthPlan) -> io::Result<Self> {
        let listeners = [
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("127.0.0.1:0")?,
        ];
        let [resource, first, second] = &listeners;
        let addresses = [resource.local_addr()?, first.local_addr()?, second.local_addr()?];
        let shared = Arc::new(Shared {
            addresses,
            faults: Mutex::new(plan.faults.iter().copied().collect()),
            store: Mutex::new(TokenStore::new(&plan.clients)),
            plan,
            requests: Mutex::default(),
            ending: AtomicBool::new(false),
        });
        let roles = [Role::Resource, Role::First, Role::Second];
        let threads = roles.into_iter().zip(listeners).map(|(role, listener)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let serving = Arc::clone(&shared);
                http::accept_each(&listener, &shared.ending, move |stream| {
                    // The client may have closed the connection.
                    handle(&serving, role, stream).unwrap_or_default();
                });
            })
        });
        let threads = threads.collect();
        Ok(Self { shared, threads })
    }

    /// The URL of the protected endpoint.
    pub fn url(&self) -> String {
        format!("{}/mcp", self.shared.origin(Role::Resource))
    }

    /// Issuer of the authorization server.
    pub fn issuer(&self) -> String {
        self.shared.origin(Role::First)
    }

    /// Issuer that the resource migrates to with [`Fault::Migrated`].
    pub fn second_issuer(&self) -> String {
        self.shared.origin(Role::Second)
    }

    /// Token endpoint of the identity provider.
    pub fn idp_token_endpoint(&self) -> String {
        format!("{}/idp/token", self.issuer())
    }

    /// Counters so far.
    pub fn stats(&self) -> Stats {
        self.shared.store.lock().stats
    }

    /// All requests so far, in order.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.requests.lock().clone()
    }

    /// Activates a fault.
    pub fn add_fault(&self, fault: Fault) {
        self.shared.faults.lock().insert(fault);
    }

    /// Deactivates a fault.
    pub fn remove_fault(&self, fault: Fault) {
        self.shared.faults.lock().remove(&fault);
    }

    /// Expires every access token.
    pub fn expire_all(&self) {
        self.shared.store.lock().expire_all();
    }

    /// Revokes every login.
    pub fn revoke_all(&self) {
        self.shared.store.lock().revoke_all();
    }
}

impl Drop for OAuthServer {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        for address in self.shared.addresses {
            // Wakes the thread in `accept`.
            drop(TcpStream::connect_timeout(&address, Duration::from_secs(1)));
        }
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_default();
        }
    }
}

/// A connection carries one request.
fn handle(shared: &Shared, role: Role, mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let request = http::read(&mut BufReader::new(&stream), &mut &stream)?;
    let Some(request) = request else { return Ok(()) };
    let request = RecordedRequest::new(role, request);
    // More than any test reads; keeps a long-running program bounded.
    if shared.requests.lock().len() < 20_000 {
        shared.requests.lock().push(request.clone());
    }
    let response = match (role, request.path.as_str()) {
        (_, "/stats") => Response::json(200, &shared.store.lock().stats),
        (Role::Resource, _) => protected_resource::handle(shared, &request),
        (Role::First | Role::Second, _) => authorization_server::handle(shared, &request),
    };
    stream.write_all(&response.to_bytes())
}

impl Shared {
    pub(crate) fn origin(&self, role: Role) -> String {
        let [resource, first, second] = self.addresses;
        let address = match role {
            Role::Resource => resource,
            Role::First => first,
            Role::Second => second,
        };
        format!("http://{address}")
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.faults.lock().contains(&fault)
    }

    /// The authorization server that the resource uses now.
    pub(crate) fn current_issuer(&self) -> Role {
        if self.has(Fault::Migrated) { Role::Second } else { Role::First }
    }
}
