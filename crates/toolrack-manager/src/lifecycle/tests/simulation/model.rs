//! The world of a schedule: servers with their processes, calls, a user, and what is under way between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tokio::time::Instant;
use toolrack_transport::Delivery;

use super::super::{EAGER, LAZY, OFF, failure};
use super::Random;
use crate::lifecycle::Life;
use crate::lifecycle::event::{Allowed, Effect, Epoch, Event, Phase, Policy, Tools};
use crate::retry_policy::{Repeatable, Route, Standing, Waits, again, route};

const STARTUP: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(5);
const HEALED: Duration = Duration::from_mins(2);

/// A process, as it really is.
struct Child {
    epoch: Epoch,
    condition: Condition,
    /// We have told it to end.
    is_told: bool,
    /// Its life has heard how it went.
    is_reported: bool,
    open_since: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    Opening,
    Open,
    /// Nobody is at the other end any more. What is on its way may still be answered.
    Deserted,
    Dead,
}

/// What the user and the config want.
#[derive(Clone, Copy)]
struct Wish {
    allowed: bool,
    wanted: bool,
}

impl Wish {
    fn is_to_run(self) -> bool {
        self.allowed && self.wanted
    }
}

struct Server {
    life: Life,
    child: Option<Child>,
    /// Kept apart from what the life thinks.
    wish: Wish,
    /// Failures since it last healed or somebody wanted it anew, and the last of them.
    n_failures: u32,
    failed_at: Instant,
    /// The user has asked for the next launch, so it need not wait.
    is_excused: bool,
}

struct Call {
    server: usize,
    waits: Waits,
    repeatable: Repeatable,
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

/// Something that is under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Pending {
    Opens(Epoch),
    FailsToOpen(Epoch),
    Dies(Epoch),
    FindsNobody(Epoch),
    ToldDead(Epoch),
    ToldGone(Epoch),
    Answer(usize),
    Deadline(usize),
    Look(usize),
    Tick,
}

