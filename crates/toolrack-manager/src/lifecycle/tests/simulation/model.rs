//! Model of the environment: servers with their processes, calls, a user, and the messages in flight.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tokio::time::Instant;
use toolrack_transport::Delivery;

use super::super::{EAGER, LAZY, OFF, failure};
use super::Random;
use crate::lifecycle::{ConnectionState, Effect, Epoch, Event, Lifecycle, Policy};
use crate::retry_policy::{Decision, WaitDeadlines, decide, should_retry};

const STARTUP: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(5);
const STABLE_AFTER: Duration = Duration::from_mins(2);

/// The actual process of a launch.
struct Child {
    epoch: Epoch,
    condition: Condition,
    /// The state machine has asked it to stop.
    is_stopping: bool,
    /// Its failure was reported to the state machine.
    is_reported: bool,
    open_since: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Opening,
    Open,
    /// New requests cannot reach it. Calls in flight may still get a response.
    Unreachable,
    Dead,
}

/// Intent of the user and the config.
#[derive(Clone, Copy)]
struct Intent {
    enabled: bool,
    wanted: bool,
}

impl Intent {
    fn should_run(self) -> bool {
        self.enabled && self.wanted
    }
}

struct Server {
    lifecycle: Lifecycle,
    child: Option<Child>,
    /// Independent of the state machine's own record.
    intent: Intent,
    /// Failures since the count was last reset, and the time of the last one.
    n_failures: u32,
    failed_at: Instant,
    /// The user has requested the next launch, so no backoff applies.
    may_skip_backoff: bool,
}

struct Call {
    server: usize,
    deadlines: WaitDeadlines,
    is_repeatable: bool,
    avoid: Option<Epoch>,
    n_attempts: u32,
    progress: Progress,
    n_outcomes: u32,
    n_runs: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Waiting,
    Sent(Epoch),
    Over,
}

/// Something that will happen later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Pending {
    Opens(Epoch),
    FailsToOpen(Epoch),
    Dies(Epoch),
    BecomesUnreachable(Epoch),
    ReportsLoss(Epoch),
    ReportsGone(Epoch),
    Response(usize),
    Deadline(usize),
    Decide(usize),
    Tick,
}

