//! Lifecycle state machine of one server, and the connection states that it shows.
//!
//! [`Lifecycle::step`] takes an event and returns the effect that the supervisor carries out. The module is pure: it
//! has no tasks, no processes and no clock of its own.
//!
//! **Invariant:** at most one launch exists at a time. The next launch starts only after the previous one is gone,
//! while the server is wanted, and after a failure not before its backoff ends.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;
use toolrack_client::ConnectStep;
use toolrack_config::StartMode;
use toolrack_transport::Backoff;

use crate::error::{ErrorKind, Failure, Remedy};

/// This many starts within [`CRASH_LOOP_WINDOW`] are a crash loop.
const CRASH_LOOP_STARTS: usize = 5;
const CRASH_LOOP_WINDOW: Duration = Duration::from_mins(1);
/// A connection of this age clears the failure count and the crash loop flag.
const STABLE_AFTER: Duration = Duration::from_mins(2);

/// State of a server's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The config says `enabled = false`.
    Disabled,
    /// Nothing runs: the user stopped the server, it was idle for too long, or no call has started it yet.
    Disconnected,
    /// The server is starting, or its previous launch is still ending.
    Connecting,
    /// The server accepts calls.
    Connected,
    /// The server requires a login. It is not retried before that.
    NeedsAuth(Failure),
    /// Connecting failed. The manager retries with a backoff.
    Failed(Failure),
    /// The connection was lost. The manager reconnects.
    BackingOff {
        /// When the next attempt is due.
        until: Instant,
        /// Why the connection was lost.
        failure: Failure,
    },
}

/// Progress of a server that is [`ConnectionState::Connecting`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectPhase {
    /// Installing the package, which has a timeout of its own.
    Installing,
    /// Starting the process, or opening the HTTP connection.
    #[default]
    Starting,
    /// Negotiating the protocol version.
    Connecting,
    /// Fetching the list of tools.
    Listing,
}

impl ConnectPhase {
    pub(crate) fn from_step(step: ConnectStep) -> Self {
        match step {
            ConnectStep::Handshake => Self::Connecting,
            ConnectStep::ListingTools => Self::Listing,
            _ => Self::Starting,
        }
    }

    /// The phase as one word, for tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Installing => "installing",
            Self::Starting => "starting",
            Self::Connecting => "connecting",
            Self::Listing => "listing",
        }
    }
}

impl ConnectionState {
    pub(crate) fn from_lifecycle(lifecycle: &Lifecycle) -> Self {
        // Before the phase: a launch of a server that was just disabled may still be ending.
        if lifecycle.policy().enabled == Enabled::No {
            return ConnectionState::Disabled;
        }
        match lifecycle.phase() {
            Phase::Idle => ConnectionState::Disconnected,
            Phase::Connecting => ConnectionState::Connecting,
            Phase::Connected { .. } => ConnectionState::Connected,
            Phase::NeedsAuth { failure } => ConnectionState::NeedsAuth(failure.clone()),
            Phase::Failed { failure, .. } => ConnectionState::Failed(failure.clone()),
            Phase::BackingOff { failure, until } => {
                ConnectionState::BackingOff { until: *until, failure: failure.clone() }
            }
        }
    }

    /// Why the server is not connected, if something failed.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            ConnectionState::NeedsAuth(failure)
            | ConnectionState::Failed(failure)
            | ConnectionState::BackingOff { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// The state as one word, for tables.
    pub fn as_str(&self) -> &'static str {
        match self {
            ConnectionState::Disabled => "disabled",
            ConnectionState::Disconnected => "disconnected",
            ConnectionState::Connecting => "connecting",
            ConnectionState::Connected => "connected",
            ConnectionState::NeedsAuth(_) => "needs-auth",
            ConnectionState::Failed(_) => "failed",
            ConnectionState::BackingOff { .. } => "backing-off",
        }
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        self.failure().map_or(Ok(()), |failure| write!(f, ": {failure}"))
    }
}

/// Number of a launch. Every later report names the launch that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Epoch(pub(crate) u64);

/// The part of the config that decides when the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) enabled: Enabled,
    pub(crate) start: StartMode,
}

/// The config key `enabled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enabled {
    Yes,
    No,
}

/// What the user wants. A disabled server does not run even if it is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DesiredState {
    Running,
    Stopped,
}

/// Whether the tools of the server are known without starting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tools {
    Known,
    Unknown,
}