pub(super) struct World {
    random: Random,
    start: Instant,
    now: Instant,
    servers: Vec<Server>,
    calls: Vec<Call>,
    queue: BinaryHeap<Reverse<(Duration, u64, usize, Pending)>>,
    n_queued: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let (mut random, start) = (Random(seed), Instant::now());
        let n_servers = 1 + random.below(3);
        let servers = (0..n_servers).map(|_| {
            let policy = if random.below(2) == 0 { EAGER } else { LAZY };
            Server {
                life: Life::new(policy),
                child: None,
                wish: Wish { allowed: true, wanted: false },
                n_failures: 0,
                failed_at: start,
                is_excused: false,
            }
        });
        let servers = servers.collect();
        let (calls, queue) = (Vec::new(), BinaryHeap::new());
        Self { random, start, now: start, servers, calls, queue, n_queued: 0 }
    }

    /// Lets one thing happen: something under way arrives, or somebody does something.
    pub(super) fn next(&mut self) {
        match self.random.below(3) {
            0 => self.act(),
            _ if self.queue.is_empty() => self.act(),
            _ => self.arrive(),
        }
        self.check();
    }

    /// Stops everything, waits for whatever is under way, and asserts that nothing is left.
    pub(super) fn finish(&mut self) {
        for server in 0..self.servers.len() {
            self.user(server, Event::Stop);
        }
        while !self.queue.is_empty() {
            self.arrive();
            self.check();
        }
        for server in &self.servers {
            assert!(server.child.is_none() && server.life.launch().is_none(), "something is left");
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
            5 | 6 => self.user(server, Event::Begin(Tools::Known)),
            7 => self.user(server, Event::Begin(Tools::Unknown)),
            8 => self.user(server, Event::Adjust(policy)),
            9 => self.user(server, Event::Replace(policy)),
            10 => self.idle(server),
            11 => self.now += self.random.ms(200_000),
            _ => self.call(server),
        }
    }

    fn user(&mut self, number: usize, event: Event) {
        let server = &mut self.servers[number];
        let was_wanted = server.wish.is_to_run();
        match &event {
            Event::Start | Event::Restart | Event::Begin(_) => server.wish.wanted = true,
            Event::Stop => server.wish.wanted = false,
            Event::Adjust(Policy { allowed, .. }) | Event::Replace(Policy { allowed, .. }) => {
                server.wish.allowed = *allowed == Allowed::Yes;
            }
            _ => {}
        }
        server.is_excused = true;
        let is_wish = matches!(event, Event::Start | Event::Restart | Event::Replace(_));
        if is_wish || (!was_wanted && server.wish.is_to_run()) {
            server.n_failures = 0;
        }
        self.step(number, event);
        // An excuse is for what follows at once, or once the remains of the last launch are gone.
        let server = &mut self.servers[number];
        server.is_excused &= *server.life.phase() == Phase::Connecting;
    }

    fn idle(&mut self, number: usize) {
        let Some(epoch) = self.servers[number].life.launch() else { return };
        let is_used = self.calls.iter().any(|it| it.progress == Progress::Sent(epoch));
        if !is_used {
            self.step(number, Event::Idle(epoch));
        }
    }

    fn call(&mut self, server: usize) {
        let is_repeatable = self.random.below(4) == 0;
        let deadline = self.now + STARTUP + Duration::from_mins(2);
        self.calls.push(Call {
            server,
            waits: Waits::begin(self.now, STARTUP, RETRY),
            repeatable: if is_repeatable { Repeatable::Yes } else { Repeatable::No },
            avoid: None,
            n_attempts: 0,
            progress: Progress::Waiting,
            n_outcomes: 0,
            n_runs: 0,
        });
        let number = self.calls.len() - 1;
        self.later(deadline - self.now, server, Pending::Deadline(number));
        self.look(number);
    }

    /// What the caller of a waiting call does whenever it looks.
    fn look(&mut self, number: usize) {
        while self.calls[number].progress == Progress::Waiting {
            let call = &self.calls[number];
            let server = call.server;
            let standing = Standing::of(&self.servers[server].life);
            match route(standing, call.avoid, &call.waits, self.now) {
                Route::Send => self.send(number, standing),
                Route::Refuse => self.settle(number),
                Route::Wait(until) => {
                    return self.later(until - self.now, server, Pending::Look(number));
                }
                Route::Demand(until) => {
                    self.later(until - self.now, server, Pending::Look(number));
                    return self.step(server, Event::Demand);
                }
            }
        }
    }

    fn send(&mut self, number: usize, standing: Standing) {
        let Standing::Ready(epoch) = standing else { panic!("sent to {standing:?}") };
        let server = self.calls[number].server;
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
            self.later(after, server, Pending::Answer(number));
        }
    }

    /// The line has failed a call.
    fn failed(&mut self, number: usize, epoch: Epoch, delivery: Delivery) {
        let call = &mut self.calls[number];
        if again(delivery, call.repeatable, call.n_attempts) {
            call.avoid = Some(epoch);
            call.progress = Progress::Waiting;
        } else {
            self.settle(number);
        }
    }

    fn settle(&mut self, number: usize) {
        let call = &mut self.calls[number];
        call.progress = Progress::Over;
        call.n_outcomes += 1;
        assert_eq!(call.n_outcomes, 1, "a call has two outcomes");
        let may_run_twice = call.repeatable == Repeatable::Yes;
        assert!(call.n_runs <= 1 || may_run_twice, "a call was run {} times", call.n_runs);
    }

    /// The process of a launch is no more; whoever waits for its answers learns it at once.
    fn die(&mut self, number: usize, epoch: Epoch) {
        if let Some(child) = &mut self.servers[number].child {
            child.condition = Condition::Dead;
        }
        for call in 0..self.calls.len() {
            let it = &self.calls[call];
            if it.server == number && it.progress == Progress::Sent(epoch) {
                self.failed(call, epoch, Delivery::Unknown);
            }
        }
    }

    fn arrive(&mut self) {
        let Some(Reverse((at, _, number, pending))) = self.queue.pop() else { return };
        self.now = self.now.max(self.start + at);
        let child = self.servers[number].child.as_mut();
        let condition =
            |epoch: Epoch| child.as_ref().filter(|it| it.epoch == epoch).map(|it| it.condition);
        match pending {
            Pending::Opens(epoch) if condition(epoch) == Some(Condition::Opening) => {
                self.opens(number, epoch);
            }
            Pending::FailsToOpen(epoch) if condition(epoch) == Some(Condition::Opening) => {
                self.die(number, epoch);
                self.report(number, epoch, Event::OpenFailed(epoch, failure()));
                let after = self.random.ms(100);
                self.later(after, number, Pending::ToldGone(epoch));
            }
            Pending::Dies(epoch) if condition(epoch).is_some_and(|it| it != Condition::Dead) => {
                self.die(number, epoch);
                let (told, gone) = (self.random.ms(50), self.random.ms(6_000));
                // Now and then nobody says how it went, only that it is gone.
                if self.random.below(8) > 0 {
                    self.later(told, number, Pending::ToldDead(epoch));
                }
                self.later(told + gone, number, Pending::ToldGone(epoch));
            }
            Pending::FindsNobody(epoch) if condition(epoch) == Some(Condition::Open) => {
                self.find_nobody(number, epoch);
            }
            Pending::ToldDead(epoch) => self.report(number, epoch, Event::Lost(epoch, failure())),
            Pending::ToldGone(epoch) => self.gone(number, epoch),
            Pending::Answer(call) if matches!(self.calls[call].progress, Progress::Sent(_)) => {
                self.settle(call);
            }
            Pending::Deadline(call) if self.calls[call].progress != Progress::Over => {
                self.settle(call);
            }
            Pending::Look(call) => self.look(call),
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
            0 => Pending::FindsNobody(epoch),
            _ => Pending::Dies(epoch),
        };
        self.later(lives, number, end);
        self.step(number, Event::Opened(epoch));
    }

    /// Several requests find nobody and say so, some of them when all that is long over. The launch ends soon.
    fn find_nobody(&mut self, number: usize, epoch: Epoch) {
        if let Some(child) = &mut self.servers[number].child {
            child.condition = Condition::Deserted;
        }
        for _ in 0..=self.random.below(3) {
            let told = match self.random.below(3) {
                0 => self.random.ms(20_000),
                _ => self.random.ms(50),
            };
            self.later(told, number, Pending::ToldDead(epoch));
        }
        let last_calls = self.random.ms(5_000);
        self.later(last_calls, number, Pending::Dies(epoch));
    }

    fn gone(&mut self, number: usize, epoch: Epoch) {
        let Some(child) = self.servers[number].child.as_ref().filter(|it| it.epoch == epoch) else {
            return;
        };
        assert_eq!(child.condition, Condition::Dead, "gone and not dead");
        if !child.is_told && !child.is_reported {
            self.count_failure(number);
        }
        self.servers[number].child = None;
        self.step(number, Event::Gone(epoch));
    }

    /// Tells a life how a launch ended by itself. If we had ended it, or it is known, that counts for nothing.
    fn report(&mut self, number: usize, epoch: Epoch, event: Event) {
        if let Some(child) = self.servers[number].child.as_mut().filter(|it| it.epoch == epoch) {
            let counts = !child.is_told && !child.is_reported;
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
        let since = server.child.as_ref().and_then(|it| it.open_since);
        if since.is_some_and(|since| now - since >= HEALED) {
            server.n_failures = 0;
        }
        server.n_failures += 1;
        server.failed_at = now;
    }

    fn step(&mut self, number: usize, event: Event) {
        let chance = self.random.chance();
        let effect = self.servers[number].life.step(event, self.now, chance);
        match effect {
            Some(Effect::Launch(epoch)) => self.launch(number, epoch),
            Some(Effect::End(epoch)) => self.end(number, epoch),
            None => {}
        }
        if let Some(at) = self.servers[number].life.wake_at() {
            self.later(at.saturating_duration_since(self.now), number, Pending::Tick);
        }
        // Whoever waits looks again whenever something has changed.
        for call in 0..self.calls.len() {
            if self.calls[call].server == number && self.calls[call].progress == Progress::Waiting {
                self.later(Duration::ZERO, number, Pending::Look(call));
            }
        }
    }

    fn launch(&mut self, number: usize, epoch: Epoch) {
        let now = self.now;
        let server = &mut self.servers[number];
        assert!(server.child.is_none(), "a second process of the same server");
        assert!(server.wish.is_to_run(), "started against the user's will");
        if server.n_failures > 0 && !server.is_excused {
            let doubled = Duration::from_millis(125) * 2_u32.pow(server.n_failures.min(9) - 1);
            let least = doubled.min(Duration::from_secs(30));
            let waited = now - server.failed_at;
            assert!(waited >= least, "tried again after {waited:?} instead of {least:?}");
        }
        server.is_excused = false;
        server.child = Some(Child {
            epoch,
            condition: Condition::Opening,
            is_told: false,
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
        assert_eq!((child.epoch, child.is_told), (epoch, false));
        child.is_told = true;
        let has_healed = child.open_since.is_some_and(|since| self.now - since >= HEALED);
        if has_healed && !child.is_reported {
            self.servers[number].n_failures = 0;
        }
        let child = self.servers[number].child.as_ref().expect("it was there a moment ago");
        let was_alive = child.condition != Condition::Dead;
        if was_alive {
            self.die(number, epoch);
            let after = self.random.ms(6_000);
            self.later(after, number, Pending::ToldGone(epoch));
        }
    }

    /// What holds after every event.
    fn check(&self) {
        for server in &self.servers {
            let is_wanted = server.wish.is_to_run();
            let runs_unasked = server
                .child
                .as_ref()
                .is_some_and(|it| !it.is_told && it.condition != Condition::Dead && !is_wanted);
            assert!(!runs_unasked, "a process runs that nobody wants");
            assert_eq!(server.life.is_wanted(), is_wanted);
            assert_eq!(server.life.launch(), server.child.as_ref().map(|it| it.epoch));
            let is_stuck = match server.life.phase() {
                Phase::Connecting | Phase::Connected { .. } => server.child.is_none(),
                Phase::Failed { .. } | Phase::BackingOff { .. } => {
                    server.life.policy() == EAGER && is_wanted && server.life.wake_at().is_none()
                }
                Phase::Idle | Phase::NeedsAuth { .. } => false,
            };
            assert!(!is_stuck, "nothing will ever happen to {:?}", server.life.phase());
        }
    }
}