pub(super) struct Model {
    random: Random,
    start: Instant,
    now: Instant,
    servers: Vec<Server>,
    calls: Vec<Call>,
    queue: BinaryHeap<Reverse<(Duration, u64, usize, Pending)>>,
    n_queued: u64,
}

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        let (mut random, start) = (Random(seed), Instant::now());
        let n_servers = 1 + random.below(3);
        let servers = (0..n_servers).map(|_| {
            let policy = if random.below(2) == 0 { EAGER } else { LAZY };
            Server {
                lifecycle: Lifecycle::new(policy),
                child: None,
                intent: Intent { enabled: true, wanted: false },
                n_failures: 0,
                failed_at: start,
                may_skip_backoff: false,
            }
        });
        let servers = servers.collect();
        let (calls, queue) = (Vec::new(), BinaryHeap::new());
        Self { random, start, now: start, servers, calls, queue, n_queued: 0 }
    }

    /// One random step: a pending event arrives, or the user acts.
    pub(super) fn next(&mut self) {
        match self.random.below(3) {
            0 => self.act(),
            _ if self.queue.is_empty() => self.act(),
            _ => self.arrive(),
        }
        self.check();
    }

    /// Stops all servers, lets all pending events arrive, and asserts that nothing is left.
    pub(super) fn finish(&mut self) {
        for server in 0..self.servers.len() {
            self.user(server, Event::Stop);
        }
        while !self.queue.is_empty() {
            self.arrive();
            self.check();
        }
        for server in &self.servers {
            assert!(
                server.child.is_none() && server.lifecycle.launch().is_none(),
                "something is left"
            );
        }
        for call in &self.calls {
            assert_eq!((call.n_outcomes, call.progress), (1, Progress::Over));
        }
    }

    fn later(&mut self, after: Duration, server: usize, pending: Pending) {
        self.n_queued += 1;
        let at = self.now - self.start + after;
        self.queue.push(Reverse((at, self.n_queued, server, pending)));
    }

    fn act(&mut self) {
        self.now += self.random.ms(200);
        let server = usize::try_from(self.random.below(self.servers.len() as u64)).unwrap();
        let policy = match self.random.below(5) {
            0 => OFF,
            1 | 2 => LAZY,
            _ => EAGER,
        };
        match self.random.below(20) {
            0..=2 => self.user(server, Event::Start),
            3 => self.user(server, Event::Restart),
            4 => self.user(server, Event::Stop),
            5 | 6 => self.user(server, Event::ConnectAll { are_tools_known: true }),
            7 => self.user(server, Event::ConnectAll { are_tools_known: false }),
            8 => self.user(server, Event::PolicyChanged(policy)),
            9 => self.user(server, Event::TransportChanged(policy)),
            10 => self.idle(server),
            11 => self.now += self.random.ms(200_000),
            _ => self.call(server),
        }
    }

    fn user(&mut self, number: usize, event: Event) {
        let server = &mut self.servers[number];
        let was_wanted = server.intent.should_run();
        match &event {
            Event::Start | Event::Restart | Event::ConnectAll { .. } => server.intent.wanted = true,
            Event::Stop => server.intent.wanted = false,
            Event::PolicyChanged(Policy { enabled, .. })
            | Event::TransportChanged(Policy { enabled, .. }) => {
                server.intent.enabled = *enabled;
            }
            _ => {}
        }
        server.may_skip_backoff = true;
        let is_request =
            matches!(event, Event::Start | Event::Restart | Event::TransportChanged(_));
        if is_request || (!was_wanted && server.intent.should_run()) {
            server.n_failures = 0;
        }
        self.step(number, event);
        // Holds for a launch that follows at once, or as soon as the last launch is gone.
        let server = &mut self.servers[number];
        server.may_skip_backoff &= server.lifecycle.state == ConnectionState::Connecting;
    }

    fn idle(&mut self, number: usize) {
        let Some(epoch) = self.servers[number].lifecycle.launch() else { return };
        let is_used = self.calls.iter().any(|call| call.progress == Progress::Sent(epoch));
        if !is_used {
            self.step(number, Event::Idle(epoch));
        }
    }

    fn call(&mut self, server: usize) {
        let is_repeatable = self.random.below(4) == 0;
        let deadline = self.now + STARTUP + Duration::from_mins(2);
        self.calls.push(Call {
            server,
            deadlines: WaitDeadlines::new(self.now, STARTUP, RETRY),
            is_repeatable,
            avoid: None,
            n_attempts: 0,
            progress: Progress::Waiting,
            n_outcomes: 0,
            n_runs: 0,
        });
        let number = self.calls.len() - 1;
        self.later(deadline - self.now, server, Pending::Deadline(number));
        self.decide(number);
    }

    /// The loop of a waiting call.
    fn decide(&mut self, number: usize) {
        while self.calls[number].progress == Progress::Waiting {
            let call = &self.calls[number];
            let server = call.server;
            let lifecycle = &self.servers[server].lifecycle;
            match decide(lifecycle, call.avoid, &call.deadlines, self.now) {
                Decision::Send => self.send(number),
                Decision::Reject => self.finish_call(number),
                Decision::Wait(until) => {
                    return self.later(until - self.now, server, Pending::Decide(number));
                }
                Decision::StartAndWait(until) => {
                    self.later(until - self.now, server, Pending::Decide(number));
                    return self.step(server, Event::Demand);
                }
            }
        }
    }

    fn send(&mut self, number: usize) {
        let server = self.calls[number].server;
        let lifecycle = &self.servers[server].lifecycle;
        assert!(lifecycle.is_wanted() && *lifecycle.state() == ConnectionState::Connected);
        let epoch = lifecycle.launch().expect("a ready server has a launch");
        self.calls[number].n_attempts += 1;
        let child = self.servers[server].child.as_ref().expect("a ready server has a process");
        if (child.epoch, child.condition) != (epoch, Condition::Open) {
            return self.failed(number, epoch, Delivery::NotSent);
        }
        let call = &mut self.calls[number];
        call.progress = Progress::Sent(epoch);
        call.n_runs += 1;
        if self.random.below(10) > 0 {
            let after = self.random.ms(3_000);
            self.later(after, server, Pending::Response(number));
        }
    }

    /// A call failed with its connection.
    fn failed(&mut self, number: usize, epoch: Epoch, delivery: Delivery) {
        let call = &mut self.calls[number];
        if should_retry(delivery, || call.is_repeatable, call.n_attempts) {
            call.avoid = Some(epoch);
            call.progress = Progress::Waiting;
        } else {
            self.finish_call(number);
        }
    }

    fn finish_call(&mut self, number: usize) {
        let call = &mut self.calls[number];
        call.progress = Progress::Over;
        call.n_outcomes += 1;
        assert_eq!(call.n_outcomes, 1, "a call has two outcomes");
        assert!(call.n_runs <= 1 || call.is_repeatable, "a call was run {} times", call.n_runs);
    }

    /// The process of a launch dies; its calls in flight fail at once.
    fn die(&mut self, number: usize, epoch: Epoch) {
        if let Some(child) = &mut self.servers[number].child {
            child.condition = Condition::Dead;
        }
        for call in 0..self.calls.len() {
            let Call { server, progress, .. } = self.calls[call];
            if server == number && progress == Progress::Sent(epoch) {
                self.failed(call, epoch, Delivery::Unknown);
            }
        }
    }

    fn arrive(&mut self) {
        let Some(Reverse((at, _, number, pending))) = self.queue.pop() else { return };
        self.now = self.now.max(self.start + at);
        let child = self.servers[number].child.as_mut();
        let condition = |epoch: Epoch| {
            child.as_ref().filter(|child| child.epoch == epoch).map(|child| child.condition)
        };
        match pending {
            Pending::Opens(epoch) if condition(epoch) == Some(Condition::Opening) => {
                self.opens(number, epoch);
            }
            Pending::FailsToOpen(epoch) if condition(epoch) == Some(Condition::Opening) => {
                self.die(number, epoch);
                self.report(number, epoch, Event::OpenFailed(epoch, failure()));
                let after = self.random.ms(100);
                self.later(after, number, Pending::ReportsGone(epoch));
            }
            Pending::Dies(epoch)
                if condition(epoch).is_some_and(|condition| condition != Condition::Dead) =>
            {
                self.die(number, epoch);
                let (reported, gone) = (self.random.ms(50), self.random.ms(6_000));
                // Sometimes no loss is reported, only the end.
                if self.random.below(8) > 0 {
                    self.later(reported, number, Pending::ReportsLoss(epoch));
                }
                self.later(reported + gone, number, Pending::ReportsGone(epoch));
            }
            Pending::BecomesUnreachable(epoch) if condition(epoch) == Some(Condition::Open) => {
                self.become_unreachable(number, epoch);
            }
            Pending::ReportsLoss(epoch) => {
                self.report(number, epoch, Event::Lost(epoch, failure()));
            }
            Pending::ReportsGone(epoch) => self.gone(number, epoch),
            Pending::Response(call) if matches!(self.calls[call].progress, Progress::Sent(_)) => {
                self.finish_call(call);
            }
            Pending::Deadline(call) if self.calls[call].progress != Progress::Over => {
                self.finish_call(call);
            }
            Pending::Decide(call) => self.decide(call),
            Pending::Tick => self.step(number, Event::Tick),
            _ => {}
        }
    }

    fn opens(&mut self, number: usize, epoch: Epoch) {
        let now = self.now;
        if let Some(child) = &mut self.servers[number].child {
            child.condition = Condition::Open;
            child.open_since = Some(now);
        }
        let lives = match self.random.below(4) {
            0 => self.random.ms(50),
            1 => self.random.ms(20_000),
            2 => self.random.ms(400_000),
            _ => Duration::from_hours(10),
        };
        let end = match self.random.below(3) {
            0 => Pending::BecomesUnreachable(epoch),
            _ => Pending::Dies(epoch),
        };
        self.later(lives, number, end);
        self.step(number, Event::Opened(epoch));
    }

    /// Several requests report the loss, some of them long after it. The launch ends soon.
    fn become_unreachable(&mut self, number: usize, epoch: Epoch) {
        if let Some(child) = &mut self.servers[number].child {
            child.condition = Condition::Unreachable;
        }
        for _ in 0..=self.random.below(3) {
            let delay = match self.random.below(3) {
                0 => self.random.ms(20_000),
                _ => self.random.ms(50),
            };
            self.later(delay, number, Pending::ReportsLoss(epoch));
        }
        let drained = self.random.ms(5_000);
        self.later(drained, number, Pending::Dies(epoch));
    }

    fn gone(&mut self, number: usize, epoch: Epoch) {
        let Some(child) = self.servers[number].child.as_ref().filter(|child| child.epoch == epoch)
        else {
            return;
        };
        assert_eq!(child.condition, Condition::Dead, "gone and not dead");
        if !child.is_stopping && !child.is_reported {
            self.count_failure(number);
        }
        self.servers[number].child = None;
        self.step(number, Event::Gone(epoch));
    }

    /// Reports that a launch ended by itself. Does not count if it was asked to stop, or if that was reported before.
    fn report(&mut self, number: usize, epoch: Epoch, event: Event) {
        if let Some(child) =
            self.servers[number].child.as_mut().filter(|child| child.epoch == epoch)
        {
            let counts = !child.is_stopping && !child.is_reported;
            child.is_reported = true;
            if counts {
                self.count_failure(number);
            }
        }
        self.step(number, event);
    }

    fn count_failure(&mut self, number: usize) {
        let now = self.now;
        let server = &mut self.servers[number];
        let since = server.child.as_ref().and_then(|child| child.open_since);
        if since.is_some_and(|since| now - since >= STABLE_AFTER) {
            server.n_failures = 0;
        }
        server.n_failures += 1;
        server.failed_at = now;
    }

    fn step(&mut self, number: usize, event: Event) {
        let jitter = self.random.jitter();
        let effect = self.servers[number].lifecycle.step(event, self.now, jitter);
        match effect {
            Some(Effect::Launch(epoch)) => self.launch(number, epoch),
            Some(Effect::End(epoch)) => self.end(number, epoch),
            None => {}
        }
        if let Some(at) = self.servers[number].lifecycle.wake_at() {
            self.later(at.saturating_duration_since(self.now), number, Pending::Tick);
        }
        // Waiting calls decide again after every change.
        for call in 0..self.calls.len() {
            if self.calls[call].server == number && self.calls[call].progress == Progress::Waiting {
                self.later(Duration::ZERO, number, Pending::Decide(call));
            }
        }
    }

    fn launch(&mut self, number: usize, epoch: Epoch) {
        let now = self.now;
        let server = &mut self.servers[number];
        assert!(server.child.is_none(), "a second process of the same server");
        assert!(server.intent.should_run(), "started although it is not wanted");
        if server.n_failures > 0 && !server.may_skip_backoff {
            let doubled = Duration::from_millis(125) * 2_u32.pow(server.n_failures.min(9) - 1);
            let least = doubled.min(Duration::from_secs(30));
            let waited = now - server.failed_at;
            assert!(waited >= least, "retried after {waited:?} instead of {least:?}");
        }
        server.may_skip_backoff = false;
        server.child = Some(Child {
            epoch,
            condition: Condition::Opening,
            is_stopping: false,
            is_reported: false,
            open_since: None,
        });
        let after = self.random.ms(500);
        match self.random.below(8) {
            0 => self.later(STARTUP, number, Pending::FailsToOpen(epoch)),
            1 => self.later(after, number, Pending::FailsToOpen(epoch)),
            2 => self.later(after, number, Pending::Dies(epoch)),
            _ => self.later(after, number, Pending::Opens(epoch)),
        }
    }

    fn end(&mut self, number: usize, epoch: Epoch) {
        let child = self.servers[number].child.as_mut().expect("there is something to end");
        assert_eq!((child.epoch, child.is_stopping), (epoch, false));
        child.is_stopping = true;
        let is_stable = child.open_since.is_some_and(|since| self.now - since >= STABLE_AFTER);
        if is_stable && !child.is_reported {
            self.servers[number].n_failures = 0;
        }
        let child = self.servers[number].child.as_ref().expect("it was there a moment ago");
        let was_alive = child.condition != Condition::Dead;
        if was_alive {
            self.die(number, epoch);
            let after = self.random.ms(6_000);
            self.later(after, number, Pending::ReportsGone(epoch));
        }
    }

    /// The invariants, after every event.
    fn check(&self) {
        for server in &self.servers {
            let is_wanted = server.intent.should_run();
            let runs_unwanted = server.child.as_ref().is_some_and(|child| {
                !child.is_stopping && child.condition != Condition::Dead && !is_wanted
            });
            assert!(!runs_unwanted, "a process runs although it is not wanted");
            assert_eq!(server.lifecycle.is_wanted(), is_wanted);
            assert_eq!(server.lifecycle.launch(), server.child.as_ref().map(|child| child.epoch));
            let is_stuck = match &server.lifecycle.state {
                ConnectionState::Connecting | ConnectionState::Connected => server.child.is_none(),
                ConnectionState::Failed(_) | ConnectionState::BackingOff { .. } => {
                    server.lifecycle.policy == EAGER
                        && is_wanted
                        && server.lifecycle.wake_at().is_none()
                }
                ConnectionState::Disconnected | ConnectionState::NeedsAuth(_) => false,
                ConnectionState::Disabled => panic!("it follows from the policy"),
            };
            assert!(!is_stuck, "nothing will ever happen to {:?}", server.lifecycle.state);
            // A disabled server is idle, so its state hides nothing.
            let is_idle = server.lifecycle.state == ConnectionState::Disconnected;
            assert!(server.intent.enabled || is_idle);
        }
    }
}
