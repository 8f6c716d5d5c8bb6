//! Every transition of a life, as a table: what happened when, and what had to be done.

mod simulation;

use super::*;

/// A life that is told what happens, at moments counted in milliseconds.
struct Stage {
    life: Life,
    start: Instant,
    log: Vec<String>,
}

const EAGER: Policy = Policy { allowed: Allowed::Yes, start: StartMode::Eager };
const LAZY: Policy = Policy { allowed: Allowed::Yes, start: StartMode::Lazy };
const OFF: Policy = Policy { allowed: Allowed::No, start: StartMode::Eager };

fn failure() -> Failure {
    Failure::new(FailureKind::Exited, "broken")
}

impl Stage {
    fn new(policy: Policy) -> Self {
        Self { life: Life::new(policy), start: Instant::now(), log: Vec::new() }
    }

    /// Something happens, with the longest of all waits after a failure.
    fn at(&mut self, ms: u64, event: Event) -> &mut Self {
        let now = self.start + Duration::from_millis(ms);
        let effect = self.life.step(event, now, 1.0);
        let done = match effect {
            None => "-".to_owned(),
            Some(Effect::Launch(Epoch(epoch))) => format!("launch {epoch}"),
            Some(Effect::End(Epoch(epoch))) => format!("end {epoch}"),
        };
        self.log.push(format!("{done} {}", self.phase()));
        self
    }

    fn phase(&self) -> String {
        let since = |at: &Instant| at.duration_since(self.start).as_millis();
        match self.life.phase() {
            Phase::Idle => "idle".to_owned(),
            Phase::Connecting => "connecting".to_owned(),
            Phase::Connected { since: at } => format!("connected@{}", since(at)),
            Phase::NeedsAuth { .. } => "needs-auth".to_owned(),
            Phase::Failed { until, .. } => format!("failed@{}", since(until)),
            Phase::BackingOff { until, .. } => format!("backing-off@{}", since(until)),
        }
    }
}

#[track_caller]
fn check(policy: Policy, events: &[(u64, Event)], expected: &[&str]) -> Life {
    let mut stage = Stage::new(policy);
    for (ms, event) in events {
        stage.at(*ms, event.clone());
    }
    assert_eq!(stage.log, expected);
    stage.life
}

fn opened(epoch: u64) -> Event {
    Event::Opened(Epoch(epoch))
}

fn open_failed(epoch: u64) -> Event {
    Event::OpenFailed(Epoch(epoch), failure())
}

fn lost(epoch: u64) -> Event {
    Event::Lost(Epoch(epoch), failure())
}

fn gone(epoch: u64) -> Event {
    Event::Gone(Epoch(epoch))
}

#[test]
fn an_eager_server_is_started_once_however_often_it_is_wanted() {
    check(
        EAGER,
        &[
            (0, Event::Begin(Tools::Unknown)),
            (0, Event::Begin(Tools::Unknown)),
            (0, Event::Start),
            (0, Event::Demand),
            (10, opened(1)),
            (20, Event::Start),
            (20, Event::Demand),
            (20, Event::Begin(Tools::Known)),
        ],
        &[
            "launch 1 connecting",
            "- connecting",
            "- connecting",
            "- connecting",
            "- connected@10",
            "- connected@10",
            "- connected@10",
            "- connected@10",
        ],
    );
}

#[test]
fn a_lazy_server_is_started_by_a_call_and_ended_when_unused() {
    check(
        LAZY,
        &[
            (0, Event::Begin(Tools::Known)),
            (0, Event::Demand),
            (10, opened(1)),
            (900, Event::Idle(Epoch(0))),
            (900, Event::Idle(Epoch(1))),
            (910, Event::Demand),
            (950, gone(1)),
            (960, opened(2)),
        ],
        &[
            "- idle",
            "launch 1 connecting",
            "- connected@10",
            "- connected@10",
            "end 1 idle",
            "- connecting",
            "launch 2 connecting",
            "- connected@960",
        ],
    );
}

#[test]
fn a_lazy_server_without_known_tools_is_started_to_learn_them() {
    check(
        LAZY,
        &[
            (0, Event::Begin(Tools::Unknown)),
            (5, open_failed(1)),
            (5, gone(1)),
            (255, Event::Tick),
            (260, opened(2)),
            (300, lost(2)),
            (300, gone(2)),
            // Once its tools were known, nobody waits for it.
            (5000, Event::Tick),
            (5000, Event::Demand),
        ],
        &[
            "launch 1 connecting",
            "- failed@255",
            "- failed@255",
            "launch 2 connecting",
            "- connected@260",
            "- backing-off@800",
            "- backing-off@800",
            "- backing-off@800",
            "launch 3 connecting",
        ],
    );
}

