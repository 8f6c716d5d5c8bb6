//! Connection task: one launch of a server, from its start until no process of it is left.
//!
//! **Invariant:** the last report of a launch is [`TaskEvent::Gone`], and nothing of the launch runs after it.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_client::{
    ClientBuilder, ConnectError, Connector, Event as ClientEvent, Events, Limits, McpClient,
    Timeouts,
};
use toolrack_config::McpServerConfig;
use toolrack_mcp::Revision;

use crate::connector::{
    ClosingConnector, Installation, PackageRequest, PreparedServer, build_connector,
    package_request, prepare_without_package, resolve, stdio_options,
};
use crate::error::{ErrorKind, Failure};
use crate::events::ManagerEvent;
use crate::in_flight::InFlight;
use crate::lifecycle::{ConnectPhase, Epoch};
use crate::manager::Shared;
use crate::rate_limit::RateLimiter;
use crate::server_tools::RefreshLimiter;
use crate::snapshot::ActiveClient;
use crate::withheld_variables;

/// How many servers start at once per processor, so that the machine stays responsive.
const STARTS_PER_PROCESSOR: usize = 2;
pub(crate) const MIN_STARTS: usize = 4;
/// How long one start may hold its permit. A server that hangs delays the others no longer than this.
const START_PERMIT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long calls in flight may still take after the server became unreachable for new ones. A server that is being
/// replaced may finish them. As long as the grace period of a process that is asked to exit.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an installer may take to end. Its processes are killed before that.
const INSTALLER_STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// One launch and its inputs.
pub(crate) struct ConnectionTask {
    pub(crate) server: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) config: Arc<McpServerConfig>,
    pub(crate) cached_version: Option<Revision>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stop: CancellationToken,
    /// Sending waits if it is full; the supervisor always reads.
    pub(crate) reports: mpsc::Sender<TaskReport>,
}

/// Report of a connection task to the supervisor.
#[derive(Debug)]
pub(crate) struct TaskReport {
    pub(crate) server: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) event: TaskEvent,
}

#[derive(Debug)]
pub(crate) enum TaskEvent {
    Phase(ConnectPhase),
    Opened(Arc<ActiveClient>),
    OpenFailed(Failure),
    ToolsChanged,
    Lost(Failure),
    Gone,
}

fn stopped() -> Failure {
    Failure::new(ErrorKind::Stopped, "stopped")
}

impl ConnectionTask {
    pub(crate) async fn run(self) {
        let connector = async {
            let prepared = self.prepare().await?;
            let settings = &self.shared.settings;
            // Calls the application's credentials callback.
            catch_panic(async { build_connector(prepared, &self.config, settings) }).await
        };
        match connector.await {
            Err(failure) => self.report(TaskEvent::OpenFailed(failure)).await,
            Ok(inner) => {
                // Room for one: all requests that find the server unreachable report the same loss.
                let (sender, unreachable) = mpsc::channel(1);
                let connector = Arc::new(ClosingConnector {
                    unreachable: sender,
                    inner,
                    transports: Arc::default(),
                    opening: TaskTracker::new(),
                    server: Arc::clone(&self.server),
                    shared: Arc::clone(&self.shared),
                });
                self.run_connection(&connector, unreachable).await;
                // Also after an aborted connect, which may have left a transport that
                // is still opening.
                connector.close().await;
            }
        }
        // Last: the supervisor may start the next launch as soon as it gets this.
        self.report(TaskEvent::Gone).await;
    }

    /// Resolves the config's variables, and installs the package if there is one.
    async fn prepare(&self) -> Result<PreparedServer, Failure> {
        let settings = &self.shared.settings;
        let resolved = tokio::select! {
            // Here and below: a stop wins over a result that is ready at the same time.
            biased;
            () = self.stop.cancelled() => return Err(stopped()),
            resolved = timeout(self.config.startup_timeout, resolve(&self.config, settings)) => {
                let timed_out = || {
                    Failure::new(ErrorKind::Internal, "resolving variables of the config timed out")
                };
                resolved.unwrap_or_else(|_elapsed| Err(timed_out()))?
            }
        };
        match package_request(&self.server, resolved) {
            Ok(package) => self.install(package).await,
            Err(resolved) => prepare_without_package(*resolved),
        }
    }

