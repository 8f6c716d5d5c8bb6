//! Runs fuzz targets on stable Rust: replays their corpora and mutates them.
//!
//! A fuzz target is a function of bytes that panics if a property does not hold. Each crate has its targets in
//! `fuzz.rs`, compiled for its unit tests and for libFuzzer (`cfg(fuzzing)`). The unit tests call [`check_targets`];
//! `cargo xtask fuzz` runs the same functions under libFuzzer. docs/internal/fuzzing.md says more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

/// Name and function of a fuzz target.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// Mutated inputs of one round.
const N_MUTATED: u32 = 256;

/// Rounds of one target go on for so long: with the two dozen targets of the workspace, about a minute of fuzzing.
const SMOKE_TIME: Duration = Duration::from_millis(2500);

/// Each step of shrinking prints a panic.
const MAX_SHRINK_STEPS: u32 = 100;

/// Longest run of bytes that one edit inserts or removes.
const MAX_RUN_BYTES: usize = 16;

/// Runs every target with the files of its corpus, then with mutations of them.
#[expect(clippy::disallowed_methods, reason = "fuzzing takes real time")]
pub fn check_targets(targets: &[FuzzTarget]) {
    for (name, target) in targets {
        let corpus = read_corpus(name);
        for (path, bytes) in &corpus {
            let outcome = catch_unwind(AssertUnwindSafe(|| target(bytes)));
            assert!(outcome.is_ok(), "fuzz target {name} fails with {}", path.display());
        }
        let corpus: Vec<Vec<u8>> = corpus.into_iter().map(|(_, bytes)| bytes).collect();
        let started = Instant::now();
        while started.elapsed() < SMOKE_TIME {
            check_mutations(name, *target, corpus.clone());
        }
    }
}

fn check_mutations(name: &str, target: fn(&[u8]), corpus: Vec<Vec<u8>>) {
    let config = Config {
        cases: N_MUTATED,
        max_shrink_iters: MAX_SHRINK_STEPS,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&mutated(corpus), |Input(bytes)| {
        catch_unwind(AssertUnwindSafe(|| target(&bytes)))
            .map_err(|_panic| TestCaseError::fail("a property does not hold"))
    });
    assert!(outcome.is_ok(), "fuzz target {name}: {outcome:?}");
}

/// Input of a target. Shown with escapes, so that it can be copied into a file.
#[derive(Clone)]
struct Input(Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

/// Change of an input at one place.
#[derive(Debug, Clone)]
enum Edit {
    Replace(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// The rest comes from another file.
    Splice(Index, Index, Index),
}

fn mutated(corpus: Vec<Vec<u8>>) -> impl Strategy<Value = Input> {
    let index = any::<Index>;
    let run = proptest::collection::vec(any::<u8>(), 1..MAX_RUN_BYTES);
    let edit = prop_oneof![
        (index(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        (index(), run).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (index(), 1..MAX_RUN_BYTES).prop_map(|(at, n_bytes)| Edit::Remove(at, n_bytes)),
        (index(), index(), index()).prop_map(|(at, file, from)| Edit::Splice(at, file, from)),
    ];
    (index(), proptest::collection::vec(edit, 0..5)).prop_map(move |(file, edits)| {
        let mut bytes = file.get(&corpus).clone();
        for edit in edits {
            apply(&mut bytes, &edit, &corpus);
        }
        Input(bytes)
    })
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit, corpus: &[Vec<u8>]) {
    let place = |at: &Index| at.index(bytes.len() + 1);
    match edit {
        Edit::Replace(at, byte) => {
            let at = place(at);
            if let Some(replaced) = bytes.get_mut(at) {
                *replaced = *byte;
            }
        }
        Edit::Insert(at, inserted) => {
            let at = place(at);
            bytes.splice(at..at, inserted.iter().copied());
        }
        Edit::Remove(at, n_bytes) => {
            let at = place(at);
            bytes.drain(at..bytes.len().min(at + n_bytes));
        }
        Edit::Splice(at, file, from) => {
            let (at, other) = (place(at), file.get(corpus));
            bytes.truncate(at);
            bytes.extend(other.iter().skip(from.index(other.len() + 1)));
        }
    }
}

/// Files of a target, sorted by path. A target without a corpus would test little more than the empty input.
#[expect(clippy::expect_used, clippy::panic, reason = "called by tests only")]
fn read_corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("fuzz target {name}: {}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("corpus folder").path())
        .map(|path| (path.clone(), fs::read(&path).expect("corpus file")))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "fuzz target {name} has no corpus in {}", folder.display());
    files
}

#[cfg(test)]
mod tests {
    use proptest::strategy::ValueTree as _;

    use super::*;

    fn fails_on_two_zeros(bytes: &[u8]) {
        assert!(!bytes.windows(2).any(|pair| pair == [0, 0]));
    }

    #[test]
    fn mutations_find_a_failure() {
        let outcome = catch_unwind(|| check_mutations("zeros", fails_on_two_zeros, vec![vec![0]]));
        assert!(outcome.is_err());
    }

    #[test]
    fn edits_stay_within_the_input() {
        let corpus = vec![b"abc".to_vec(), Vec::new()];
        let strategy = mutated(corpus);
        let mut runner = TestRunner::deterministic();
        for _ in 0..1000 {
            let Input(bytes) = strategy.new_tree(&mut runner).unwrap().current();
            assert!(bytes.len() <= 3 + 5 * MAX_RUN_BYTES);
        }
    }
}
