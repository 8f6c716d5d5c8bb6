//! Call history on real files: limits, paging, retries and damage.

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

fn wait_until_written(history: &History, n: u64) {
    eventually(LONG, "the calls are written", || {
        history.stats.n_written.load(Ordering::Relaxed) >= n
    });
}

fn ids(page: &HistoryPage) -> Vec<&str> {
    page.calls.iter().map(|call| call.id.as_str()).collect()
}

#[test]
fn queries_filter_and_page() {
    let dir = tempfile::tempdir().unwrap();
    let history = open(&dir, HistoryOptions::default());
    assert_eq!(
        history.read(|db| db.query(&HistoryQuery::default())).unwrap(),
        HistoryPage::default()
    );
    (0..6).for_each(|number| history.record(call(number)));
    wait_until_written(&history, 6);
    let all = HistoryQuery { limit: Some(4), ..HistoryQuery::default() };
    let page = history.read(|db| db.query(&all)).unwrap();
    assert_eq!(ids(&page), ["run-5", "run-4", "run-3", "run-2"]);
    let page =
        history.read(|db| db.query(&HistoryQuery { before: page.next, ..all.clone() })).unwrap();
    assert_eq!((ids(&page), page.next), (vec!["run-1", "run-0"], None));
    let check = |query: HistoryQuery, expected: &[&str]| {
        let page =
            history.read(|db| db.query(&HistoryQuery { limit: Some(9), ..query.clone() })).unwrap();
        assert_eq!(ids(&page), expected, "{query:?}");
    };
    let none = HistoryQuery::default;
    check(HistoryQuery { server: Some("odd".to_owned()), ..none() }, &["run-5", "run-3", "run-1"]);
    check(HistoryQuery { outcome: Some("failed".to_owned()), ..none() }, &["run-3"]);
    check(HistoryQuery { unsuccessful_only: true, ..none() }, &["run-3"]);
    check(HistoryQuery { tool: Some("other".to_owned()), ..none() }, &[]);
    check(HistoryQuery { since_ms: Some(1004), ..none() }, &["run-5", "run-4"]);
    assert_eq!(history.read(|db| db.get("run-2")).unwrap(), Some(call(2)));
    assert_eq!(history.read(|db| db.get("run-9")).unwrap(), None);
    let odd = history
        .read(Db::latencies)
        .unwrap()
        .into_iter()
        .find(|latency| latency.server == "odd")
        .unwrap();
    assert_eq!((odd.n_calls, odd.n_failed, odd.p50_us, odd.max_us), (3, 1, 3, 5));
    history.close();
}

#[test]
fn queued_calls_are_written_on_close_and_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let history = open(&dir, HistoryOptions::default());
    (0..1000).for_each(|number| history.record(call(number)));
    history.close();
    let history = open(&dir, HistoryOptions::default());
    let page = history
        .read(|db| db.query(&HistoryQuery { limit: Some(2000), ..HistoryQuery::default() }))
        .unwrap();
    assert_eq!(page.calls.len(), 1000);
    history.close();
}

#[test]
fn oldest_calls_are_deleted_at_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let history = open(&dir, HistoryOptions { max_calls: 100, ..HistoryOptions::default() });
    (0..1000).for_each(|number| history.record(call(number)));
    history.close();
    let page = history
        .read(|db| db.query(&HistoryQuery { limit: Some(2000), ..HistoryQuery::default() }))
        .unwrap();
    assert!(page.calls.len() <= 100, "{}", page.calls.len());
    assert_eq!(page.calls[0].id, "run-999");
}

#[test]
fn database_stays_within_its_size_limit() {
    let dir = tempfile::tempdir().unwrap();
    let options = HistoryOptions { max_bytes: 256 << 10, ..HistoryOptions::default() };
    let history = open(&dir, options);
    for number in 0..12_000 {
        history.record(call(number));
        if number.is_multiple_of(1000) {
            // Not faster than the writer, so that the queue does not drop everything.
            wait_until_written(&history, number / 2);
        }
    }
    history.close();
    let size = fs::metadata(dir.path().join("history.db")).unwrap().len();
    assert!(size < 1 << 20, "{size}");
}

#[test]
fn locked_database_is_retried_without_loss() {
    let dir = tempfile::tempdir().unwrap();
    let history = open(&dir, HistoryOptions::default());
    history.record(call(0));
    wait_until_written(&history, 1);
    let other = Connection::open(dir.path().join("history.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    (1..100).for_each(|number| history.record(call(number)));
    eventually(LONG, "a write failed", || history.stats.n_failures.load(Ordering::Relaxed) > 0);
    other.execute_batch("commit").unwrap();
    wait_until_written(&history, 100);
    assert_eq!(history.stats.n_dropped.load(Ordering::Relaxed), 0);
    history.close();
}

#[test]
fn records_beyond_the_queue_are_dropped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    // A directory in place of the database, so that no write can succeed.
    fs::create_dir(dir.path().join("history.db")).unwrap();
    let history = open(&dir, HistoryOptions::default());
    let n = 2 * QUEUE_CAPACITY as u64;
    (0..n).for_each(|number| history.record(call(number)));
    assert!(
        history.stats.n_dropped.load(Ordering::Relaxed) >= n - (QUEUE_CAPACITY + BATCH_SIZE) as u64
    );
    history.close();
    assert_eq!(history.stats.n_dropped.load(Ordering::Relaxed), n);
}

#[test]
fn damaged_database_is_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    fs::copy("/proc/self/exe", &path).unwrap();
    let history = open(&dir, HistoryOptions::default());
    history.record(call(0));
    wait_until_written(&history, 1);
    history.close();
    assert!(dir.path().join("history.db.damaged").exists());
    assert_eq!(history.read(|db| db.get("run-0")).unwrap(), Some(call(0)));
}

#[test]
fn percentiles_use_the_nearest_rank() {
    let check = |durations: Vec<u64>, expected: (u64, u64, u64, u64)| {
        let latency = Latency::from_durations("s".to_owned(), None, durations, 0);
        assert_eq!((latency.p50_us, latency.p90_us, latency.p99_us, latency.max_us), expected);
    };
    check((1..=100).rev().collect(), (50, 90, 99, 100));
    check(vec![7], (7, 7, 7, 7));
    check(vec![9, 1], (1, 9, 9, 9));
    check(Vec::new(), (0, 0, 0, 0));
}