/// Input of the state machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// All servers are to be connected. A lazy server whose tools are known is not started.
    ConnectAll(Tools),
    /// The user starts the server.
    Start,
    /// The user restarts the server.
    Restart,
    /// The user stops the server.
    Stop,
    /// A call waits for the server.
    Demand,
    /// The policy changed, the transport did not.
    PolicyChanged(Policy),
    /// The transport changed, so a running server must be reconnected.
    TransportChanged(Policy),
    /// The connection was unused for the configured time.
    Idle(Epoch),
    /// Time has passed.
    Tick,
    /// A launch is connected.
    Opened(Epoch),
    /// A launch failed to connect.
    OpenFailed(Epoch, Failure),
    /// A connection was lost.
    Lost(Epoch, Failure),
    /// A launch has ended and left no processes.
    Gone(Epoch),
}

/// Output of the state machine: what the supervisor has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Start this launch.
    Launch(Epoch),
    /// End this launch, and report [`Event::Gone`] afterwards.
    End(Epoch),
}

/// Internal state of the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    Idle,
    Connecting,
    Connected {
        since: Instant,
    },
    NeedsAuth {
        failure: Failure,
    },
    /// Connecting failed.
    Failed {
        failure: Failure,
        until: Instant,
    },
    /// An established connection was lost.
    BackingOff {
        failure: Failure,
        until: Instant,
    },
}

/// A launch that may have processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Launch {
    epoch: Epoch,
    state: LaunchState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaunchState {
    Open,
    /// Failed or lost, and ending by itself. It may drain calls meanwhile, unless the user wants it gone.
    Closing,
    /// Ended by the manager.
    Stopping,
}

/// Lifecycle of one server.
#[derive(Debug, Clone)]
pub(crate) struct Lifecycle {
    policy: Policy,
    desired: DesiredState,
    phase: Phase,
    launch: Option<Launch>,
    last_epoch: Epoch,
    backoff: Backoff,
    /// The most recent starts since the failure count was reset.
    starts: VecDeque<Instant>,
    /// A call waits, so a lazy server is retried too.
    is_demanded: bool,
    is_crash_loop: bool,
}

