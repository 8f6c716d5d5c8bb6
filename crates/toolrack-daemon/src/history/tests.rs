//! Call history on real files: limits, paging, retries and damage.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::{Connection, ffi};
use tempfile::TempDir;
use toolrack_testkit::{eventually, skipped};

use super::damage::{MAX_DAMAGED_FILES, damaged_files, with_suffix};
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
    History::open(&dir.path().join("history.db"), options, drop).unwrap()
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
    // Locked, so that no write can succeed.
    let other = Connection::open(dir.path().join("history.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    let history = open(&dir, HistoryOptions::default());
    let n = 2 * QUEUE_CAPACITY as u64;
    (0..n).for_each(|number| history.record(call(number)));
    assert!(
        history.stats.n_dropped.load(Ordering::Relaxed) >= n - (QUEUE_CAPACITY + BATCH_SIZE) as u64
    );
    history.close();
    assert_eq!(history.stats.n_dropped.load(Ordering::Relaxed), n);
}

/// A history file with 2000 calls, closed in order.
fn filled() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let history = open(&dir, HistoryOptions::default());
    (0..2000).for_each(|number| history.record(call(number)));
    history.close();
    let path = dir.path().join("history.db");
    (dir, path)
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

fn write(path: &Path, content: &[u8]) {
    File::create(path).unwrap().write_all(content).unwrap();
}

/// What happened, and how.
type Damage = (&'static str, fn(&Path));

/// Ways to damage a database.
const DAMAGES: [Damage; 8] = [
    ("another file", |path| assert!(fs::copy("/proc/self/exe", path).is_ok())),
    ("garbage", |path| write(path, &[7; 100_000])),
    ("garbage of the same size", |path| {
        let size = fs::metadata(path).unwrap().len();
        overwrite(path, 0, &vec![0xA5; usize::try_from(size).unwrap()]);
    }),
    ("half of the file", |path| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(fs::metadata(path).unwrap().len() / 2).unwrap();
    }),
    ("a cut page", |path| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(fs::metadata(path).unwrap().len() - 4196).unwrap();
    }),
    ("flipped bytes in the middle", |path| {
        let page = fs::metadata(path).unwrap().len() / 2 / 4096 * 4096;
        overwrite(path, page, &[0xFF; 600]);
    }),
    ("a zeroed page", |path| overwrite(path, 3 * 4096, &[0; 4096])),
    ("a directory", |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
];

fn n_damaged(history: &History) -> u64 {
    history.stats.n_damaged.load(Ordering::Relaxed)
}

#[test]
fn damaged_file_is_moved_aside_at_start() {
    for (damage, apply) in DAMAGES {
        let (dir, path) = filled();
        apply(&path);
        let (told, heard) = std::sync::mpsc::channel();
        let tell = move |message| told.send(message).unwrap();
        let history = History::open(&path, HistoryOptions::default(), tell).unwrap();
        // Without a call, and without a reader.
        eventually(LONG, damage, || n_damaged(&history) == 1);
        history.record(call(5000));
        wait_until_written(&history, 1);
        let notice = heard.recv_timeout(LONG).unwrap();
        let status = history.stats.status();
        assert_eq!(status.notice.as_ref(), Some(&notice), "{damage}");
        assert_eq!((status.n_dropped, status.failure), (0, None), "{damage}");
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        let aside = names.iter().find(|name| name.starts_with("history.db.damaged-")).unwrap();
        assert!(notice.contains(aside.as_str()), "{damage}: {notice}");
        let query = HistoryQuery { limit: Some(9), ..HistoryQuery::default() };
        let page = history.read(|db| db.query(&query)).unwrap();
        assert_eq!(ids(&page), ["run-5000"], "{damage}");
        history.close();
    }
}

/// `SQLite` would follow it, and change a file elsewhere.
#[test]
fn symbolic_link_is_not_followed() {
    let (_target_dir, target) = filled();
    let before = fs::read(&target).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    std::os::unix::fs::symlink(&target, &path).unwrap();
    let history = open(&dir, HistoryOptions::default());
    history.record(call(5000));
    eventually(LONG, "it is reported", || history.stats.status().failure.is_some());
    assert!(history.read(|db| db.query(&HistoryQuery::default())).is_err());
    assert!(fs::read(&target).unwrap() == before);
    // The call waits for a usable file.
    fs::remove_file(&path).unwrap();
    wait_until_written(&history, 1);
    history.close();
}

/// While the writer has the file open. It finds the damage with a call, or because a reader has found it.
#[test]
fn damaged_file_is_moved_aside_while_it_is_used() {
    // Of these two pages the write-ahead log has a copy, which restores them.
    let is_restored = |damage: &str| ["a cut page", "a zeroed page"].contains(&damage);
    for (damage, apply) in DAMAGES.into_iter().filter(|(damage, _)| !is_restored(damage)) {
        let (_dir, path) = filled();
        let history = History::open(&path, HistoryOptions::default(), drop).unwrap();
        history.record(call(5000));
        wait_until_written(&history, 1);
        apply(&path);
        let everything = HistoryQuery { limit: Some(9999), ..HistoryQuery::default() };
        let mut number = 5001;
        eventually(LONG, damage, || {
            drop(history.read(|db| db.query(&everything)));
            history.record(call(number));
            number += 1;
            n_damaged(&history) == 1
        });
        wait_until_written(&history, number - 5000);
        history.read(|db| db.query(&everything)).unwrap();
        assert_eq!(history.stats.n_dropped.load(Ordering::Relaxed), 0, "{damage}");
        history.close();
    }
}

#[test]
fn intact_file_is_kept() {
    let (dir, path) = filled();
    let history = open(&dir, HistoryOptions::default());
    // What a reader reports is checked first.
    assert!(history.try_send(Message::CheckIntegrity));
    history.record(call(5000));
    wait_until_written(&history, 1);
    history.close();
    assert_eq!(damaged_files(&path), Vec::<PathBuf>::new());
    let query = HistoryQuery { limit: Some(9999), ..HistoryQuery::default() };
    assert_eq!(history.read(|db| db.query(&query)).unwrap().calls.len(), 2001);
}

#[test]
fn few_damaged_files_are_kept_with_their_logs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    for number in 0..2 * MAX_DAMAGED_FILES as u64 {
        for suffix in ["", "-wal", "-shm"] {
            write(&with_suffix(&path, suffix), number.to_string().as_bytes());
        }
        move_aside(&path, 1000 + number / 2).unwrap();
    }
    let kept = damaged_files(&path);
    let content = |path: &PathBuf| {
        ["", "-wal", "-shm"].map(|suffix| fs::read_to_string(with_suffix(path, suffix)).unwrap())
    };
    assert_eq!(
        kept.iter().map(content).collect::<Vec<_>>(),
        ["3", "4", "5"].map(|number| [(); 3].map(|()| number.to_owned()))
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3 * MAX_DAMAGED_FILES);
}

