//! Our tables against the official schemas.

use std::collections::BTreeSet;

use serde_json::json;
use toolrack_mcp::{ErrorCode, LogLevel, Method, MethodKind, Revision, Sender};

use crate::official;

/// Protocol facts §7.
#[test]
fn method_table_matches_the_official_schemas() {
    let Some(all) = official::all("every_revision_has_the_methods_we_say_it_has") else {
        return;
    };
    for (revision, official) in all {
        let theirs: BTreeSet<&str> = official.methods().map(|(_, method)| method).collect();
        let ours = Method::ALL
            .iter()
            .filter(|method| method.is_in(revision))
            .map(|method| method.as_str());
        assert_eq!(ours.collect::<BTreeSet<_>>(), theirs, "{revision}");
    }
}

#[test]
fn method_senders_match_the_official_schemas() {
    let Some(all) = official::all("every_method_is_sent_by_whom_we_say") else {
        return;
    };
    let senders = |side: &str, kind: &str| -> BTreeSet<String> {
        let union = format!("{side}{kind}");
        let named = |(_, official): &(Revision, official::Official)| {
            official.methods_of(&union).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        all.iter().flat_map(named).collect()
    };
    for &method in Method::ALL.iter().filter(|method| !method.revisions().is_empty()) {
        let kind = match method.kind() {
            MethodKind::Request => "Request",
            MethodKind::Notification => "Notification",
        };
        let client = senders("Client", kind).contains(method.as_str());
        let server = senders("Server", kind).contains(method.as_str());
        let expected = match method.sender() {
            Sender::Client => (true, false),
            Sender::Server => (false, true),
            Sender::Either => (true, true),
        };
        assert_eq!((client, server), expected, "{method}");
    }
}

/// Protocol facts §2.1.
#[test]
fn error_codes_match_the_official_schemas() {
    let Some(all) = official::all("error_codes_are_the_official_ones") else {
        return;
    };
    let table = [
        (Revision::R2025_11_25, "URLElicitationRequiredError", ErrorCode::URL_ELICITATION_REQUIRED),
        (Revision::R2026_07_28, "HeaderMismatchError", ErrorCode::HEADER_MISMATCH),
        (
            Revision::R2026_07_28,
            "MissingRequiredClientCapabilityError",
            ErrorCode::MISSING_CLIENT_CAPABILITY,
        ),
        (Revision::R2026_07_28, "UnsupportedProtocolVersionError", ErrorCode::UNSUPPORTED_VERSION),
    ];
    for (revision, definition, code) in table {
        let (_, official) = all.iter().find(|(listed, _)| *listed == revision).unwrap();
        let error = &official.definition(definition).unwrap()["properties"]["error"]["allOf"][1];
        assert_eq!(error["properties"]["code"]["const"], json!(code.0), "{definition}");
    }
}

pub(crate) fn log_levels() -> [LogLevel; 8] {
    use LogLevel::{Alert, Critical, Debug, Emergency, Error, Info, Notice, Warning};
    [Debug, Info, Notice, Warning, Error, Critical, Alert, Emergency]
}

#[test]
fn log_levels_match_the_official_schemas() {
    let Some(all) = official::all("log_levels_are_the_official_ones") else {
        return;
    };
    for (revision, official) in all {
        let listed = official.definition("LoggingLevel").unwrap()["enum"].as_array().unwrap();
        let theirs: BTreeSet<String> = listed.iter().map(ToString::to_string).collect();
        let ours = log_levels().map(|level| json!(level).to_string());
        assert_eq!(BTreeSet::from(ours), theirs, "{revision}");
    }
}
