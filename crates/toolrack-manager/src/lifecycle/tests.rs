//! Transitions of the state machine, as tables of events and expected effects.

mod simulation;

use super::*;

/// A state machine whose events are given in milliseconds.
struct Machine {
    lifecycle: Lifecycle,
    start: Instant,
    log: Vec<String>,
}

const EAGER: Policy = Policy { enabled: true, start: StartMode::Eager };
const LAZY: Policy = Policy { enabled: true, start: StartMode::Lazy };
const OFF: Policy = Policy { enabled: false, start: StartMode::Eager };

fn failure() -> Failure {
    Failure::new(ErrorKind::Exited, "broken")
}

impl Machine {
    fn new(policy: Policy) -> Self {
        Self { lifecycle: Lifecycle::new(policy), start: Instant::now(), log: Vec::new() }
    }

    /// Applies an event with maximum jitter.
    fn at(&mut self, ms: u64, event: Event) -> &mut Self {
        let now = self.start + Duration::from_millis(ms);
        let effect = self.lifecycle.step(event, now, 1.0);
        let effect = match effect {
            None => "-".to_owned(),
            Some(Effect::Launch(Epoch(epoch))) => format!("launch {epoch}"),
            Some(Effect::End(Epoch(epoch))) => format!("end {epoch}"),
        };
        self.log.push(format!("{effect} {}", self.phase()));
        self
    }

    fn phase(&self) -> String {
        let lifecycle = &self.lifecycle;
        let name = match lifecycle.state {
            ConnectionState::Disconnected => "idle",
            ref state => state.as_str(),
        };
        match lifecycle.connected_since().or(lifecycle.retry_at()) {
            Some(at) => format!("{name}@{}", at.duration_since(self.start).as_millis()),
            None => name.to_owned(),
        }
    }
}