/// On a disk that fails for a while, every new file is damaged too.
#[test]
fn damaged_file_with_the_history_is_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    for number in 0..2 * MAX_DAMAGED_FILES as u64 {
        let content = if number == 1 { "the history" } else { "empty" };
        write(&path, content.as_bytes());
        move_aside(&path, 1000 + number).unwrap();
        assert_eq!(last_moved_ms(&path), Some(1000 + number));
    }
    let content = |path: PathBuf| fs::read_to_string(path).unwrap();
    let kept: Vec<String> = damaged_files(&path).into_iter().map(content).collect();
    assert_eq!(kept, ["the history", "empty", "empty"]);
}

#[test]
fn damaged_files_are_moved_aside_once_a_minute() {
    assert!(may_move_aside(None, 0));
    for (now_ms, expected) in [(100_000, false), (160_000, false), (160_001, true), (0, true)] {
        assert_eq!(may_move_aside(Some(100_000), now_ms), expected, "{now_ms}");
    }
}

#[test]
fn file_that_the_disk_does_not_deliver_is_checked_before_it_is_moved() {
    let (_dir, path) = filled();
    let mut writer = Writer {
        path: path.clone(),
        is_fallback: false,
        options: HistoryOptions::default(),
        db: None,
        check: None,
        stats: Arc::default(),
        warn: Box::new(drop),
    };
    let failed = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_READ), None);
    assert_eq!(writer.recover(&failed.into()), Recovery::Retry);
    assert_eq!((writer.check, damaged_files(&path)), (Some(IntegrityCheck::Full), Vec::new()));
    assert_eq!(writer.write_with_recovery(&[call(5000)]), None);
    assert_eq!((writer.check, damaged_files(&path)), (None, Vec::new()));
}

#[test]
fn deleted_file_is_created_again() {
    for suffixes in [&[""][..], &["", "-wal", "-shm"], &["-wal"]] {
        let (dir, path) = filled();
        let history = open(&dir, HistoryOptions::default());
        history.record(call(5000));
        wait_until_written(&history, 1);
        for suffix in suffixes {
            fs::remove_file(with_suffix(&path, suffix)).unwrap();
        }
        history.record(call(5001));
        wait_until_written(&history, 2);
        let found = history.read(|db| db.get("run-5001")).unwrap();
        assert_eq!(found, Some(call(5001)), "{suffixes:?}");
        history.close();
    }
}

#[test]
fn read_only_file_becomes_writable() {
    let (dir, path) = filled();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    if File::options().write(true).open(&path).is_ok() {
        skipped("read_only_file_becomes_writable", "this user may write to read-only files");
        return;
    }
    let history = open(&dir, HistoryOptions::default());
    history.record(call(5000));
    wait_until_written(&history, 1);
    history.close();
    assert_eq!(damaged_files(&path), Vec::<PathBuf>::new());
}

