//! The life of one server: what is wanted of it, what it does, and what has to happen next.
//!
//! [`Life::step`] decides and the actor obeys. No task, process or clock appears in this file.
//!
//! **Invariant:** at most one launch exists at a time. The next one begins when the last is known to be gone,
//! only while the server is wanted, and after a failure not before its time.

pub(crate) mod event;

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;
use toolrack_config::StartMode;
use toolrack_transport::Backoff;

use crate::failure::{Failure, FailureKind, Remedy};
use event::{Allowed, Effect, Epoch, Event, Phase, Policy, Tools, Wanted};

/// So many starts in [`LOOP_WINDOW`] look like a crash loop.
const LOOP_STARTS: usize = 5;
const LOOP_WINDOW: Duration = Duration::from_mins(1);
/// What has held for so long is out of the loop.
const HEALED: Duration = Duration::from_mins(2);

/// A launch that may have processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Launch {
    epoch: Epoch,
    course: Course,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Open,
    /// It ends by itself. It may take its time over that, as long as nobody wants it gone.
    Fading,
    /// We have ended it.
    Ending,
}

/// Everything that is known about one server's life.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    policy: Policy,
    wanted: Wanted,
    phase: Phase,
    launch: Option<Launch>,
    last_epoch: Epoch,
    backoff: Backoff,
    /// The last starts since somebody wanted it anew.
    starts: VecDeque<Instant>,
    /// Somebody waits for it, so a lazy server is tried again too.
    is_demanded: bool,
    is_looping: bool,
}

