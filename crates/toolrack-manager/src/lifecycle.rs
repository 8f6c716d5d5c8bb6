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

use crate::error::{ErrorKind, Failure};

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
    pub(crate) enabled: bool,
    pub(crate) start: StartMode,
}

/// What the user wants. A disabled server does not run even if it is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DesiredState {
    Running,
    Stopped,
}

/// Input of the state machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// All servers are to be connected. A lazy server whose tools are known is not started.
    ConnectAll { are_tools_known: bool },
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
    /// Never `Disabled`, which follows from the policy.
    state: ConnectionState,
    /// When the last connection was established.
    connected_at: Option<Instant>,
    /// When the last backoff ends.
    backoff_ends_at: Option<Instant>,
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
            state: ConnectionState::Disconnected,
            connected_at: None,
            backoff_ends_at: None,
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
            Event::ConnectAll { are_tools_known } => {
                // Only a server that was stopped forgets its failures; others keep the backoff
                // that they have.
                if self.desired == DesiredState::Stopped {
                    self.want_running();
                }
                let can_wait = self.policy.start == StartMode::Lazy && are_tools_known;
                // A server that failed keeps its backoff: connecting all servers is not a request for this one.
                if can_wait || self.state != ConnectionState::Disconnected {
                    return None;
                }
                self.is_demanded = true;
                self.connect(now)
            }
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
            Event::Idle(epoch) => {
                // The connection may have been lost or replaced since the timer was set.
                let is_current = self.is_open(epoch) && self.state == ConnectionState::Connected;
                if is_current { self.go_idle(now) } else { None }
            }
            Event::Tick => {
                // Clears the flag. Otherwise `tick_at` would stay in the past, and the supervisor would not sleep.
                self.reset_failures_if_stable(now);
                let is_due = self.wake_at().is_some_and(|at| at <= now);
                if is_due { self.connect(now) } else { None }
            }
            Event::Opened(epoch) => {
                // Otherwise it was stopped or replaced while it connected, and is ending.
                if self.is_open(epoch) && self.state == ConnectionState::Connecting {
                    self.is_demanded = false;
                    self.state = ConnectionState::Connected;
                    self.connected_at = Some(now);
                }
                None
            }
            Event::OpenFailed(epoch, failure) => {
                self.fail(epoch, now, jitter, |_until| match failure.kind() {
                    // Only a login helps, so the server is not retried.
                    ErrorKind::NeedsLogin => ConnectionState::NeedsAuth(failure),
                    _ => ConnectionState::Failed(failure),
                })
            }
            Event::Lost(epoch, failure) => {
                let state = |until| ConnectionState::BackingOff { until, failure };
                self.fail(epoch, now, jitter, state)
            }
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
        match self.state {
            ConnectionState::Failed(_) | ConnectionState::BackingOff { .. } => self.backoff_ends_at,
            _ => None,
        }
    }

    /// When [`Event::Tick`] has an effect.
    pub(crate) fn tick_at(&self) -> Option<Instant> {
        // The crash loop flag clears then, if the connection holds.
        let since = self.connected_since().filter(|_| self.is_crash_loop);
        self.wake_at().or(since.map(|since| since + STABLE_AFTER))
    }

    pub(crate) fn state(&self) -> &ConnectionState {
        // First the policy: a launch of a server that was just disabled may still be ending.
        if self.policy.enabled { &self.state } else { &ConnectionState::Disabled }
    }

    /// Whether the server is enabled and the user wants it to run.
    pub(crate) fn is_wanted(&self) -> bool {
        self.policy.enabled && self.desired == DesiredState::Running
    }

    /// The launch that may still have processes.
    pub(crate) fn launch(&self) -> Option<Epoch> {
        self.launch.map(|launch| launch.epoch)
    }

    /// Whether the server restarts repeatedly. Holds until a connection was stable for [`STABLE_AFTER`].
    pub(crate) fn is_crash_looping(&self, now: Instant) -> bool {
        self.is_crash_loop && !self.is_stable(now)
    }

    /// A request of the user is not delayed by earlier failures.
    fn want_running(&mut self) {
        self.desired = DesiredState::Running;
        self.reset_failures();
    }

    fn reset_failures_if_stable(&mut self, now: Instant) {
        if self.is_stable(now) {
            self.reset_failures();
        }
    }

    fn reset_failures(&mut self) {
        self.backoff.reset();
        self.starts.clear();
        self.is_crash_loop = false;
    }

    /// Connects, unless the server is connecting or connected.
    fn connect(&mut self, now: Instant) -> Option<Effect> {
        // A second start in parallel must not add a launch, nor count towards the crash loop.
        let is_under_way =
            matches!(self.state, ConnectionState::Connecting | ConnectionState::Connected);
        if is_under_way || !self.is_wanted() {
            return None;
        }
        self.state = ConnectionState::Connecting;
        self.launch_if_free(now)
    }

    /// Ends the current launch, if any, and connects.
    fn reconnect(&mut self, now: Instant) -> Option<Effect> {
        if !self.is_wanted() {
            return None;
        }
        self.state = ConnectionState::Connecting;
        // If there is a launch to end, `gone` starts the next one.
        self.end_launch().or_else(|| self.launch_if_free(now))
    }

    fn go_idle(&mut self, now: Instant) -> Option<Effect> {
        // Before the state changes: only a connection has an age.
        self.reset_failures_if_stable(now);
        self.state = ConnectionState::Disconnected;
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
        match self.state {
            ConnectionState::Disconnected
            | ConnectionState::Failed(_)
            | ConnectionState::BackingOff { .. } => {
                self.is_demanded = true;
                let may_connect = self.retry_at().is_none_or(|at| at <= now);
                if may_connect { self.connect(now) } else { None }
            }
            // A call cannot log in, so it does not start a server that needs a login.
            _ => None,
        }
    }

    fn change_policy(&mut self, policy: Policy, now: Instant) -> Option<Effect> {
        let before = std::mem::replace(&mut self.policy, policy);
        if !policy.enabled {
            return self.go_idle(now);
        }
        if !before.enabled {
            self.reset_failures();
        }
        // An eager server that the idle timeout closed stays closed: this change is not a request
        // to start it.
        let was_held_back = !before.enabled || before.start == StartMode::Lazy;
        let is_idle = self.state == ConnectionState::Disconnected;
        let is_released = policy.start == StartMode::Eager && was_held_back && is_idle;
        if is_released { self.connect(now) } else { None }
    }

    fn change_transport(&mut self, policy: Policy, now: Instant) -> Option<Effect> {
        let before = std::mem::replace(&mut self.policy, policy);
        self.reset_failures();
        if !policy.enabled {
            return self.go_idle(now);
        }
        // A lazy server that does not run gets the new transport with its next start.
        let was_running = before.enabled && self.state != ConnectionState::Disconnected;
        if policy.start == StartMode::Lazy && !was_running {
            return None;
        }
        self.reconnect(now)
    }

    /// A launch ends by itself. No effect if the manager ended it, if its end was reported before, or if it is not the
    /// current launch: many requests may report the same loss, and only the first one counts.
    fn fail(
        &mut self,
        epoch: Epoch,
        now: Instant,
        jitter: f64,
        state_until: impl FnOnce(Instant) -> ConnectionState,
    ) -> Option<Effect> {
        let is_open = self.is_open(epoch);
        let launch = self.launch.as_mut().filter(|_| is_open)?;
        launch.state = LaunchState::Closing;
        // A server that was stable before starts with the shortest backoff again.
        self.reset_failures_if_stable(now);
        let until = now + self.backoff.record_failure(now, jitter);
        self.state = state_until(until);
        self.backoff_ends_at = Some(until);
        None
    }

    fn gone(&mut self, epoch: Epoch, now: Instant, jitter: f64) -> Option<Effect> {
        if self.launch() != Some(epoch) {
            return None;
        }
        // No effect if the connection task has reported a failure.
        let failure = Failure::new(ErrorKind::Internal, "connection closed without a reason");
        self.step(Event::Lost(epoch, failure), now, jitter);
        // After the loss, which looks at the launch.
        self.launch = None;
        // A start was requested while this launch was ending.
        if self.state == ConnectionState::Connecting { self.launch_if_free(now) } else { None }
    }

    fn is_open(&self, epoch: Epoch) -> bool {
        self.launch == Some(Launch { epoch, state: LaunchState::Open })
    }

    fn connected_since(&self) -> Option<Instant> {
        self.connected_at.filter(|_| self.state == ConnectionState::Connected)
    }

    fn is_stable(&self, now: Instant) -> bool {
        self.connected_since().is_some_and(|since| now.duration_since(since) >= STABLE_AFTER)
    }
}

#[cfg(test)]
mod tests;