#[test]
fn a_lost_connection_comes_back_after_its_wait_and_not_before_its_remains_are_gone() {
    check(
        EAGER,
        &[
            (0, Event::Start),
            (10, opened(1)),
            (100, lost(1)),
            (200, Event::Tick),
            (200, Event::Demand),
            (350, Event::Tick),
            (360, Event::Tick),
            (400, gone(1)),
            (410, opened(2)),
        ],
        &[
            "launch 1 connecting",
            "- connected@10",
            "- backing-off@350",
            "- backing-off@350",
            "- backing-off@350",
            "- connecting",
            "- connecting",
            "launch 2 connecting",
            "- connected@410",
        ],
    );
}

/// Many requests at once find nobody, and one of them says so late.
#[test]
fn a_loss_that_is_told_often_is_one_loss() {
    check(
        EAGER,
        &[
            (0, Event::Start),
            (10, opened(1)),
            (100, lost(1)),
            (101, lost(1)),
            (300, lost(1)),
            (340, gone(1)),
            (350, Event::Tick),
            (360, lost(1)),
            (400, opened(2)),
            (410, lost(1)),
        ],
        &[
            "launch 1 connecting",
            "- connected@10",
            "- backing-off@350",
            "- backing-off@350",
            "- backing-off@350",
            "- backing-off@350",
            "launch 2 connecting",
            "- connecting",
            "- connected@400",
            "- connected@400",
        ],
    );
}

/// The remains of a lost connection may take their time, and a user need not wait for that.
#[test]
fn what_is_left_of_a_lost_connection_is_ended_at_the_users_wish() {
    let events = |wish: &Event| {
        let begun = [(0, Event::Start), (10, opened(1)), (100, lost(1))];
        let ended = [(110, wish.clone()), (120, wish.clone()), (130, gone(1))];
        [begun, ended].concat()
    };
    for (wish, expected) in [
        (Event::Stop, ["end 1 idle", "- idle", "- idle"]),
        (Event::Adjust(OFF), ["end 1 idle", "- idle", "- idle"]),
        (Event::Restart, ["end 1 connecting", "- connecting", "launch 2 connecting"]),
        (Event::Replace(EAGER), ["end 1 connecting", "- connecting", "launch 2 connecting"]),
        (Event::Demand, ["- backing-off@350"; 3]),
        (Event::Begin(Tools::Known), ["- backing-off@350"; 3]),
    ] {
        let begun = ["launch 1 connecting", "- connected@10", "- backing-off@350"];
        check(EAGER, &events(&wish), &[begun, expected].concat());
    }
}

#[test]
fn what_was_stopped_stays_stopped_whatever_arrives_late() {
    for late in [opened(1), open_failed(1), lost(1), Event::Tick, Event::Demand] {
        check(
            EAGER,
            &[(0, Event::Start), (1, Event::Stop), (2, late), (3, gone(1)), (9999, Event::Tick)],
            &["launch 1 connecting", "end 1 idle", "- idle", "- idle", "- idle"],
        );
    }
    check(
        EAGER,
        &[
            (0, Event::Start),
            (5, open_failed(1)),
            (6, Event::Stop),
            (9, gone(1)),
            (999, Event::Tick),
        ],
        &["launch 1 connecting", "- failed@255", "end 1 idle", "- idle", "- idle"],
    );
}

#[test]
fn stop_and_start_during_a_start_lead_to_one_new_launch() {
    check(
        EAGER,
        &[
            (0, Event::Start),
            (1, Event::Stop),
            (2, Event::Start),
            (3, opened(1)),
            (4, Event::Restart),
            (5, gone(1)),
            (6, opened(2)),
        ],
        &[
            "launch 1 connecting",
            "end 1 idle",
            "- connecting",
            "- connecting",
            "- connecting",
            "launch 2 connecting",
            "- connected@6",
        ],
    );
}

#[test]
fn a_restart_ends_what_there_is_and_forgets_what_went_before() {
    let life = check(
        EAGER,
        &[
            (0, Event::Restart),
            (1, open_failed(1)),
            (2, gone(1)),
            (3, Event::Restart),
            (4, opened(2)),
            (5, Event::Restart),
            (6, lost(2)),
            (7, gone(2)),
            (8, open_failed(3)),
        ],
        &[
            "launch 1 connecting",
            "- failed@251",
            "- failed@251",
            "launch 2 connecting",
            "- connected@4",
            "end 2 connecting",
            "- connecting",
            "launch 3 connecting",
            "- failed@258",
        ],
    );
    assert_eq!(life.launch(), Some(Epoch(3)));
}

