//! How a line to a server is opened, and how whatever was opened is ended for certain.
//!
//! **Invariant:** when [`Custody::release`] returns, nothing is left of any line that was opened here, even if
//! whoever asked for it has stopped waiting.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolrack_client::{Connector, HttpConnector, StdioConnector};
use toolrack_config::{
    Fault, FaultKind, Filled, McpServerConfig, Pin, ResolvedTransport, interpolate,
};
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_stdio::{Inheritance, McpServerDef, StdioOptions};
use toolrack_transport::{BoxFuture, Ending, Inbox, Line, Mask, TransportError};
use toolrack_transport::{JsonRpcError, RawJson, RequestId};

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::events::{Bulletin, RackEvent};
use crate::failure::{Failure, FailureKind};
use crate::manager::Equipment;
use crate::package_installer::{Prepared, revealed};
use crate::rate_limit::Pace;
use crate::redacting_transport::{clean, clean_refusal, masked};

/// Everything filled in that the config refers to.
pub(crate) async fn resolve(
    config: &Arc<McpServerConfig>,
    equipment: &Equipment,
) -> Result<ResolvedTransport, Failure> {
    if let Some(key) = unmet(config) {
        // Whoever asks for a wall must not get none.
        let reason = format!("`{key}` is asked for, and this build does not have it");
        let hint = format!("take `{key}` out of its entry to run it without");
        return Err(Failure::new(FailureKind::BadConfig, reason).hinting(hint));
    }
    let (wanted, lookup) = (Arc::clone(config), Arc::clone(&equipment.lookup));
    // Looking up may read files or ask a keyring, which must not hold up other servers.
    let filled = tokio::task::spawn_blocking(move || interpolate(&wanted, &*lookup)).await;
    match filled {
        Ok(Ok(resolved)) => {
            hide(&resolved, &equipment.stdio.mask);
            Ok(resolved)
        }
        Ok(Err(faults)) => Err(unresolved(&faults)),
        Err(_panicked) => {
            let reason = "the values of the config cannot be looked up";
            Err(Failure::new(FailureKind::Internal, reason))
        }
    }
}

/// Variables that name the user or the place, and let nobody in. Masking them would spoil every path in a result.
const NO_SECRETS: [&str; 8] =
    ["HOME", "HOSTNAME", "LANG", "LOGNAME", "PWD", "SHELL", "TERM", "USER"];

/// What is sent in headers proves who we are, wherever it came from.
fn hide(resolved: &ResolvedTransport, mask: &Mask) {
    let (ResolvedTransport::Http { headers, .. } | ResolvedTransport::Package { headers, .. }) =
        resolved
    else {
        return;
    };
    let found = headers.values().flat_map(Filled::found);
    for (name, value) in found.filter(|(name, _)| !NO_SECRETS.contains(name)) {
        mask.learn(name, value);
    }
}

/// What opens lines to a server that is a process or an endpoint.
pub(crate) fn connector(
    prepared: Prepared,
    config: &McpServerConfig,
    equipment: &Equipment,
) -> Arc<dyn Connector> {
    match prepared {
        Prepared::Stdio { definition, farewell } => {
            let options = StdioOptions { farewell, ..stdio_options(config, equipment) };
            Arc::new(StdioConnector::new(definition, options))
        }
        Prepared::Http(definition) => {
            let credentials = equipment.credentials.as_ref().and_then(|it| it(config));
            let options = HttpOptions {
                max_message_bytes: config.max_message_bytes,
                credentials: credentials.or_else(|| equipment.http.credentials.clone()),
                ..equipment.http.clone()
            };
            Arc::new(HttpConnector::new(definition, options))
        }
    }
}