/// A row that cannot be read does not hide the others. The structure of the file is intact.
#[test]
fn unreadable_row_is_left_out() {
    let (dir, path) = filled();
    let connection = Connection::open(&path).unwrap();
    let text = "update calls set tool = cast(x'ff' as text), duration_us = -1 where id = 'run-7'";
    connection.execute_batch(text).unwrap();
    drop(connection);
    let history = open(&dir, HistoryOptions::default());
    let query = HistoryQuery { limit: Some(9999), ..HistoryQuery::default() };
    assert_eq!(history.read(|db| db.query(&query)).unwrap().calls.len(), 1999);
    let n_calls = |latencies: Vec<Latency>| latencies.iter().map(|all| all.n_calls).sum::<u64>();
    assert_eq!(n_calls(history.read(Db::latencies).unwrap()), 2 * 1999);
    history.close();
}

#[test]
fn file_of_another_version_is_left_alone() {
    let changes = [
        "pragma user_version = 2",
        "alter table calls add column cost integer not null default 0",
        "alter table calls rename column tool to tool_name",
        "alter table calls drop column agent",
    ];
    for change in changes {
        let (dir, path) = filled();
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(change).unwrap();
        drop(connection);
        let before = fs::read(&path).unwrap();
        // Twice: the second daemon finds the calls of the first.
        for number in [5000, 5001] {
            let history = open(&dir, HistoryOptions::default());
            history.record(call(number));
            wait_until_written(&history, 1);
            let status = history.stats.status();
            let notice = status.notice.unwrap();
            assert!(notice.contains("another version"), "{change}: {notice}");
            assert_eq!((status.n_dropped, status.n_damaged, status.failure), (0, 0, None));
            history.close();
        }
        let page = Db::read(&path, |db| db.query(&HistoryQuery::default())).unwrap();
        assert_eq!(ids(&page), ["run-5001", "run-5000"], "{change}");
        assert!(fs::read(&path).unwrap() == before, "{change}");
    }
}

#[test]
fn failures_are_classified_by_their_code() {
    let check = |code: i32, expected: FailureKind| {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        assert_eq!(failure_kind(&error.into()), expected, "{code}");
    };
    check(ffi::SQLITE_CORRUPT, FailureKind::Damaged);
    check(ffi::SQLITE_CORRUPT_INDEX, FailureKind::Damaged);
    check(ffi::SQLITE_NOTADB, FailureKind::Damaged);
    check(ffi::SQLITE_IOERR_READ, FailureKind::Unreadable);
    check(ffi::SQLITE_IOERR_SHORT_READ, FailureKind::Unreadable);
    check(ffi::SQLITE_IOERR_CORRUPTFS, FailureKind::Unreadable);
    for code in [
        ffi::SQLITE_FULL,
        ffi::SQLITE_BUSY,
        ffi::SQLITE_LOCKED,
        ffi::SQLITE_READONLY,
        ffi::SQLITE_CANTOPEN,
        ffi::SQLITE_IOERR_WRITE,
        ffi::SQLITE_IOERR_SHMSIZE,
        ffi::SQLITE_NOMEM,
        ffi::SQLITE_PERM,
        ffi::SQLITE_ERROR,
    ] {
        check(code, FailureKind::Temporary);
    }
    check(ffi::SQLITE_CONSTRAINT, FailureKind::Rejected);
    check(ffi::SQLITE_TOOBIG, FailureKind::Rejected);
    assert_eq!(failure_kind(&DbError::NotAFile), FailureKind::Damaged);
    assert_eq!(failure_kind(&DbError::SymbolicLink), FailureKind::Temporary);
    assert_eq!(failure_kind(&DbError::OtherSchema(2)), FailureKind::OtherSchema);
    assert_eq!(failure_kind(&DbError::Damaged(String::new())), FailureKind::Damaged);
}

/// Such a call would otherwise be retried for ever, and hold up all that follow.
#[test]
fn call_that_cannot_be_stored_is_dropped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let history = open(&dir, HistoryOptions::default());
    history.record(CallRecord { duration_us: u64::MAX, ..call(0) });
    eventually(LONG, "it is dropped", || history.stats.n_dropped.load(Ordering::Relaxed) == 1);
    history.record(call(1));
    wait_until_written(&history, 1);
    // In one batch with others, because the database is locked.
    let other = Connection::open(dir.path().join("history.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    (2..50).for_each(|number| history.record(call(number)));
    history.record(CallRecord { argument_bytes: u64::MAX, ..call(50) });
    (51..100).for_each(|number| history.record(call(number)));
    other.execute_batch("commit").unwrap();
    wait_until_written(&history, 98);
    assert_eq!(history.stats.n_dropped.load(Ordering::Relaxed), 2);
    let query = HistoryQuery { limit: Some(500), ..HistoryQuery::default() };
    assert_eq!(history.read(|db| db.query(&query)).unwrap().calls.len(), 98);
    history.close();
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