#[track_caller]
fn check(policy: Policy, events: &[(u64, Event)], expected: &[&str]) -> Lifecycle {
    let mut machine = Machine::new(policy);
    for (ms, event) in events {
        machine.at(*ms, event.clone());
    }
    assert_eq!(machine.log, expected);
    machine.lifecycle
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
fn eager_server_is_started_once() {
    check(
        EAGER,
        &[
            (0, Event::ConnectAll { are_tools_known: false }),
            (0, Event::ConnectAll { are_tools_known: false }),
            (0, Event::Start),
            (0, Event::Demand),
            (10, opened(1)),
            (20, Event::Start),
            (20, Event::Demand),
            (20, Event::ConnectAll { are_tools_known: true }),
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
fn lazy_server_starts_on_demand_and_stops_when_idle() {
    check(
        LAZY,
        &[
            (0, Event::ConnectAll { are_tools_known: true }),
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
fn lazy_server_without_known_tools_is_started() {
    check(
        LAZY,
        &[
            (0, Event::ConnectAll { are_tools_known: false }),
            (5, open_failed(1)),
            (5, gone(1)),
            (255, Event::Tick),
            (260, opened(2)),
            (300, lost(2)),
            (300, gone(2)),
            // Its tools are known now, so it is not retried without a call.
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
fn reconnect_waits_for_backoff_and_for_the_old_launch() {
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

/// Many requests report the same loss, one of them late.
#[test]
fn repeated_loss_reports_count_once() {
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

/// A lost launch may take time to drain its calls; the user does not have to wait for that.
#[test]
fn user_request_ends_a_closing_launch() {
    let events = |request: &Event| {
        let started = [(0, Event::Start), (10, opened(1)), (100, lost(1))];
        let requested = [(110, request.clone()), (120, request.clone()), (130, gone(1))];
        [started, requested].concat()
    };
    for (request, expected) in [
        (Event::Stop, ["end 1 idle", "- idle", "- idle"]),
        (Event::PolicyChanged(OFF), ["end 1 idle", "- idle", "- idle"]),
        (Event::Restart, ["end 1 connecting", "- connecting", "launch 2 connecting"]),
        (
            Event::TransportChanged(EAGER),
            ["end 1 connecting", "- connecting", "launch 2 connecting"],
        ),
        (Event::Demand, ["- backing-off@350"; 3]),
        (Event::ConnectAll { are_tools_known: true }, ["- backing-off@350"; 3]),
    ] {
        let started = ["launch 1 connecting", "- connected@10", "- backing-off@350"];
        check(EAGER, &events(&request), &[started, expected].concat());
    }
}

#[test]
fn stopped_server_ignores_late_events() {
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
fn stop_and_start_while_connecting_cause_one_launch() {
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
fn restart_ends_the_launch_and_resets_failures() {
    let lifecycle = check(
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
    assert_eq!(lifecycle.launch(), Some(Epoch(3)));
}

#[test]
fn transport_change_ends_the_launch_first() {
    check(
        EAGER,
        &[(0, Event::Start), (1, Event::TransportChanged(EAGER)), (2, opened(1)), (3, gone(1))],
        &["launch 1 connecting", "end 1 connecting", "- connecting", "launch 2 connecting"],
    );
    check(
        EAGER,
        &[(0, Event::Start), (1, Event::TransportChanged(OFF)), (2, gone(1)), (3, Event::Start)],
        &["launch 1 connecting", "end 1 idle", "- idle", "- idle"],
    );
    check(
        LAZY,
        &[
            (0, Event::ConnectAll { are_tools_known: true }),
            (1, Event::TransportChanged(LAZY)),
            (2, Event::TransportChanged(EAGER)),
        ],
        &["- idle", "- idle", "launch 1 connecting"],
    );
    // A failed server is retried at once with its new config.
    check(
        EAGER,
        &[
            (0, Event::Start),
            (1, open_failed(1)),
            (2, gone(1)),
            (3, Event::TransportChanged(EAGER)),
        ],
        &["launch 1 connecting", "- failed@251", "- failed@251", "launch 2 connecting"],
    );
    // A new config does not start a server that the user has stopped.
    check(
        EAGER,
        &[(0, Event::Start), (1, Event::Stop), (2, gone(1)), (3, Event::TransportChanged(EAGER))],
        &["launch 1 connecting", "end 1 idle", "- idle", "- idle"],
    );
}

#[test]
fn policy_change_keeps_the_connection() {
    check(
        EAGER,
        &[
            (0, Event::Start),
            (1, opened(1)),
            (2, Event::PolicyChanged(LAZY)),
            (3, Event::PolicyChanged(EAGER)),
            (4, Event::PolicyChanged(OFF)),
            (5, gone(1)),
            (6, Event::PolicyChanged(EAGER)),
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
        &[(0, Event::ConnectAll { are_tools_known: true }), (1, Event::PolicyChanged(EAGER))],
        &["- idle", "launch 1 connecting"],
    );
}

#[test]
fn needs_auth_waits_for_the_user() {
    let login = || Event::OpenFailed(Epoch(1), Failure::new(ErrorKind::NeedsLogin, "login needed"));
    check(
        EAGER,
        &[
            (0, Event::Start),
            (1, login()),
            (2, gone(1)),
            (99_999, Event::Tick),
            (99_999, Event::Demand),
            (99_999, Event::ConnectAll { are_tools_known: false }),
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
fn events_of_an_old_launch_are_ignored() {
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
fn launch_that_ends_without_report_is_lost() {
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
fn disabled_server_is_never_started() {
    check(
        OFF,
        &[
            (0, Event::ConnectAll { are_tools_known: false }),
            (0, Event::Start),
            (0, Event::Restart),
            (0, Event::Demand),
            (0, Event::Tick),
        ],
        &["- idle", "- idle", "- idle", "- idle", "- idle"],
    );
}

#[test]
fn five_starts_in_a_minute_are_a_crash_loop() {
    let mut machine = Machine::new(EAGER);
    machine.at(0, Event::Start);
    let mut now = 0;
    for epoch in 1..=4 {
        assert!(!machine.lifecycle.is_crash_looping(machine.start), "after {epoch} starts");
        machine.at(now, open_failed(epoch)).at(now, gone(epoch));
        now = u64::try_from(
            machine.lifecycle.retry_at().unwrap().duration_since(machine.start).as_millis(),
        )
        .unwrap();
        machine.at(now, Event::Tick);
    }
    let moment = |ms: u64| machine.start + Duration::from_millis(ms);
    assert!(machine.lifecycle.is_crash_looping(moment(now)));
    let (soon, later) = (moment(now + 60_000), moment(now + 120_000));
    machine.at(now, opened(5));
    assert!(machine.lifecycle.is_crash_looping(soon));
    assert!(!machine.lifecycle.is_crash_looping(later));
    let is_due = |lifecycle: &Lifecycle, now| lifecycle.tick_at().is_some_and(|at| at <= now);
    assert!(!is_due(&machine.lifecycle, soon) && is_due(&machine.lifecycle, later));
    machine.at(now + 120_000, Event::Tick);
    assert!(!is_due(&machine.lifecycle, later), "the flag is cleared once");
    machine.at(now + 120_000, lost(5)).at(now + 120_000, gone(5));
    assert!(!machine.lifecycle.is_crash_looping(later), "{}", machine.phase());
    assert_eq!(machine.phase(), format!("backing-off@{}", now + 120_250));
}
