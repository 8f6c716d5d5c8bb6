//! Table tests for the grammar of plans and mixes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::quantity::Times;

/// Name of a fault that is not one of HTTP.
fn name(fault: &Fault) -> String {
    let text = format!("{fault:?}");
    text.split(['(', ' ']).next().unwrap_or_default().to_lowercase()
}

/// Fault names at the first ten occurrences of a trigger.
fn names_at(plan: &str, trigger: Trigger) -> Vec<String> {
    let plan = Plan::parse(plan).expect("a plan");
    let at = |n| plan.faults_at(trigger, n).map(name).collect::<Vec<String>>().join("+");
    (1..=10).map(at).collect()
}

#[test]
fn rule_applies_to_its_occurrences() {
    let check = |plan: &str, expected: &str| {
        assert_eq!(names_at(plan, Trigger::Call).join(","), expected, "{plan}");
    };
    check("", ",,,,,,,,,");
    check("call:3=exit(1)", ",,exit,,,,,,,");
    check("call:3-5=dup", ",,dup,dup,dup,,,,,");
    check("call:9-=dup", ",,,,,,,,dup,dup");
    check("call:every=4=hang", ",,,hang,,,,hang,,");
    check("call:1=late(200ms)+dup", "late+dup,,,,,,,,,");
    check("call:1=dup; call:1-2=hang", "dup+hang,hang,,,,,,,,");
    check(" late=200ms ;; ", "late,late,late,late,late,late,late,late,late,late");
    check("initialize=exit; list:2=hang", ",,,,,,,,,");
}

#[test]
fn fault_without_a_trigger_uses_its_default() {
    let check = |plan: &str, trigger: Trigger, expected: Fault| {
        let parsed = Plan::parse(plan).expect("a plan");
        assert_eq!(parsed.faults_at(trigger, 1).collect::<Vec<_>>(), [&expected], "{plan}");
    };
    check("stderr=10MiB", Trigger::Call, Fault::Stderr { bytes: 10 << 20, lines: Lines::Many });
    check("stderr=8,raw", Trigger::Call, Fault::Stderr { bytes: 8, lines: Lines::None });
    check("late", Trigger::Call, Fault::Late(Duration::from_millis(200)));
    check("ignore=term,eof", Trigger::Start, Fault::Ignore(vec![Ignored::Term, Ignored::Eof]));
    check("tree", Trigger::Start, Fault::Tree(1));
    let escape = |count, kind| Fault::Escape { count, kind };
    check("escape=2", Trigger::Start, escape(2, EscapeeKind::Tagged));
    check("escape=1,untagged", Trigger::Start, escape(1, EscapeeKind::Untagged));
    check("escape=1,leaderless", Trigger::Start, escape(1, EscapeeKind::Leaderless));
    check("stopparent", Trigger::Start, Fault::StopParent);
    check("cursor=empty", Trigger::List, Fault::Cursor(Cursor::Empty));
    check("version=1999-01-01", Trigger::Initialize, Fault::Version("1999-01-01".to_owned()));
    check("unknown=exit(7)", Trigger::Unknown, Fault::Exit(7));
    check("nonsense=forever", Trigger::Call, Fault::Nonsense(Times::Forever));
    check(
        "start=changed(5,1ms)",
        Trigger::Start,
        Fault::Changed { times: Times::Count(5), every: Duration::from_millis(1) },
    );
    check(
        "huge=1GiB,front",
        Trigger::Call,
        Fault::Huge { bytes: 1 << 30, place: HugePlacement::Front },
    );
}

#[test]
fn invalid_plan_is_explained() {
    let check = |plan: &str, expected: &str| {
        assert_eq!(Plan::parse(plan), Err(expected.to_owned()));
    };
    check("call:3", "in `call:3`: expected a fault, as in `call=exit(1)`");
    check("call=", "in `call=`: expected a fault, as in `call=exit(1)`");
    check("call:0=dup", "in `call:0=dup`: counting starts at 1");
    check("call:x=dup", "in `call:x=dup`: `x` is not an integer");
    check("call:every=0=dup", "in `call:every=0=dup`: counting starts at 1");
    check("call:5-3=dup", "in `call:5-3=dup`: the range 5-3 is reversed");
    check("exit(1", "in `exit(1`: `exit(1` has no closing parenthesis");
    check("exit(300)", "in `exit(300)`: `300` is not an exit code; codes are 0 to 255");
    check("late=5", "in `late=5`: `5` is not a duration; write `200ms`, `2s` or `1m`");
    check("stderr", "in `stderr`: `stderr` needs a size, as in `stderr(10MiB)`");
    check("dup(2)", "in `dup(2)`: `dup` does not take `2`");
    check("hold=0", "in `hold=0`: `hold` needs at least 1");
    check(
        "id=odd",
        "in `id=odd`: `id`: unknown variant `odd`, expected one of `zero`, `text`, `float`, `unknown`, `null`",
    );
    check("ignore", "in `ignore`: `ignore` needs an argument, as in `ignore(term,eof)`");
    check("start=dup", "in `start=dup`: `dup` changes a response, and `start` has none");
    check("eof=half", "in `eof=half`: `half` changes a response, and `eof` has none");
    check(
        "call=version(1)",
        "in `call=version(1)`: `version` is allowed at `initialize` or `discover`, not at `call`",
    );
    check("dup; call=tree", "in `call=tree`: `tree` is allowed at `start`, not at `call`");
    let unknown = Plan::parse("explode").expect_err("no plan");
    assert!(
        unknown.starts_with("in `explode`: unknown fault or trigger `explode`; faults: ok, late,")
    );
}

#[test]
fn help_examples_parse() {
    for example in fault::examples() {
        let plan = Plan::parse(example).expect(example);
        assert_eq!(plan.rules.len(), 1, "{example}");
    }
}

#[test]
fn mix_follows_weights_and_seed() {
    let text = "ok=80,exit=5,hang=5,garbage(ansi,2)=5,late=3,dup=2";
    let tally = |seed: u64| {
        let mix = FaultMix::parse(text, seed).expect("a mix");
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for number in 1..=100_000 {
            *counts.entry(name(mix.pick(number))).or_default() += 1;
        }
        counts
    };
    assert_eq!(tally(7), tally(7));
    assert_ne!(tally(7), tally(8));
    let expected = [("ok", 80), ("exit", 5), ("hang", 5), ("garbage", 5), ("late", 3), ("dup", 2)];
    for (name, percent) in expected {
        let seen = tally(7).get(name).copied().unwrap_or_default();
        assert!(seen.abs_diff(percent * 1000) < 500, "{name}: {seen} of 100000");
    }
}

#[test]
fn invalid_mix_is_explained() {
    let check = |text: &str, expected: &str| {
        assert_eq!(FaultMix::parse(text, 0), Err(expected.to_owned()));
    };
    check("ok", "`ok` has no weight, as in `ok=80`");
    check("ok=x", "`x` is not an integer");
    check("ok=0", "a mix needs at least one weight above 0");
    check("tree=5", "`tree` cannot happen at a call");
}
