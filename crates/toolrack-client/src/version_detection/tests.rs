//! Every row of the era table, and every path through the handshake.

use serde_json::json;

use super::*;

const PROBE: Step = Step::Probe {
    revision: Revision::LATEST,
    transport: TransportChoice::Current,
    wait: ProbeTimeout::Short,
};
const LONG_PROBE: Step = Step::Probe {
    revision: Revision::LATEST,
    transport: TransportChoice::Current,
    wait: ProbeTimeout::Long,
};
const MODERN: Step = Step::Done(Revision::LATEST);

fn initialize(revision: Revision, transport: TransportChoice) -> Step {
    Step::Initialize { revision, transport }
}

fn initialize_latest(transport: TransportChoice) -> Step {
    initialize(Revision::LATEST_LEGACY, transport)
}

fn unsupported(versions: &[&str]) -> Step {
    Step::Unsupported(texts(versions))
}

fn texts(versions: &[&str]) -> Vec<String> {
    versions.iter().map(|version| (*version).to_owned()).collect()
}

fn error(code: i64) -> JsonRpcError {
    JsonRpcError::new(code, "no")
}

fn error_listing(code: i64, versions: &[&str]) -> JsonRpcError {
    JsonRpcError { data: Some(json!({"supported": versions})), ..error(code) }
}

#[test]
fn outage_does_not_decide_the_era() {
    let barred = Step::Fail;
    for choice in [EraChoice::Auto, EraChoice::Modern, EraChoice::Legacy] {
        assert_eq!(VersionDetection::new(choice, None).on_discover(Reply::Unavailable), barred);
        let mut detection = VersionDetection::new(choice, None);
        assert_eq!(detection.on_initialize(Revision::LATEST_LEGACY, Reply::Unavailable), barred);
    }
}

fn auto() -> VersionDetection {
    VersionDetection::new(EraChoice::Auto, None)
}

#[track_caller]
fn check_probe(reply: Reply<'_, &[String]>, expected: Step) {
    assert_eq!(auto().on_discover(reply), expected, "{reply:?}");
}

/// Protocol facts §5.1, row by row.
#[test]
fn discover_reply_table() {
    check_probe(Reply::Ok(&texts(&["2025-11-25", "2026-07-28", "2027-01-01"])), MODERN);
    check_probe(
        Reply::Ok(&texts(&["2025-03-26", "2024-11-05"])),
        initialize(Revision::R2025_03_26, TransportChoice::Current),
    );
    check_probe(Reply::Ok(&texts(&["2027-01-01"])), unsupported(&["2027-01-01"]));
    check_probe(Reply::Ok(&[]), unsupported(&[]));
    check_probe(Reply::Error(&error_listing(-32022, &["2026-07-28"])), LONG_PROBE);
    check_probe(
        Reply::Error(&error_listing(-32022, &["2025-06-18", "2027-01-01"])),
        initialize(Revision::R2025_06_18, TransportChoice::Current),
    );
    check_probe(
        Reply::Error(&error_listing(-32022, &["2027-01-01"])),
        unsupported(&["2027-01-01"]),
    );
    check_probe(Reply::Error(&error(-32022)), Step::Fail);
    check_probe(Reply::Error(&error(-32020)), Step::Fail);
    check_probe(Reply::Error(&error(-32021)), Step::Fail);
    for code in [-32601, -32602, -32600, -32000, -32700, -32603, -32001, -32004, 0, 1] {
        check_probe(Reply::Error(&error(code)), initialize_latest(TransportChoice::Current));
    }
    check_probe(Reply::TimedOut, initialize_latest(TransportChoice::New));
    check_probe(Reply::Closed, initialize_latest(TransportChoice::New));
    check_probe(Reply::Malformed, initialize_latest(TransportChoice::Current));
}

#[test]
fn version_is_retried_once() {
    let mut detection = auto();
    let rejection = error_listing(-32022, &["2026-07-28"]);
    assert_eq!(detection.on_discover(Reply::Error(&rejection)), LONG_PROBE);
    assert_eq!(detection.on_discover(Reply::Error(&rejection)), Step::Fail);
}

#[track_caller]
fn check_first_step(choice: EraChoice, known_version: Option<Revision>, expected: Step) {
    let detection = VersionDetection::new(choice, known_version);
    assert_eq!(detection.first_step(), expected, "{choice:?} {known_version:?}");
}

#[test]
fn known_version_saves_the_probe() {
    check_first_step(EraChoice::Auto, None, PROBE);
    check_first_step(
        EraChoice::Auto,
        Some(Revision::R2024_11_05),
        initialize_latest(TransportChoice::Current),
    );
    check_first_step(EraChoice::Auto, Some(Revision::LATEST), LONG_PROBE);
    check_first_step(
        EraChoice::Legacy,
        Some(Revision::LATEST),
        initialize_latest(TransportChoice::Current),
    );
    check_first_step(EraChoice::Modern, Some(Revision::R2024_11_05), LONG_PROBE);
}

