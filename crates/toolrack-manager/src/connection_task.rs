//! One launch of a server, from its start until nothing is left of it. Each runs in a task of its own.
//!
//! **Invariant:** the last word of a launch is [`News::Gone`], and nothing of it runs after that.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use toolrack_client::{
    ClientBuilder, ConnectError, Connector, Event as ClientEvent, Events, McpClient, Timeouts,
    Verdict,
};
use toolrack_config::McpServerConfig;

use crate::catch_panic::caught;
use crate::connection_state::ConnectPhase;
use crate::connector::{Custody, connector, ready, resolve, stdio_options};
use crate::events::{Bulletin, RackEvent};
use crate::failure::{Failure, FailureKind};
use crate::in_flight::{Clock, Usage};
use crate::lifecycle::event::Epoch;
use crate::manager::Equipment;
use crate::package_installer::{Installation, Prepared, WantedPackage, wanted};
use crate::rate_limit::Pace;
use crate::server_snapshot::Link;
use crate::tool_refresh::Asked;

/// How long one start may keep others waiting. A server that hangs holds up nobody for longer.
const TURN: Duration = Duration::from_millis(500);

/// How long calls may take that were on their way when a new one found nobody. A server that is being replaced
/// may still finish them. Nobody waits longer for them than for a process that is told to end.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// How long an installer may take to end. Its processes are killed before that.
const END_LIMIT: Duration = Duration::from_secs(8);

/// What a launch needs to know.
pub(crate) struct Launch {
    pub(crate) server: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) config: Arc<McpServerConfig>,
    pub(crate) remembered: Option<Verdict>,
    pub(crate) equipment: Arc<Equipment>,
    pub(crate) bulletin: Arc<Bulletin>,
    /// So many servers start at once.
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) stop: CancellationToken,
    /// The actor always reads, so a full channel is emptied soon.
    pub(crate) reports: mpsc::Sender<Report>,
}

/// What the actor is told about a launch.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) server: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) news: News,
}

#[derive(Debug)]
pub(crate) enum News {
    Phase(ConnectPhase),
    Opened(Arc<Link>),
    OpenFailed(Failure),
    ToolsChanged,
    Lost(Failure),
    Gone,
}

/// Tells from anywhere how far a launch has come.
struct Herald {
    server: Arc<str>,
    epoch: Epoch,
    reports: mpsc::Sender<Report>,
}

impl Herald {
    /// Never waits: a phase that is not shown because everything is busy does no harm.
    fn tell(&self, phase: ConnectPhase) {
        let (server, news) = (Arc::clone(&self.server), News::Phase(phase));
        let report = Report { server, epoch: self.epoch, news };
        self.reports.try_send(report).unwrap_or_else(|error| tracing::debug!(%error, "not shown"));
    }
}

fn stopped() -> Failure {
    Failure::new(FailureKind::Stopped, "it was stopped")
}

impl Launch {
    pub(crate) async fn run(self) {
        match self.connector().await {
            Err(failure) => self.report(News::OpenFailed(failure)).await,
            Ok(inner) => {
                // One word that nobody is there is enough; when it is full, that is known already.
                let (finder, absence) = mpsc::channel(1);
                let mask = &self.equipment.stdio.mask;
                let custody = Custody::new(inner, &self.server, &self.bulletin, finder, mask);
                let custody = Arc::new(custody);
                self.hold(&custody, absence).await;
                custody.release().await;
            }
        }
        self.report(News::Gone).await;
    }

    async fn connector(&self) -> Result<Arc<dyn Connector>, Failure> {
        let prepared = self.prepare().await?;
        // The program is asked for credentials here.
        caught(async { connector(prepared, &self.config, &self.equipment) }).await
    }