impl Life {
    /// A server that nobody has asked for yet.
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            wanted: Wanted::Stopped,
            phase: Phase::Idle,
            launch: None,
            last_epoch: Epoch::default(),
            backoff: Backoff::default(),
            starts: VecDeque::new(),
            is_demanded: false,
            is_looping: false,
        }
    }

    /// Takes note of an event. `chance`, between 0 and 1, spreads retries.
    pub(crate) fn step(&mut self, event: Event, now: Instant, chance: f64) -> Option<Effect> {
        match event {
            Event::Begin(tools) => self.begin(tools, now),
            Event::Start => {
                self.want_anew();
                self.go(now)
            }
            Event::Restart => {
                self.want_anew();
                self.renew(now)
            }
            Event::Stop => {
                self.wanted = Wanted::Stopped;
                self.rest(now)
            }
            Event::Demand => self.demand(now),
            Event::Adjust(policy) => self.adjust(policy, now),
            Event::Replace(policy) => self.replace(policy, now),
            Event::Idle(epoch) => self.idle(epoch, now),
            Event::Tick => self.tick(now),
            Event::Opened(epoch) => self.opened(epoch, now),
            Event::OpenFailed(epoch, failure) => self.open_failed(epoch, failure, now, chance),
            Event::Lost(epoch, failure) => self.lost(epoch, failure, now, chance),
            Event::Gone(epoch) => self.gone(epoch, now, chance),
        }
    }

    /// When [`Event::Tick`] is due, if anything waits for time to pass.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let retries = self.is_demanded || self.policy.start == StartMode::Eager;
        self.retry_at().filter(|_| retries && self.is_wanted())
    }

    /// When the next try is allowed.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Failed { until, .. } | Phase::BackingOff { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// When a crash loop counts as over, if nothing happens until then.
    pub(crate) fn heals_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Connected { since } if self.is_looping => Some(since + HEALED),
            _ => None,
        }
    }

    /// Whether [`Event::Tick`] has something to do.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        [self.wake_at(), self.heals_at()].into_iter().flatten().any(|at| at <= now)
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether the server may run and is to.
    pub(crate) fn is_wanted(&self) -> bool {
        self.policy.allowed == Allowed::Yes && self.wanted == Wanted::Running
    }

    /// The launch that may still have processes.
    pub(crate) fn launch(&self) -> Option<Epoch> {
        self.launch.map(|launch| launch.epoch)
    }

    /// Whether it is started again and again. Holds until it has worked for a while.
    pub(crate) fn is_crash_looping(&self, now: Instant) -> bool {
        self.is_looping && !self.has_healed(now)
    }

    fn begin(&mut self, tools: Tools, now: Instant) -> Option<Effect> {
        if std::mem::replace(&mut self.wanted, Wanted::Running) == Wanted::Stopped {
            self.forget();
        }
        let can_wait = self.policy.start == StartMode::Lazy && tools == Tools::Known;
        if can_wait || self.phase != Phase::Idle {
            return None;
        }
        self.is_demanded = true;
        self.go(now)
    }

    /// A user's wish is not held up by what went before.
    fn want_anew(&mut self) {
        self.wanted = Wanted::Running;
        self.forget();
    }

    fn forget(&mut self) {
        self.backoff.reset();
        self.starts.clear();
        self.is_looping = false;
    }

    /// Starts, unless that is under way or done.
    fn go(&mut self, now: Instant) -> Option<Effect> {
        let is_under_way = matches!(self.phase, Phase::Connecting | Phase::Connected { .. });
        if is_under_way || !self.is_wanted() {
            return None;
        }
        self.phase = Phase::Connecting;
        self.launch_if_free(now)
    }

    /// Starts, after ending whatever there is.
    fn renew(&mut self, now: Instant) -> Option<Effect> {
        if !self.is_wanted() {
            return None;
        }
        self.phase = Phase::Connecting;
        self.end().or_else(|| self.launch_if_free(now))
    }

    fn rest(&mut self, now: Instant) -> Option<Effect> {
        if self.has_healed(now) {
            self.forget();
        }
        self.phase = Phase::Idle;
        self.is_demanded = false;
        self.end()
    }

    fn launch_if_free(&mut self, now: Instant) -> Option<Effect> {
        if self.launch.is_some() {
            return None;
        }
        self.last_epoch.0 += 1;
        self.launch = Some(Launch { epoch: self.last_epoch, course: Course::Open });
        self.starts.push_back(now);
        if self.starts.len() > LOOP_STARTS {
            self.starts.pop_front();
        }
        let first = self.starts.front().filter(|_| self.starts.len() == LOOP_STARTS);
        self.is_looping |= first.is_some_and(|it| now.duration_since(*it) < LOOP_WINDOW);
        Some(Effect::Launch(self.last_epoch))
    }

    fn end(&mut self) -> Option<Effect> {
        let launch = self.launch.as_mut().filter(|launch| launch.course != Course::Ending)?;
        launch.course = Course::Ending;
        Some(Effect::End(launch.epoch))
    }

    /// A call does not shorten the wait after a failure, but makes sure that it ends with a try.
    fn demand(&mut self, now: Instant) -> Option<Effect> {
        if !self.is_wanted() {
            return None;
        }
        match self.phase {
            Phase::Idle => {
                self.is_demanded = true;
                self.go(now)
            }
            Phase::Failed { until, .. } | Phase::BackingOff { until, .. } => {
                self.is_demanded = true;
                if until <= now { self.go(now) } else { None }
            }
            Phase::Connecting | Phase::Connected { .. } | Phase::NeedsAuth { .. } => None,
        }
    }

    fn adjust(&mut self, policy: Policy, now: Instant) -> Option<Effect> {
        let before = std::mem::replace(&mut self.policy, policy);
        if policy.allowed == Allowed::No {
            return self.rest(now);
        }
        if before.allowed == Allowed::No {
            self.forget();
        }
        let was_kept_down = before.allowed == Allowed::No || before.start == StartMode::Lazy;
        if policy.start == StartMode::Eager && was_kept_down && self.phase == Phase::Idle {
            return self.go(now);
        }
        None
    }

    fn replace(&mut self, policy: Policy, now: Instant) -> Option<Effect> {
        let before = std::mem::replace(&mut self.policy, policy);
        self.forget();
        if policy.allowed == Allowed::No {
            return self.rest(now);
        }
        let was_running = before.allowed == Allowed::Yes && self.phase != Phase::Idle;
        if policy.start == StartMode::Lazy && !was_running {
            return None;
        }
        self.renew(now)
    }

    fn idle(&mut self, epoch: Epoch, now: Instant) -> Option<Effect> {
        let is_current = self.is_open(epoch) && matches!(self.phase, Phase::Connected { .. });
        if is_current { self.rest(now) } else { None }
    }

    fn tick(&mut self, now: Instant) -> Option<Effect> {
        // Otherwise its crash loop would be over again and again, and nobody would sleep.
        if self.has_healed(now) {
            self.forget();
        }
        let due = self.wake_at().is_some_and(|at| at <= now);
        if due { self.go(now) } else { None }
    }

    fn opened(&mut self, epoch: Epoch, now: Instant) -> Option<Effect> {
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
        chance: f64,
    ) -> Option<Effect> {
        if !self.closed_by_itself(epoch) {
            return None;
        }
        self.phase = match failure.remedy() {
            Remedy::Login => Phase::NeedsAuth { failure },
            Remedy::Retry => {
                Phase::Failed { failure, until: now + self.backoff.failed(now, chance) }
            }
        };
        None
    }

    fn lost(
        &mut self,
        epoch: Epoch,
        failure: Failure,
        now: Instant,
        chance: f64,
    ) -> Option<Effect> {
        if !self.closed_by_itself(epoch) {
            return None;
        }
        if self.has_healed(now) {
            self.forget();
        }
        self.phase = Phase::BackingOff { failure, until: now + self.backoff.failed(now, chance) };
        None
    }

    fn gone(&mut self, epoch: Epoch, now: Instant, chance: f64) -> Option<Effect> {
        if self.launch() != Some(epoch) {
            return None;
        }
        if self.is_open(epoch) {
            // Whoever carried the launch ended without a word.
            let failure =
                Failure::new(FailureKind::Internal, "the connection ended without a reason");
            self.lost(epoch, failure, now, chance);
        }
        self.launch = None;
        if self.phase == Phase::Connecting { self.launch_if_free(now) } else { None }
    }

    /// Marks a launch that ends and that we did not end. `false` if we did, if that is known, or if it is not the
    /// present one.
    fn closed_by_itself(&mut self, epoch: Epoch) -> bool {
        match &mut self.launch {
            Some(launch) if launch.epoch == epoch && launch.course == Course::Open => {
                launch.course = Course::Fading;
                true
            }
            _ => false,
        }
    }

    fn is_open(&self, epoch: Epoch) -> bool {
        self.launch == Some(Launch { epoch, course: Course::Open })
    }

    fn has_healed(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Connected { since } => now.duration_since(since) >= HEALED,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