    /// Installs a package within `install_timeout`. All processes of the installer have ended when this returns.
    async fn install(&self, package: PackageRequest) -> Result<PreparedServer, Failure> {
        let settings = &self.shared.settings;
        let Some(installer) = &settings.package_installer else {
            let reason = "this program cannot install packages";
            let hint = "set `command` or `url` instead of a package";
            return Err(Failure::new(ErrorKind::BadConfig, reason).with_hint(hint));
        };
        let (stop, report_phase) = (self.stop.child_token(), self.phase_reporter());
        let installation = Installation {
            server: Arc::clone(&self.server),
            stdio: stdio_options(&self.config, settings),
            stop: stop.clone(),
            on_start: Arc::new(move || report_phase(ConnectPhase::Installing)),
            shared: Arc::clone(&self.shared),
        };
        let mut work = installer.prepare(package, installation);
        let limit = self.config.install_timeout;
        let failure = tokio::select! {
            biased;
            () = self.stop.cancelled() => stopped(),
            outcome = &mut work => return outcome,
            () = sleep(limit) => {
                let reason = format!("package was not installed within {limit:?}");
                Failure::new(ErrorKind::InstallTimedOut, reason)
                    .with_hint("increase `install_timeout`, or check the network")
            }
        };
        // Cancels and keeps polling instead of dropping, so that the installer can end its processes.
        stop.cancel();
        if timeout(INSTALLER_STOP_TIMEOUT, work).await.is_err() {
            tracing::warn!(
                server = &*self.server,
                "installer did not stop in time; left to its guardian"
            );
        }
        Err(failure)
    }

    /// Connects, and runs until the connection is lost or stopped.
    async fn run_connection(
        &self,
        connector: &Arc<ClosingConnector>,
        mut unreachable: mpsc::Receiver<Failure>,
    ) {
        let outcome = tokio::select! {
            biased;
            () = self.stop.cancelled() => return,
            // Calls the application's client handler for its capabilities.
            outcome = catch_panic(self.connect(connector)) => outcome,
        };
        let outcome = outcome.and_then(|connected| {
            connected.map_err(|error| {
                let output = withheld_variables::output_of_connect_error(&error);
                self.with_variable_hint(Failure::from_connect_error(&error), &output)
            })
        });
        let client = match outcome {
            Ok(client) => client,
            Err(failure) => return self.report(TaskEvent::OpenFailed(failure)).await,
        };
        // An attempt before the successful one found the server unreachable. That is not a loss of this connection.
        if let Ok(failure) = unreachable.try_recv() {
            tracing::debug!(server = &*self.server, %failure, "server was unreachable at first");
        }
        // Subscribes before the connection is reported, so that no change of its tools is missed.
        let events = client.subscribe();
        let active = Arc::new(ActiveClient {
            client,
            in_flight: InFlight::new(self.config.idle),
            epoch: self.epoch,
            refresh_limiter: RefreshLimiter::default(),
        });
        self.report(TaskEvent::Opened(Arc::clone(&active))).await;
        tokio::select! {
            biased;
            // Calls in flight may still get their responses, so the connection is drained before it is closed.
            Some(failure) = unreachable.recv() => {
                self.report(TaskEvent::Lost(failure)).await;
                self.drain(&active).await;
            }
            () = self.forward_events(events) => {}
        }
        let close_reason = active.client.close().await;
        tracing::debug!(server = &*self.server, %close_reason, "connection closed");
    }

    async fn connect(&self, connector: &Arc<ClosingConnector>) -> Result<McpClient, ConnectError> {
        // Starting fifty servers at once would be a CPU storm, in which healthy ones time out too.
        let permits = &self.shared.start_permits;
        if permits.available_permits() == 0 {
            self.shared.more_start_permits.call_once(|| {
                let n_processors = std::thread::available_parallelism().map_or(1, usize::from);
                let n_more = (n_processors * STARTS_PER_PROCESSOR).saturating_sub(MIN_STARTS);
                permits.add_permits(n_more);
            });
        }
        let permit = permits.acquire().await;
        let connector = Arc::clone(connector) as Arc<dyn Connector>;
        let mut connecting = pin!(self.client_builder().connect_with(connector));
        tokio::select! {
            outcome = &mut connecting => return outcome,
            // Gives the permit back and continues: a slow start is no reason to delay the others.
            () = sleep(START_PERMIT_TIMEOUT) => drop(permit),
        }
        connecting.await
    }

    fn client_builder(&self) -> ClientBuilder {
        let timeouts = Timeouts {
            call: self.config.timeout,
            call_total: self.config.max_timeout,
            startup: self.config.startup_timeout,
            ..Timeouts::default()
        };
        let (settings, report_phase) = (&self.shared.settings, self.phase_reporter());
        let list_bytes = self.config.max_list_bytes.unwrap_or(settings.limits.list_bytes);
        let mut builder = McpClient::builder(&self.server)
            .timeouts(timeouts)
            .limits(Limits { list_bytes, ..settings.limits })
            .known_version(self.cached_version)
            .on_step(Arc::new(move |step| report_phase(ConnectPhase::from_step(step))));
        if let Some(client_info) = &settings.client_info {
            builder = builder.client(client_info.clone());
        }
        if let Some(handler) = &settings.handler {
            builder = builder.handler(Arc::clone(handler));
        }
        builder
    }