impl Lifecycle {
    /// A server that is not wanted yet.
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            desired: DesiredState::Stopped,
            phase: Phase::Idle,
            launch: None,
            last_epoch: Epoch::default(),
            backoff: Backoff::default(),
            starts: VecDeque::new(),
            is_demanded: false,
            is_crash_loop: false,
        }
    }

    /// Applies an event. `jitter`, between 0 and 1, spreads retries.
    pub(crate) fn step(&mut self, event: Event, now: Instant, jitter: f64) -> Option<Effect> {
        match event {
            Event::ConnectAll(tools) => self.connect_all(tools, now),
            Event::Start => {
                self.want_running();
                self.connect(now)
            }
            Event::Restart => {
                self.want_running();
                self.reconnect(now)
            }
            Event::Stop => {
                self.desired = DesiredState::Stopped;
                self.go_idle(now)
            }
            Event::Demand => self.demand(now),
            Event::PolicyChanged(policy) => self.change_policy(policy, now),
            Event::TransportChanged(policy) => self.change_transport(policy, now),
            Event::Idle(epoch) => self.idle(epoch, now),
            Event::Tick => self.tick(now),
            Event::Opened(epoch) => self.opened(epoch, now),
            Event::OpenFailed(epoch, failure) => self.open_failed(epoch, failure, now, jitter),
            Event::Lost(epoch, failure) => self.lost(epoch, failure, now, jitter),
            Event::Gone(epoch) => self.gone(epoch, now, jitter),
        }
    }

    /// When the next automatic retry is due.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        // A lazy server that no call waits for stays down after a failure.
        let retries = self.is_demanded || self.policy.start == StartMode::Eager;
        self.retry_at().filter(|_| retries && self.is_wanted())
    }

    /// When the backoff ends.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Failed { until, .. } | Phase::BackingOff { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// When the crash loop flag clears, if the connection holds until then.
    pub(crate) fn crash_loop_ends_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Connected { since } if self.is_crash_loop => Some(since + STABLE_AFTER),
            _ => None,
        }
    }

    /// Whether [`Event::Tick`] has an effect.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        [self.wake_at(), self.crash_loop_ends_at()].into_iter().flatten().any(|at| at <= now)
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether the server is enabled and the user wants it to run.
    pub(crate) fn is_wanted(&self) -> bool {
        self.policy.enabled == Enabled::Yes && self.desired == DesiredState::Running
    }

    /// The launch that may still have processes.
    pub(crate) fn launch(&self) -> Option<Epoch> {
        self.launch.map(|launch| launch.epoch)
    }

    /// Whether the server restarts repeatedly. Holds until a connection was stable for [`STABLE_AFTER`].
    pub(crate) fn is_crash_looping(&self, now: Instant) -> bool {
        self.is_crash_loop && !self.is_stable(now)
    }

    fn connect_all(&mut self, tools: Tools, now: Instant) -> Option<Effect> {
        // Only a server that was stopped forgets its failures; others keep the backoff
        // that they have.
        let before = std::mem::replace(&mut self.desired, DesiredState::Running);
        if before == DesiredState::Stopped {
            self.reset_failures();
        }
        let can_wait = self.policy.start == StartMode::Lazy && tools == Tools::Known;
        // A server that failed keeps its backoff: connecting all servers is not a request for this one.
        if can_wait || self.phase != Phase::Idle {
            return None;
        }
        self.is_demanded = true;
        self.connect(now)
    }

    /// An explicit request of the user is not delayed by earlier failures.
    fn want_running(&mut self) {
        self.desired = DesiredState::Running;
        self.reset_failures();
    }

    fn reset_failures(&mut self) {
        self.backoff.reset();
        self.starts.clear();
        self.is_crash_loop = false;
    }

    /// Connects, unless the server is connecting or connected.
    fn connect(&mut self, now: Instant) -> Option<Effect> {
        // A second start in parallel must not add a launch, nor count towards the crash loop.
        let is_under_way = matches!(self.phase, Phase::Connecting | Phase::Connected { .. });
        if is_under_way || !self.is_wanted() {
            return None;
        }
        self.phase = Phase::Connecting;
        self.launch_if_free(now)
    }

    /// Ends the current launch, if any, and connects.
    fn reconnect(&mut self, now: Instant) -> Option<Effect> {
        if !self.is_wanted() {
            return None;
        }
        self.phase = Phase::Connecting;
        // If there is a launch to end, `gone` starts the next one.
        self.end_launch().or_else(|| self.launch_if_free(now))
    }

    fn go_idle(&mut self, now: Instant) -> Option<Effect> {
        // Before the phase changes, which holds the age of the connection.
        if self.is_stable(now) {
            self.reset_failures();
        }
        self.phase = Phase::Idle;
        self.is_demanded = false;
        self.end_launch()
    }

    /// Starts a launch, unless the previous one may still have processes: then [`gone`](Self::gone) starts it.
    fn launch_if_free(&mut self, now: Instant) -> Option<Effect> {
        if self.launch.is_some() {
            return None;
        }
        // Never reused: reports of an earlier launch may still be queued.
        self.last_epoch.0 += 1;
        self.launch = Some(Launch { epoch: self.last_epoch, state: LaunchState::Open });
        self.starts.push_back(now);
        if self.starts.len() > CRASH_LOOP_STARTS {
            self.starts.pop_front();
        }
        // The oldest of the last starts tells how long they took together.
        let first = self.starts.front().filter(|_| self.starts.len() == CRASH_LOOP_STARTS);
        // Sticky: a slower start in between does not end a crash loop, only a
        // stable connection does.
        self.is_crash_loop |=
            first.is_some_and(|start| now.duration_since(*start) < CRASH_LOOP_WINDOW);
        Some(Effect::Launch(self.last_epoch))
    }

    fn end_launch(&mut self) -> Option<Effect> {
        // A launch that is stopping has its effect already. One that closes by itself is hurried.
        let launch = self.launch.as_mut().filter(|launch| launch.state != LaunchState::Stopping)?;
        launch.state = LaunchState::Stopping;
        Some(Effect::End(launch.epoch))
    }

    /// A waiting call does not shorten the backoff. It only makes sure that the server is retried when the backoff ends,
    /// even if it is lazy.
    fn demand(&mut self, now: Instant) -> Option<Effect> {
        if !self.is_wanted() {
            return None;
        }
        match self.phase {
            Phase::Idle => {
                self.is_demanded = true;
                self.connect(now)
            }
            Phase::Failed { until, .. } | Phase::BackingOff { until, .. } => {
                self.is_demanded = true;
                if until <= now { self.connect(now) } else { None }
            }
            // A call cannot log in, so it does not start a server that needs a login.
            Phase::Connecting | Phase::Connected { .. } | Phase::NeedsAuth { .. } => None,
        }
    }

    fn change_policy(&mut self, policy: Policy, now: Instant) -> Option<Effect> {
        let before = std::mem::replace(&mut self.policy, policy);
        if policy.enabled == Enabled::No {
            return self.go_idle(now);
        }
        if before.enabled == Enabled::No {
            self.reset_failures();
        }
        // An eager server that the idle timeout closed stays closed: this change is not a request
        // to start it.
        let was_held_back = before.enabled == Enabled::No || before.start == StartMode::Lazy;
        if policy.start == StartMode::Eager && was_held_back && self.phase == Phase::Idle {
            return self.connect(now);
        }
        None
    }

    fn change_transport(&mut self, policy: Policy, now: Instant) -> Option<Effect> {
        let before = std::mem::replace(&mut self.policy, policy);
        self.reset_failures();
        if policy.enabled == Enabled::No {
            return self.go_idle(now);
        }
        // A lazy server that does not run gets the new transport with its next start.
        let was_running = before.enabled == Enabled::Yes && self.phase != Phase::Idle;
        if policy.start == StartMode::Lazy && !was_running {
            return None;
        }
        self.reconnect(now)
    }

    fn idle(&mut self, epoch: Epoch, now: Instant) -> Option<Effect> {
        // The connection may have been lost or replaced since the timer was set.
        let is_current = self.is_open(epoch) && matches!(self.phase, Phase::Connected { .. });
        if is_current { self.go_idle(now) } else { None }
    }

    fn tick(&mut self, now: Instant) -> Option<Effect> {
        // Clears the flag. Otherwise `crash_loop_ends_at` would stay in the past, and the supervisor would not sleep.
        if self.is_stable(now) {
            self.reset_failures();
        }
        let is_due = self.wake_at().is_some_and(|at| at <= now);
        if is_due { self.connect(now) } else { None }
    }

    fn opened(&mut self, epoch: Epoch, now: Instant) -> Option<Effect> {
        // Otherwise it was stopped or replaced while it connected, and is ending.
        if self.is_open(epoch) && self.phase == Phase::Connecting {
            self.is_demanded = false;
            self.phase = Phase::Connected { since: now };
        }
        None
    }

    fn open_failed(
        &mut self,
        epoch: Epoch,
        failure: Failure,
        now: Instant,
        jitter: f64,
    ) -> Option<Effect> {
        if !self.mark_closing(epoch) {
            return None;
        }
        self.phase = match failure.remedy() {
            // Only a login helps, so the server is not retried.
            Remedy::Login => Phase::NeedsAuth { failure },
            Remedy::Retry => {
                Phase::Failed { failure, until: now + self.backoff.record_failure(now, jitter) }
            }
        };
        None
    }

    fn lost(
        &mut self,
        epoch: Epoch,
        failure: Failure,
        now: Instant,
        jitter: f64,
    ) -> Option<Effect> {
        if !self.mark_closing(epoch) {
            return None;
        }
        // A server that was stable before starts with the shortest backoff again.
        if self.is_stable(now) {
            self.reset_failures();
        }
        self.phase =
            Phase::BackingOff { failure, until: now + self.backoff.record_failure(now, jitter) };
        None
    }

    fn gone(&mut self, epoch: Epoch, now: Instant, jitter: f64) -> Option<Effect> {
        if self.launch() != Some(epoch) {
            return None;
        }
        if self.is_open(epoch) {
            // The connection task ended without reporting a failure.
            let failure = Failure::new(ErrorKind::Internal, "connection closed without a reason");
            self.lost(epoch, failure, now, jitter);
        }
        // After `lost`, which looks at the launch.
        self.launch = None;
        // A start was requested while this launch was ending.
        if self.phase == Phase::Connecting { self.launch_if_free(now) } else { None }
    }

    /// Marks a launch that ends by itself. `false` if the manager ended it, if its end was reported before, or if it
    /// is not the current launch. Many requests may report the same loss, and only the first one counts.
    fn mark_closing(&mut self, epoch: Epoch) -> bool {
        match &mut self.launch {
            Some(launch) if launch.epoch == epoch && launch.state == LaunchState::Open => {
                launch.state = LaunchState::Closing;
                true
            }
            _ => false,
        }
    }

    fn is_open(&self, epoch: Epoch) -> bool {
        self.launch == Some(Launch { epoch, state: LaunchState::Open })
    }

    fn is_stable(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Connected { since } => now.duration_since(since) >= STABLE_AFTER,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
