//! Capabilities of the client, revision by revision.

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
fn each_revision_is_told_what_it_knows() {
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
fn nothing_is_an_empty_object() {
    for &revision in Revision::ALL {
        check(&ClientCapabilities::default(), revision, "{}");
    }
}

#[test]
fn pages_alone_are_not_declared_where_only_forms_exist() {
    let pages = ClientCapabilities {
        elicitation: Some(ElicitationCapability { form: false, url: true }),
        ..ClientCapabilities::default()
    };
    check(&pages, Revision::R2025_06_18, "{}");
    check(&pages, Revision::R2025_11_25, r#"{"elicitation":{"url":{}}}"#);
}

#[test]
fn empty_elicitation_means_forms() {
    let read: ClientCapabilities = serde_json::from_str(r#"{"elicitation":{}}"#).unwrap();
    assert_eq!(read.elicitation, Some(ElicitationCapability { form: true, url: false }));
}

#[test]
fn what_is_required_is_compared_part_by_part() {
    let required = |json: &str| serde_json::from_str::<ClientCapabilities>(json).unwrap();
    let all = everything();
    assert!(all.cover(&all));
    assert!(all.cover(&ClientCapabilities::default()));
    let ours = required(r#"{"elicitation":{},"sampling":{}}"#);
    assert!(ours.cover(&required(r#"{"sampling":{}}"#)));
    for missing in [
        r#"{"elicitation":{"url":{}}}"#,
        r#"{"sampling":{"tools":{}}}"#,
        r#"{"roots":{}}"#,
        r#"{"extensions":{"org.example/x":{}}}"#,
        r#"{"experimental":{"e":{}}}"#,
    ] {
        assert!(!ours.cover(&required(missing)), "{missing}");
    }
}
