//! Replays every transcript and compares. `UPDATE=1` rewrites the client's half instead.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fixture::replay;
use crate::transcript::Transcript;

#[test]
fn every_transcript_replays_as_written() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let entries = std::fs::read_dir(&dir).expect("the transcript directory exists");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() > 50, "only {} transcripts were found", paths.len());
    let wanted = std::env::var_os("ONLY");
    let mut differences = String::new();
    for path in paths {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if wanted.as_ref().is_some_and(|only| !name.contains(&*only.to_string_lossy())) {
            continue;
        }
        let outcome = std::panic::catch_unwind(|| check(&path));
        let difference = outcome.unwrap_or_else(|_panic| Some("panicked, see above".to_owned()));
        if let Some(difference) = difference {
            write!(differences, "\n{name}: {difference}").expect("writing to a string");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// Replays one transcript and returns the first difference.
fn check(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).expect("a readable transcript");
    let transcript = Transcript::parse(&text);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let observed = runtime.block_on(replay(&transcript));
    if std::env::var_os("UPDATE").is_some() {
        #[expect(clippy::disallowed_methods, reason = "a test file, rewritten on request")]
        std::fs::write(path, transcript.with_observed(&observed)).expect("a writable transcript");
        return None;
    }
    for (step, observed) in transcript.steps.iter().zip(&observed) {
        let same = step.expected.len() == observed.len()
            && step.expected.iter().zip(observed).all(|(left, right)| is_same(left, right));
        if !same {
            let expected = step.expected.join("\n  ");
            let observed = observed.join("\n  ");
            return Some(format!(
                "after {:?}\nexpected\n  {expected}\nobserved\n  {observed}",
                step.input
            ));
        }
    }
    None
}

/// Compares messages as JSON, other lines as text.
fn is_same(expected: &str, observed: &str) -> bool {
    let message =
        |line: &str| -> Option<Value> { serde_json::from_str(line.strip_prefix("> ")?).ok() };
    expected == observed || (message(expected).is_some() && message(expected) == message(observed))
}
