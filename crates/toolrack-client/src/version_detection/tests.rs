//! Every row of the table of eras, and every way through the handshake.

use serde_json::json;

use super::*;

const PROBE: Step =
    Step::Probe { revision: Revision::LATEST, line: LineChoice::Same, wait: Wait::Short };
const LONG_PROBE: Step =
    Step::Probe { revision: Revision::LATEST, line: LineChoice::Same, wait: Wait::Long };
const MODERN: Step = Step::Settle(Revision::LATEST);

fn initialize(revision: Revision, line: LineChoice) -> Step {
    Step::Initialize { revision, line }
}

fn hello(line: LineChoice) -> Step {
    initialize(Revision::LATEST_LEGACY, line)
}

fn unsupported(versions: &[&str]) -> Step {
    Step::Fail(Fault::Unsupported(texts(versions)))
}

fn texts(versions: &[&str]) -> Vec<String> {
    versions.iter().map(|it| (*it).to_owned()).collect()
}

fn error(code: i64) -> JsonRpcError {
    JsonRpcError::new(code, "no")
}

fn listing(code: i64, versions: &[&str]) -> JsonRpcError {
    JsonRpcError { data: Some(json!({"supported": versions})), ..error(code) }
}

#[test]
fn an_outage_says_nothing_about_the_era() {
    let barred = Step::Fail(Fault::Barred);
    for choice in [EraChoice::Auto, EraChoice::Modern, EraChoice::Legacy] {
        assert_eq!(Detection::new(choice, None).probed(Reply::Barred), barred);
        let mut detection = Detection::new(choice, None);
        assert_eq!(detection.greeted(Revision::LATEST_LEGACY, Reply::Barred), barred);
    }
}

fn auto() -> Detection {
    Detection::new(EraChoice::Auto, None)
}

#[track_caller]
fn check_probe(reply: Reply<'_, &[String]>, expected: Step) {
    assert_eq!(auto().probed(reply), expected, "{reply:?}");
}

/// Protocol facts §5.1, row by row.
#[test]
fn every_outcome_of_the_probe_has_its_verdict() {
    check_probe(Reply::Good(&texts(&["2025-11-25", "2026-07-28", "2027-01-01"])), MODERN);
    check_probe(
        Reply::Good(&texts(&["2025-03-26", "2024-11-05"])),
        initialize(Revision::R2025_03_26, LineChoice::Same),
    );
    check_probe(Reply::Good(&texts(&["2027-01-01"])), unsupported(&["2027-01-01"]));
    check_probe(Reply::Good(&[]), unsupported(&[]));
    check_probe(Reply::Refused(&listing(-32022, &["2026-07-28"])), LONG_PROBE);
    check_probe(
        Reply::Refused(&listing(-32022, &["2025-06-18", "2027-01-01"])),
        initialize(Revision::R2025_06_18, LineChoice::Same),
    );
    check_probe(Reply::Refused(&listing(-32022, &["2027-01-01"])), unsupported(&["2027-01-01"]));
    check_probe(Reply::Refused(&error(-32022)), Step::Fail(Fault::Refused));
    check_probe(Reply::Refused(&error(-32020)), Step::Fail(Fault::Refused));
    check_probe(Reply::Refused(&error(-32021)), Step::Fail(Fault::Refused));
    for code in [-32601, -32602, -32600, -32000, -32700, -32603, -32001, -32004, 0, 1] {
        check_probe(Reply::Refused(&error(code)), hello(LineChoice::Same));
    }
    check_probe(Reply::Silent, hello(LineChoice::Fresh));
    check_probe(Reply::Gone, hello(LineChoice::Fresh));
    check_probe(Reply::Odd, hello(LineChoice::Same));
}

#[test]
fn a_version_is_corrected_once() {
    let mut detection = auto();
    let refusal = listing(-32022, &["2026-07-28"]);
    assert_eq!(detection.probed(Reply::Refused(&refusal)), LONG_PROBE);
    assert_eq!(detection.probed(Reply::Refused(&refusal)), Step::Fail(Fault::Refused));
}

#[track_caller]
fn check_begin(choice: EraChoice, remembered: Option<Revision>, expected: Step) {
    let detection = Detection::new(choice, remembered.map(Verdict::new));
    assert_eq!(detection.begin(), expected, "{choice:?} {remembered:?}");
}

#[test]
fn what_is_remembered_saves_the_probe() {
    check_begin(EraChoice::Auto, None, PROBE);
    check_begin(EraChoice::Auto, Some(Revision::R2024_11_05), hello(LineChoice::Same));
    check_begin(EraChoice::Auto, Some(Revision::LATEST), LONG_PROBE);
    check_begin(EraChoice::Legacy, Some(Revision::LATEST), hello(LineChoice::Same));
    check_begin(EraChoice::Modern, Some(Revision::R2024_11_05), LONG_PROBE);
}

#[track_caller]
fn check_greeting(reply: Reply<'_, &str>, expected: Step) {
    let mut detection = auto();
    detection.probed(Reply::Refused(&error(-32601)));
    assert_eq!(detection.greeted(Revision::LATEST_LEGACY, reply), expected, "{reply:?}");
}

