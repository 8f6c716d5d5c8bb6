//! The history on real files: bounded, paged, and never in anybody's way.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use toolrack_testkit::eventually;

use super::*;

const LONG: Duration = Duration::from_secs(20);

fn call(number: u64) -> CallRecord {
    CallRecord {
        id: format!("run-{number}"),
        time_ms: 1000 + number,
        agent: None,
        server: if number.is_multiple_of(2) { "even" } else { "odd" }.to_owned(),
        tool: "tool".to_owned(),
        outcome: if number == 3 { "failed" } else { "done" }.into(),
        delivery: "answered".into(),
        duration_us: number,
        argument_bytes: 2,
        result_bytes: 3,
    }
}

fn open(dir: &TempDir, options: HistoryOptions) -> History {
    History::open(&dir.path().join("history.db"), options).unwrap()
}

fn written(history: &History, n: u64) {
    eventually(LONG, "the calls are written", || {
        history.counts().n_written.load(Ordering::Relaxed) >= n
    });
}

fn ids(answers: &Answers) -> Vec<&str> {
    answers.calls.iter().map(|it| it.id.as_str()).collect()
}

#[test]
fn calls_are_found_by_what_is_known_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let history = open(&dir, HistoryOptions::default());
    assert_eq!(history.ask(&Question::default()).unwrap(), Answers::default());
    (0..6).for_each(|number| history.remember(call(number)));
    written(&history, 6);
    let all = Question { limit: 4, ..Question::default() };
    let page = history.ask(&all).unwrap();
    assert_eq!(ids(&page), ["run-5", "run-4", "run-3", "run-2"]);
    let page = history.ask(&Question { before: page.next, ..all.clone() }).unwrap();
    assert_eq!((ids(&page), page.next), (vec!["run-1", "run-0"], None));
    let check = |question: Question, expected: &[&str]| {
        let answers = history.ask(&Question { limit: 9, ..question.clone() }).unwrap();
        assert_eq!(ids(&answers), expected, "{question:?}");
    };
    let none = Question::default;
    check(Question { server: Some("odd".to_owned()), ..none() }, &["run-5", "run-3", "run-1"]);
    check(Question { outcome: Some("failed".to_owned()), ..none() }, &["run-3"]);
    check(Question { is_unsuccessful: true, ..none() }, &["run-3"]);
    check(Question { tool: Some("other".to_owned()), ..none() }, &[]);
    check(Question { since_ms: Some(1004), ..none() }, &["run-5", "run-4"]);
    assert_eq!(history.get("run-2").unwrap(), Some(call(2)));
    assert_eq!(history.get("run-9").unwrap(), None);
    let odd = history.latencies().unwrap().into_iter().find(|it| it.server == "odd").unwrap();
    assert_eq!((odd.n_calls, odd.n_failed, odd.p50_us, odd.max_us), (3, 1, 3, 5));
    history.close();
}

#[test]
fn what_was_written_is_there_after_a_restart_and_what_is_queued_is_written_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let history = open(&dir, HistoryOptions::default());
    (0..1000).for_each(|number| history.remember(call(number)));
    history.close();
    let history = open(&dir, HistoryOptions::default());
    let answers = history.ask(&Question { limit: 2000, ..Question::default() }).unwrap();
    assert_eq!(answers.calls.len(), 1000);
    history.close();
}

#[test]
fn the_oldest_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let history = open(&dir, HistoryOptions { max_calls: 100, ..HistoryOptions::default() });
    (0..1000).for_each(|number| history.remember(call(number)));
    history.close();
    let answers = history.ask(&Question { limit: 2000, ..Question::default() }).unwrap();
    assert!(answers.calls.len() <= 100, "{}", answers.calls.len());
    assert_eq!(answers.calls[0].id, "run-999");
}

#[test]
fn the_file_does_not_outgrow_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let options = HistoryOptions { max_bytes: 256 << 10, ..HistoryOptions::default() };
    let history = open(&dir, options);
    for number in 0..12_000 {
        history.remember(call(number));
        if number.is_multiple_of(1000) {
            // Not faster than it writes, so that something is written at all.
            written(&history, number / 2);
        }
    }
    history.close();
    let size = fs::metadata(dir.path().join("history.db")).unwrap().len();
    assert!(size < 1 << 20, "{size}");
}

#[test]
fn a_locked_database_delays_nobody_and_loses_little() {
    let dir = tempfile::tempdir().unwrap();
    let history = open(&dir, HistoryOptions::default());
    history.remember(call(0));
    written(&history, 1);
    let other = Connection::open(dir.path().join("history.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    (1..100).for_each(|number| history.remember(call(number)));
    eventually(LONG, "it was tried", || history.counts().n_failures.load(Ordering::Relaxed) > 0);
    other.execute_batch("commit").unwrap();
    written(&history, 100);
    assert_eq!(history.counts().n_dropped.load(Ordering::Relaxed), 0);
    history.close();
}

#[test]
fn what_does_not_fit_is_dropped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    // A folder stands where the database should, so that nothing can ever be written.
    fs::create_dir(dir.path().join("history.db")).unwrap();
    let history = open(&dir, HistoryOptions::default());
    let n = 2 * QUEUE as u64;
    (0..n).for_each(|number| history.remember(call(number)));
    assert!(history.counts().n_dropped.load(Ordering::Relaxed) >= n - (QUEUE + BATCH) as u64);
    history.close();
    assert_eq!(history.counts().n_dropped.load(Ordering::Relaxed), n);
}

#[test]
fn a_damaged_file_is_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    fs::copy("/proc/self/exe", &path).unwrap();
    let history = open(&dir, HistoryOptions::default());
    history.remember(call(0));
    written(&history, 1);
    history.close();
    assert!(dir.path().join("history.db.damaged").exists());
    assert_eq!(history.get("run-0").unwrap(), Some(call(0)));
}

#[test]
fn percentiles_are_values_that_were_measured() {
    let check = |durations: Vec<u64>, expected: (u64, u64, u64, u64)| {
        let it = Latency::of("s".to_owned(), None, durations, 0);
        assert_eq!((it.p50_us, it.p90_us, it.p99_us, it.max_us), expected);
    };
    check((1..=100).rev().collect(), (50, 90, 99, 100));
    check(vec![7], (7, 7, 7, 7));
    check(vec![9, 1], (1, 9, 9, 9));
    check(Vec::new(), (0, 0, 0, 0));
}