/// A server that needs no preparation.
pub(crate) fn ready(resolved: ResolvedTransport) -> Result<Prepared, Failure> {
    match resolved {
        ResolvedTransport::Stdio { command, args, env, cwd } => {
            let definition = McpServerDef {
                command: command.into_revealed(),
                args: args.into_iter().map(Filled::into_revealed).collect(),
                env: revealed(env),
                cwd: cwd.map(|it| PathBuf::from(it.into_revealed())),
            };
            Ok(Prepared::Stdio { definition, farewell: None })
        }
        ResolvedTransport::Http { url, headers } => Ok(Prepared::Http(HttpServerDef {
            url: url.into_revealed(),
            headers: revealed(headers).into_iter().collect(),
        })),
        _ => {
            let reason = "this kind of server cannot be connected by this build";
            Err(Failure::new(FailureKind::BadConfig, reason))
        }
    }
}

pub(crate) fn stdio_options(config: &McpServerConfig, equipment: &Equipment) -> StdioOptions {
    StdioOptions {
        line_limit_bytes: config.max_message_bytes,
        inherit_env: inheritance(config),
        ..equipment.stdio.clone()
    }
}

/// What servers are told with their environment and headers is what lets them in somewhere.
fn unresolved(faults: &[Fault]) -> Failure {
    let is_credential = |it: &Fault| it.field.contains(".env.") || it.field.contains(".headers.");
    let is_missing = |it: &Fault| it.kind == FaultKind::Unresolved && is_credential(it);
    let kind = if faults.iter().any(is_missing) {
        FailureKind::MissingCredentials
    } else {
        FailureKind::BadConfig
    };
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let failure = Failure::new(kind, texts.join("; "));
    match faults.iter().find_map(|it| it.advice.as_deref()) {
        Some(advice) => failure.hinting(advice),
        None => failure,
    }
}

/// A protection that the config asks for and nobody gives yet.
fn unmet(config: &McpServerConfig) -> Option<&'static str> {
    let sandbox = config.sandbox.is_some().then_some("sandbox");
    sandbox.or((config.pin == Pin::Hold).then_some("pin"))
}

fn inheritance(config: &McpServerConfig) -> Inheritance {
    if config.inherit_env { Inheritance::Everything } else { Inheritance::default() }
}

/// A connector whose lines are ended for certain, and whose servers' error output is told.
pub(crate) struct Custody {
    /// Takes one word that nobody is there. Further ones say the same, and are dropped when it is full.
    absence: mpsc::Sender<Failure>,
    inner: Arc<dyn Connector>,
    lines: Arc<Mutex<Vec<Arc<dyn Line>>>>,
    openings: TaskTracker,
    server: Arc<str>,
    bulletin: Arc<Bulletin>,
    mask: Mask,
}

impl Custody {
    pub(crate) fn new(
        inner: Arc<dyn Connector>,
        server: &Arc<str>,
        bulletin: &Arc<Bulletin>,
        absence: mpsc::Sender<Failure>,
        mask: &Mask,
    ) -> Self {
        Self {
            mask: mask.clone(),
            absence,
            inner,
            lines: Arc::default(),
            openings: TaskTracker::new(),
            server: Arc::clone(server),
            bulletin: Arc::clone(bulletin),
        }
    }

    /// Ends every line that was opened, and waits for one that is just being opened.
    pub(crate) async fn release(&self) {
        self.openings.close();
        self.openings.wait().await;
        close_all(&self.lines).await;
    }
}

impl Connector for Custody {
    fn open(&self, inbox: Arc<dyn Inbox>) -> BoxFuture<'_, Result<Arc<dyn Line>, TransportError>> {
        let inbox: Arc<dyn Inbox> = Arc::new(Tap {
            inbox,
            server: Arc::clone(&self.server),
            bulletin: Arc::clone(&self.bulletin),
            absence: self.absence.clone(),
            mask: self.mask.clone(),
            pace: Pace::new(Instant::now()),
        });
        let (inner, lines) = (Arc::clone(&self.inner), Arc::clone(&self.lines));
        let mask = self.mask.clone();
        let (teller, told) = oneshot::channel();
        // In a task of its own, so that a caller who stops waiting does not leave half a process behind.
        self.openings.spawn(async move {
            close_all(&lines).await;
            let opened = inner.open(inbox).await.map(|line| masked(line, &mask));
            if let Ok(line) = &opened {
                lock(&lines).push(Arc::clone(line));
            }
            if teller.send(opened).is_err() {
                tracing::debug!("nobody waits for a line any more; it will be closed");
            }
        });
        Box::pin(async move { told.await.unwrap_or(Err(TransportError::Shutdown)) })
    }

    fn description(&self) -> String {
        self.inner.description()
    }

    fn launcher(&self) -> Option<&str> {
        self.inner.launcher()
    }
}