    /// Adds what to do about a variable that the server lacks.
    fn with_variable_hint(&self, failure: Failure, output: &[String]) -> Failure {
        match (withheld_variables::hint(&self.config, output), failure.hint()) {
            (None, _) => failure,
            (Some(hint), None) => failure.with_hint(hint),
            (Some(hint), Some(output)) => {
                let hint = format!("{hint}; {output}");
                failure.with_hint(hint)
            }
        }
    }

    /// Forwards the events of the client, until the connection is lost or stopped.
    async fn forward_events(&self, mut events: Events) {
        let limiter = RateLimiter::new(Instant::now());
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                // Lost events may have included a change of the tools.
                Some(ClientEvent::ToolsChanged | ClientEvent::Lagged(_)) => {
                    self.report(TaskEvent::ToolsChanged).await;
                }
                // Not rate limited, unlike the events below: without it the server would be shown
                // as connected forever.
                Some(ClientEvent::Closed(close_reason)) => {
                    let output = withheld_variables::output_of_close_reason(&close_reason);
                    let failure = Failure::from_close_reason(&close_reason);
                    let failure = self.with_variable_hint(failure, output);
                    return self.report(TaskEvent::Lost(failure)).await;
                }
                Some(event) => {
                    let Some(n_dropped) = limiter.admit(Instant::now()) else { continue };
                    if n_dropped > 0 {
                        tracing::debug!(server = &*self.server, n_dropped, "server events dropped");
                    }
                    let server = Arc::clone(&self.server);
                    self.shared.events.emit(|| ManagerEvent::ServerEvent { server, event });
                }
                None => return,
            }
        }
    }

    /// Waits for calls in flight, admits no other, and gives up after [`DRAIN_TIMEOUT`] or a stop.
    async fn drain(&self, active: &ActiveClient) {
        tokio::select! {
            // The user wants the server gone, so calls in flight are not waited for.
            () = self.stop.cancelled() => {}
            drained = timeout(DRAIN_TIMEOUT, active.in_flight.drain()) => {
                drained.unwrap_or_else(|_elapsed| tracing::debug!("calls in flight are cancelled"));
            }
        }
    }

    /// Reports connect phases from callbacks. Never waits: a phase that is dropped because the channel is full does no
    /// harm.
    fn phase_reporter(&self) -> impl Fn(ConnectPhase) + Send + Sync + 'static {
        let (server, epoch, reports) = (Arc::clone(&self.server), self.epoch, self.reports.clone());
        move |phase| {
            let (server, event) = (Arc::clone(&server), TaskEvent::Phase(phase));
            let dropped = |error| tracing::debug!(%error, "connect phase dropped");
            reports.try_send(TaskReport { server, epoch, event }).unwrap_or_else(dropped);
        }
    }

    async fn report(&self, event: TaskEvent) {
        // A failure may quote output of the server.
        let redactor = &self.shared.settings.stdio.redactor;
        let event = match event {
            TaskEvent::OpenFailed(failure) => TaskEvent::OpenFailed(failure.redacted(redactor)),
            TaskEvent::Lost(failure) => TaskEvent::Lost(failure.redacted(redactor)),
            event => event,
        };
        let report = TaskReport { server: Arc::clone(&self.server), epoch: self.epoch, event };
        // Waits if the channel is full: without this report the server would keep its old state.
        if self.reports.send(report).await.is_err() {
            tracing::debug!(server = &*self.server, "supervisor is gone; report dropped");
        }
    }
}

/// Runs `work`, which calls application code, and turns a panic into a failure. Otherwise the panic would end this
/// task without a report. The panic hook has printed the message.
async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    // Unwind safe: a future that panicked is not polled again.
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_payload| panicked())
}

fn panicked() -> Failure {
    let reason = "connecting panicked, possibly in the application's credentials or handler";
    Failure::new(ErrorKind::Internal, reason).with_hint("see the panic message on its stderr")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_becomes_a_failure() {
        assert_eq!(catch_panic(async { 7 }).await, Ok(7));
        let work = async {
            tokio::task::yield_now().await;
            panic!("application code");
        };
        assert_eq!(catch_panic::<()>(work).await, Err(panicked()));
    }
}