    /// Fills in what the config refers to, and installs what has to be.
    async fn prepare(&self) -> Result<Prepared, Failure> {
        let resolved = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(stopped()),
            resolved = timeout(self.config.startup_timeout, resolve(&self.config, &self.equipment)) => {
                let reason = "the values of the config could not be looked up in time";
                let late = || Failure::new(FailureKind::Internal, reason);
                resolved.unwrap_or_else(|_elapsed| Err(late()))?
            }
        };
        match wanted(&self.server, resolved) {
            Ok(package) => self.install(package).await,
            Err(resolved) => ready(*resolved),
        }
    }

    /// Has a package ready. Its clock is its own, and whatever it starts has ended when this returns.
    async fn install(&self, package: WantedPackage) -> Result<Prepared, Failure> {
        let Some(packages) = &self.equipment.packages else {
            let reason = "a package has to be turned into a command first";
            let hint = "use a program that can install packages, or give `command` or `url`";
            return Err(Failure::new(FailureKind::BadConfig, reason).hinting(hint));
        };
        let (stop, herald) = (self.stop.child_token(), self.herald());
        let installation = Installation {
            server: Arc::clone(&self.server),
            stdio: stdio_options(&self.config, &self.equipment),
            stop: stop.clone(),
            begun: Arc::new(move || herald.tell(ConnectPhase::Installing)),
            bulletin: Arc::clone(&self.bulletin),
        };
        let mut work = packages.prepare(package, installation);
        let limit = self.config.install_timeout;
        let given_up = tokio::select! {
            biased;
            () = self.stop.cancelled() => stopped(),
            outcome = &mut work => return outcome,
            () = sleep(limit) => {
                let reason = format!("the package was not installed within {limit:?}");
                Failure::new(FailureKind::InstallTimedOut, reason)
                    .hinting("allow more time with `install_timeout`, or look at the network")
            }
        };
        stop.cancel();
        if timeout(END_LIMIT, work).await.is_err() {
            tracing::warn!(
                server = &*self.server,
                "an installer does not end; left to its guardian"
            );
        }
        Err(given_up)
    }

    /// Connects, and stays until the connection ends or is to be ended.
    async fn hold(&self, custody: &Arc<Custody>, mut absence: mpsc::Receiver<Failure>) {
        let outcome = tokio::select! {
            biased;
            () = self.stop.cancelled() => return,
            // The program is asked what it can do for the server in here.
            outcome = caught(self.connect(custody)) => outcome,
        };
        let outcome = outcome.and_then(|it| it.map_err(|error| Failure::of_connecting(&error)));
        let client = match outcome {
            Ok(client) => client,
            Err(failure) => return self.report(News::OpenFailed(failure)).await,
        };
        if let Ok(failure) = absence.try_recv() {
            tracing::debug!(server = &*self.server, %failure, "it was found in the end");
        }
        // Listening begins before anybody knows of the connection, so that no change is missed.
        let events = client.subscribe();
        let clock = if self.config.idle.is_some() { Clock::Needed } else { Clock::Unneeded };
        let link = Arc::new(Link {
            client,
            usage: Usage::new(clock),
            epoch: self.epoch,
            asked: Asked::default(),
        });
        self.report(News::Opened(Arc::clone(&link))).await;
        tokio::select! {
            biased;
            Some(failure) = absence.recv() => {
                self.report(News::Lost(failure)).await;
                self.see_out(&link).await;
            }
            () = self.attend(events) => {}
        }
        let ending = link.client.close().await;
        tracing::debug!(server = &*self.server, %ending, "connection ended");
    }

    async fn connect(&self, custody: &Arc<Custody>) -> Result<McpClient, ConnectError> {
        let turn = self.turns.acquire().await;
        let connector = Arc::clone(custody) as Arc<dyn Connector>;
        let mut connecting = pin!(self.builder().connect_with(connector));
        tokio::select! {
            outcome = &mut connecting => return outcome,
            () = sleep(TURN) => drop(turn),
        }
        connecting.await
    }

    fn builder(&self) -> ClientBuilder {
        let timeouts = Timeouts {
            call: self.config.timeout,
            at_most: self.config.max_timeout,
            startup: self.config.startup_timeout,
            ..Timeouts::default()
        };
        let herald = self.herald();
        let builder = McpClient::builder(&self.server)
            .timeouts(timeouts)
            .limits(self.equipment.limits)
            .remembered(self.remembered)
            .watcher(Arc::new(move |step| herald.tell(ConnectPhase::of(step))));
        let builder = match &self.equipment.client {
            Some(client) => builder.client(client.clone()),
            None => builder,
        };
        match &self.equipment.handler {
            Some(handler) => builder.handler(Arc::clone(handler)),
            None => builder,
        }
    }

    /// Passes on what happens on the connection, until it ends or is to be ended.
    async fn attend(&self, mut events: Events) {
        let pace = Pace::new(Instant::now());
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                // Whoever was too slow to hear of a change has to look.
                Some(ClientEvent::ToolsChanged | ClientEvent::Missed(_)) => {
                    self.report(News::ToolsChanged).await;
                }
                Some(ClientEvent::Ended(ending)) => {
                    return self.report(News::Lost(Failure::of_ending(&ending))).await;
                }
                Some(event) => {
                    let Some(n_left_out) = pace.admit(Instant::now()) else { continue };
                    if n_left_out > 0 {
                        tracing::debug!(server = &*self.server, n_left_out, "says too much");
                    }
                    let server = Arc::clone(&self.server);
                    self.bulletin.tell(|| RackEvent::Said { server, event });
                }
                None => return,
            }
        }
    }

    /// Waits for the calls that are on their way, lets no other in, and cuts what takes too long.
    async fn see_out(&self, link: &Link) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            vacated = timeout(LAST_CALLS, link.usage.vacate()) => {
                vacated.unwrap_or_else(|_elapsed| tracing::debug!("the last calls are cut"));
            }
        }
    }

    fn herald(&self) -> Herald {
        let (server, reports) = (Arc::clone(&self.server), self.reports.clone());
        Herald { server, epoch: self.epoch, reports }
    }

    async fn report(&self, news: News) {
        // What the server said of itself may be part of a failure.
        let mask = &self.equipment.stdio.mask;
        let news = match news {
            News::OpenFailed(failure) => News::OpenFailed(failure.masked(mask)),
            News::Lost(failure) => News::Lost(failure.masked(mask)),
            news => news,
        };
        let report = Report { server: Arc::clone(&self.server), epoch: self.epoch, news };
        if self.reports.send(report).await.is_err() {
            tracing::debug!(server = &*self.server, "the manager is gone; nobody hears of this");
        }
    }
}