async fn close_all(lines: &Mutex<Vec<Arc<dyn Line>>>) {
    let lines = std::mem::take(&mut *lock(lines));
    for line in lines {
        line.close().await;
    }
}

fn lock(lines: &Mutex<Vec<Arc<dyn Line>>>) -> MutexGuard<'_, Vec<Arc<dyn Line>>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An inbox without what must not be seen, that also tells what the server writes to its error output, and when nobody is there any more.
struct Tap {
    inbox: Arc<dyn Inbox>,
    server: Arc<str>,
    bulletin: Arc<Bulletin>,
    absence: mpsc::Sender<Failure>,
    mask: Mask,
    pace: Pace,
}

impl Tap {
    fn tell(&self, line: &str) {
        let event = || RackEvent::Stderr { server: Arc::clone(&self.server), line: line.into() };
        self.bulletin.tell(event);
    }

    fn tell_left_out(&self, n_lines: u64) {
        if n_lines > 0 {
            self.tell(&format!("({n_lines} lines were left out)"));
        }
    }
}

impl Inbox for Tap {
    fn request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        self.inbox.request(id, method, params.map(|it| clean(it, &self.mask)));
    }

    fn request_about(&self, about: u64, id: RequestId, method: &str, params: Option<RawJson>) {
        self.inbox.request_about(about, id, method, params.map(|it| clean(it, &self.mask)));
    }

    fn notification(&self, method: &str, params: Option<RawJson>) {
        self.inbox.notification(method, params.map(|it| clean(it, &self.mask)));
    }

    fn stray(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        let (raw, refusal) = (|it| clean(it, &self.mask), |it| clean_refusal(it, &self.mask));
        self.inbox.stray(id, outcome.map(raw).map_err(refusal));
    }

    fn unreadable(&self, sample: &str) {
        self.inbox.unreadable(sample);
    }

    fn stderr(&self, line: &str) {
        if let Some(n_left_out) = self.pace.admit(Instant::now()) {
            self.tell_left_out(n_left_out);
            self.tell(line);
        }
        self.inbox.stderr(line);
    }

    fn renewed(&self) {
        self.inbox.renewed();
    }

    fn unreachable(&self, reason: &TransportError) {
        let told = self.absence.try_send(Failure::of_absence(reason));
        told.unwrap_or_else(|_known| tracing::trace!(server = &*self.server, "known to be gone"));
        self.inbox.unreachable(reason);
    }

    fn ended(&self, ending: &Ending) {
        self.tell_left_out(self.pace.left_out());
        self.inbox.ended(ending);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use toolrack_config::{McpTransport, Source};

    use super::*;

    #[test]
    fn what_is_filled_into_headers_is_masked() {
        let header = |text: &str| ("Authorization".to_owned(), text.to_owned());
        let headers = HashMap::from([header("Bearer ${TOKEN} ${NONE:-a default} ${USER}")]);
        let url = "https://${HOST}/".to_owned();
        let transport = McpTransport::Http { url, headers };
        let config = McpServerConfig { transport, ..McpServerConfig::stdio("s", "x", &[]) };
        let values = |_source: Source, name: &str| match name {
            "TOKEN" => Ok(Some("t0ken-value".to_owned())),
            "HOST" => Ok(Some("host.example".to_owned())),
            "USER" => Ok(Some("somebody".to_owned())),
            _ => Ok(None),
        };
        let mask = Mask::default();
        hide(&interpolate(&config, &values).unwrap(), &mask);
        let text = "Bearer t0ken-value a default somebody at host.example";
        assert_eq!(mask.clean(text), "Bearer [secret TOKEN] a default somebody at host.example");
    }
}