#[test]
fn every_outcome_of_initialize_has_its_verdict() {
    for &revision in Revision::ALL {
        check_greeting(Reply::Good(revision.as_str()), Step::Settle(revision));
    }
    check_greeting(Reply::Good("2024-10-07"), Step::Settle(Revision::R2024_11_05));
    check_greeting(Reply::Good("3000-01-01"), unsupported(&["3000-01-01"]));
    check_greeting(
        Reply::Refused(&listing(-32602, &["2024-11-05", "2025-03-26"])),
        initialize(Revision::R2025_03_26, LineChoice::Same),
    );
    check_greeting(Reply::Refused(&listing(-32602, &["1999"])), unsupported(&["1999"]));
    check_greeting(Reply::Refused(&error(-32603)), Step::Fail(Fault::Refused));
    check_greeting(Reply::Odd, Step::Fail(Fault::Odd));
    check_greeting(Reply::Silent, Step::Fail(Fault::Silent));
    check_greeting(Reply::Gone, Step::Fail(Fault::Gone));
}

#[test]
fn a_version_is_offered_twice_at_most() {
    let mut detection = auto();
    detection.probed(Reply::Odd);
    let refusal = listing(-32602, &["2025-03-26"]);
    let again = initialize(Revision::R2025_03_26, LineChoice::Same);
    let latest = Revision::LATEST_LEGACY;
    assert_eq!(detection.greeted(latest, Reply::Refused(&refusal)), again);
    let step = detection.greeted(Revision::R2025_03_26, Reply::Refused(&refusal));
    assert_eq!(step, Step::Fail(Fault::Refused));
}

#[test]
fn a_slow_modern_server_gets_a_second_look() {
    for silence in [Reply::Silent, Reply::Gone] {
        for refusal in [error(-32601), listing(-32022, &["2026-07-28"])] {
            let mut detection = auto();
            detection.probed(silence);
            let step = detection.greeted(Revision::LATEST_LEGACY, Reply::Refused(&refusal));
            assert_eq!(step, LONG_PROBE);
            assert_eq!(detection.probed(Reply::Good(&texts(&["2026-07-28"]))), MODERN);
            assert_eq!(detection.probed(Reply::Gone), Step::Fail(Fault::Gone));
        }
    }
}

#[test]
fn who_has_to_fetch_the_server_is_not_ended_for_silence() {
    let mut detection = auto().fetching();
    assert_eq!(detection.probed(Reply::Silent), hello(LineChoice::Same));
    assert!(detection.may_greet_again());
    let latest = Revision::LATEST_LEGACY;
    assert_eq!(detection.greeted(latest, Reply::Silent), hello(LineChoice::Fresh));
    assert_eq!(detection.greeted(latest, Reply::Silent), Step::Fail(Fault::Silent));
    let mut detection = auto().fetching();
    detection.probed(Reply::Silent);
    assert_eq!(detection.greeted(latest, Reply::Gone), hello(LineChoice::Fresh));
    assert_eq!(detection.greeted(latest, Reply::Gone), Step::Fail(Fault::Gone));
    let mut detection = auto().fetching();
    assert_eq!(detection.probed(Reply::Gone), hello(LineChoice::Fresh));
    assert_eq!(detection.greeted(latest, Reply::Silent), Step::Fail(Fault::Silent));
}

#[test]
fn an_upgraded_server_is_found_out() {
    let legacy = Some(Verdict::new(Revision::R2025_06_18));
    let mut detection = Detection::new(EraChoice::Auto, legacy);
    let step = detection.greeted(Revision::LATEST_LEGACY, Reply::Refused(&error(-32601)));
    assert_eq!(step, LONG_PROBE);
}

#[test]
fn a_forced_era_is_never_left() {
    let mut modern = Detection::new(EraChoice::Modern, None);
    assert_eq!(modern.probed(Reply::Refused(&error(-32601))), Step::Fail(Fault::Refused));
    assert_eq!(modern.probed(Reply::Silent), Step::Fail(Fault::Silent));
    assert_eq!(modern.probed(Reply::Gone), Step::Fail(Fault::Gone));
    assert_eq!(modern.probed(Reply::Odd), Step::Fail(Fault::Odd));
    let step = modern.probed(Reply::Good(&texts(&["2025-11-25"])));
    assert_eq!(step, unsupported(&["2025-11-25"]));
    let mut legacy = Detection::new(EraChoice::Legacy, None);
    let step = legacy.greeted(Revision::LATEST_LEGACY, Reply::Good("2026-07-28"));
    assert_eq!(step, unsupported(&["2026-07-28"]));
    let step = legacy.greeted(Revision::LATEST_LEGACY, Reply::Refused(&error(-32601)));
    assert_eq!(step, Step::Fail(Fault::Refused));
}

#[test]
fn a_verdict_survives_as_text() {
    for &revision in Revision::ALL {
        let verdict = Verdict::new(revision);
        assert_eq!(Verdict::parse(&verdict.to_string()), Some(verdict));
    }
    assert_eq!(Verdict::parse("legacy"), None);
}
