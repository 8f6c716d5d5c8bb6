//! Client capabilities per revision.

use super::*;

fn everything() -> ClientCapabilities {
    let json = r#"{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},
        "elicitation":{"form":{},"url":{}},"experimental":{"e":{"k":1}},
        "extensions":{"org.example/x":{}},"tasks":{"list":{}}}"#;
    serde_json::from_str(json).unwrap()
}

#[track_caller]
fn check(capabilities: &ClientCapabilities, revision: Revision, expected: &str) {
    assert_eq!(serde_json::to_string(&capabilities.wire(revision)).unwrap(), expected);
}

/// Protocol facts §6.1.
#[test]
fn capabilities_are_written_per_revision() {
    let all = everything();
    let first = r#"{"experimental":{"e":{"k":1}},"roots":{"listChanged":true},"sampling":{}}"#;
    check(&all, Revision::R2024_11_05, first);
    check(&all, Revision::R2025_03_26, first);
    let third = concat!(
        r#"{"experimental":{"e":{"k":1}},"roots":{"listChanged":true},"#,
        r#""sampling":{},"elicitation":{}}"#
    );
    check(&all, Revision::R2025_06_18, third);
    let fourth = concat!(
        r#"{"experimental":{"e":{"k":1}},"roots":{"listChanged":true},"#,
        r#""sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}"#
    );
    check(&all, Revision::R2025_11_25, fourth);
    let fifth = concat!(
        r#"{"experimental":{"e":{"k":1}},"roots":{},"sampling":{"tools":{},"context":{}},"#,
        r#""elicitation":{"form":{},"url":{}},"extensions":{"org.example/x":{}}}"#
    );
    check(&all, Revision::R2026_07_28, fifth);
}

#[test]
fn absent_params_are_an_empty_object() {
    for &revision in Revision::ALL {
        check(&ClientCapabilities::default(), revision, "{}");
    }
}

#[test]
fn url_only_elicitation_is_not_declared_before_url_mode() {
    let pages = ClientCapabilities {
        elicitation: Some(ElicitationCapability { form: false, url: true }),
        ..ClientCapabilities::default()
    };
    check(&pages, Revision::R2025_06_18, "{}");
    check(&pages, Revision::R2025_11_25, r#"{"elicitation":{"url":{}}}"#);
}

#[test]
fn empty_elicitation_capability_means_forms() {
    let read: ClientCapabilities = serde_json::from_str(r#"{"elicitation":{}}"#).unwrap();
    assert_eq!(read.elicitation, Some(ElicitationCapability { form: true, url: false }));
}