#[track_caller]
fn check_initialize(reply: Reply<'_, &str>, expected: Step) {
    let mut detection = auto();
    detection.on_discover(Reply::Error(&error(-32601)));
    assert_eq!(detection.on_initialize(Revision::LATEST_LEGACY, reply), expected, "{reply:?}");
}

#[test]
fn initialize_reply_table() {
    for &revision in Revision::ALL {
        check_initialize(Reply::Ok(revision.as_str()), Step::Done(revision));
    }
    check_initialize(Reply::Ok("2024-10-07"), Step::Done(Revision::R2024_11_05));
    check_initialize(Reply::Ok("3000-01-01"), unsupported(&["3000-01-01"]));
    check_initialize(
        Reply::Error(&error_listing(-32602, &["2024-11-05", "2025-03-26"])),
        initialize(Revision::R2025_03_26, TransportChoice::Current),
    );
    check_initialize(Reply::Error(&error_listing(-32602, &["1999"])), unsupported(&["1999"]));
    check_initialize(Reply::Error(&error(-32603)), Step::Fail);
    check_initialize(Reply::Malformed, Step::Fail);
    check_initialize(Reply::TimedOut, Step::Fail);
    check_initialize(Reply::Closed, Step::Fail);
}

#[test]
fn version_is_offered_at_most_twice() {
    let mut detection = auto();
    detection.on_discover(Reply::Malformed);
    let rejection = error_listing(-32602, &["2025-03-26"]);
    let second_offer = initialize(Revision::R2025_03_26, TransportChoice::Current);
    let latest = Revision::LATEST_LEGACY;
    assert_eq!(detection.on_initialize(latest, Reply::Error(&rejection)), second_offer);
    let step = detection.on_initialize(Revision::R2025_03_26, Reply::Error(&rejection));
    assert_eq!(step, Step::Fail);
}

#[test]
fn slow_modern_server_is_probed_again() {
    for silence in [Reply::TimedOut, Reply::Closed] {
        for rejection in [error(-32601), error_listing(-32022, &["2026-07-28"])] {
            let mut detection = auto();
            detection.on_discover(silence);
            let step = detection.on_initialize(Revision::LATEST_LEGACY, Reply::Error(&rejection));
            assert_eq!(step, LONG_PROBE);
            assert_eq!(detection.on_discover(Reply::Ok(&texts(&["2026-07-28"]))), MODERN);
            assert_eq!(detection.on_discover(Reply::Closed), Step::Fail);
        }
    }
}

#[test]
fn silent_launcher_is_not_killed() {
    let mut detection = auto().with_launcher();
    assert_eq!(detection.on_discover(Reply::TimedOut), initialize_latest(TransportChoice::Current));
    assert!(detection.may_initialize_again);
    let latest = Revision::LATEST_LEGACY;
    assert_eq!(
        detection.on_initialize(latest, Reply::TimedOut),
        initialize_latest(TransportChoice::New)
    );
    assert_eq!(detection.on_initialize(latest, Reply::TimedOut), Step::Fail);
    let mut detection = auto().with_launcher();
    detection.on_discover(Reply::TimedOut);
    assert_eq!(
        detection.on_initialize(latest, Reply::Closed),
        initialize_latest(TransportChoice::New)
    );
    assert_eq!(detection.on_initialize(latest, Reply::Closed), Step::Fail);
    let mut detection = auto().with_launcher();
    assert_eq!(detection.on_discover(Reply::Closed), initialize_latest(TransportChoice::New));
    assert_eq!(detection.on_initialize(latest, Reply::TimedOut), Step::Fail);
}

#[test]
fn upgraded_server_is_detected() {
    let legacy = Some(Revision::R2025_06_18);
    let mut detection = VersionDetection::new(EraChoice::Auto, legacy);
    let step = detection.on_initialize(Revision::LATEST_LEGACY, Reply::Error(&error(-32601)));
    assert_eq!(step, LONG_PROBE);
}

#[test]
fn forced_era_is_never_left() {
    let mut modern = VersionDetection::new(EraChoice::Modern, None);
    assert_eq!(modern.on_discover(Reply::Error(&error(-32601))), Step::Fail);
    assert_eq!(modern.on_discover(Reply::TimedOut), Step::Fail);
    assert_eq!(modern.on_discover(Reply::Closed), Step::Fail);
    assert_eq!(modern.on_discover(Reply::Malformed), Step::Fail);
    let step = modern.on_discover(Reply::Ok(&texts(&["2025-11-25"])));
    assert_eq!(step, unsupported(&["2025-11-25"]));
    let mut legacy = VersionDetection::new(EraChoice::Legacy, None);
    let step = legacy.on_initialize(Revision::LATEST_LEGACY, Reply::Ok("2026-07-28"));
    assert_eq!(step, unsupported(&["2026-07-28"]));
    let step = legacy.on_initialize(Revision::LATEST_LEGACY, Reply::Error(&error(-32601)));
    assert_eq!(step, Step::Fail);
}