#[test]
fn another_config_during_a_start_ends_it_first() {
    check(
        EAGER,
        &[(0, Event::Start), (1, Event::Replace(EAGER)), (2, opened(1)), (3, gone(1))],
        &["launch 1 connecting", "end 1 connecting", "- connecting", "launch 2 connecting"],
    );
    check(
        EAGER,
        &[(0, Event::Start), (1, Event::Replace(OFF)), (2, gone(1)), (3, Event::Start)],
        &["launch 1 connecting", "end 1 idle", "- idle", "- idle"],
    );
    check(
        LAZY,
        &[(0, Event::Begin(Tools::Known)), (1, Event::Replace(LAZY)), (2, Event::Replace(EAGER))],
        &["- idle", "- idle", "launch 1 connecting"],
    );
    // A failed server is tried at once with its new config.
    check(
        EAGER,
        &[(0, Event::Start), (1, open_failed(1)), (2, gone(1)), (3, Event::Replace(EAGER))],
        &["launch 1 connecting", "- failed@251", "- failed@251", "launch 2 connecting"],
    );
    // What the user has stopped is not started by a new config.
    check(
        EAGER,
        &[(0, Event::Start), (1, Event::Stop), (2, gone(1)), (3, Event::Replace(EAGER))],
        &["launch 1 connecting", "end 1 idle", "- idle", "- idle"],
    );
}

#[test]
fn other_settings_leave_a_connection_alone() {
    check(
        EAGER,
        &[
            (0, Event::Start),
            (1, opened(1)),
            (2, Event::Adjust(LAZY)),
            (3, Event::Adjust(EAGER)),
            (4, Event::Adjust(OFF)),
            (5, gone(1)),
            (6, Event::Adjust(EAGER)),
        ],
        &[
            "launch 1 connecting",
            "- connected@1",
            "- connected@1",
            "- connected@1",
            "end 1 idle",
            "- idle",
            "launch 2 connecting",
        ],
    );
    check(
        LAZY,
        &[(0, Event::Begin(Tools::Known)), (1, Event::Adjust(EAGER))],
        &["- idle", "launch 1 connecting"],
    );
}

#[test]
fn a_server_that_wants_a_login_waits_for_the_user() {
    let login =
        || Event::OpenFailed(Epoch(1), Failure::new(FailureKind::NeedsLogin, "login needed"));
    check(
        EAGER,
        &[
            (0, Event::Start),
            (1, login()),
            (2, gone(1)),
            (99_999, Event::Tick),
            (99_999, Event::Demand),
            (99_999, Event::Begin(Tools::Unknown)),
            (99_999, Event::Start),
        ],
        &[
            "launch 1 connecting",
            "- needs-auth",
            "- needs-auth",
            "- needs-auth",
            "- needs-auth",
            "- needs-auth",
            "launch 2 connecting",
        ],
    );
}

#[test]
fn news_of_an_old_launch_mean_nothing() {
    check(
        EAGER,
        &[
            (0, Event::Start),
            (1, Event::Restart),
            (2, gone(1)),
            (3, opened(1)),
            (3, open_failed(1)),
            (3, lost(1)),
            (3, gone(1)),
            (4, opened(2)),
            (5, Event::Idle(Epoch(1))),
        ],
        &[
            "launch 1 connecting",
            "end 1 connecting",
            "launch 2 connecting",
            "- connecting",
            "- connecting",
            "- connecting",
            "- connecting",
            "- connected@4",
            "- connected@4",
        ],
    );
}

#[test]
fn a_launch_that_ends_without_a_word_counts_as_lost() {
    check(
        EAGER,
        &[(0, Event::Start), (1, gone(1)), (251, Event::Tick), (260, opened(2)), (300, gone(2))],
        &[
            "launch 1 connecting",
            "- backing-off@251",
            "launch 2 connecting",
            "- connected@260",
            "- backing-off@800",
        ],
    );
}

#[test]
fn a_disabled_server_is_never_started() {
    check(
        OFF,
        &[
            (0, Event::Begin(Tools::Unknown)),
            (0, Event::Start),
            (0, Event::Restart),
            (0, Event::Demand),
            (0, Event::Tick),
        ],
        &["- idle", "- idle", "- idle", "- idle", "- idle"],
    );
}

#[test]
fn five_starts_in_a_minute_look_like_a_crash_loop_until_it_holds() {
    let mut stage = Stage::new(EAGER);
    stage.at(0, Event::Start);
    let mut now = 0;
    for epoch in 1..=4 {
        assert!(!stage.life.is_crash_looping(stage.start), "after {epoch} starts");
        stage.at(now, open_failed(epoch)).at(now, gone(epoch));
        now = u64::try_from(stage.life.retry_at().unwrap().duration_since(stage.start).as_millis())
            .unwrap();
        stage.at(now, Event::Tick);
    }
    let moment = |ms: u64| stage.start + Duration::from_millis(ms);
    assert!(stage.life.is_crash_looping(moment(now)));
    let (soon, later) = (moment(now + 60_000), moment(now + 120_000));
    stage.at(now, opened(5));
    assert!(stage.life.is_crash_looping(soon));
    assert!(!stage.life.is_crash_looping(later));
    assert!(!stage.life.is_due(soon) && stage.life.is_due(later));
    stage.at(now + 120_000, Event::Tick);
    assert!(!stage.life.is_due(later), "it is over once, not for ever");
    stage.at(now + 120_000, lost(5)).at(now + 120_000, gone(5));
    assert!(!stage.life.is_crash_looping(later), "{}", stage.phase());
    assert_eq!(stage.phase(), format!("backing-off@{}", now + 120_250));
}
