//! A person edits the file while the service saves it: no change of either is lost.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use toolrack_service::{ConfigScope, ErrorCode};
use toolrack_testkit::eventually;

use crate::store_fixture::{TIMEOUT, add, server, servers, store, temp_dir, write};

/// How often the service saves in the meantime.
const N_CHANGES: usize = 100;

/// How an editor saves.
type Save = fn(&Path, &str);

fn by_rename(path: &Path, line: &str) {
    let text = fs::read_to_string(path).unwrap() + line;
    let temp_path = path.with_extension("swp");
    write(&temp_path, text);
    fs::rename(&temp_path, path).unwrap();
}

fn in_place(path: &Path, line: &str) {
    let text = fs::read_to_string(path).unwrap() + line;
    write(path, text);
}

fn by_appending(path: &Path, line: &str) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

#[test]
fn edit_starts_over_when_the_file_changes() {
    for save in [by_rename as Save, in_place, by_appending] {
        let dir = temp_dir();
        let store = store(&dir);
        add(&store, "a");
        let mut n_calls = 0;
        let change = store.edit(None, |document| {
            n_calls += 1;
            if n_calls <= 3 {
                save(store.path(), &format!("# person {n_calls}\n"));
            }
            document.add(&ConfigScope::Defaults, &server("b"))
        });
        let (id, stored) = change.unwrap();
        assert_eq!(n_calls, 4);
        assert_eq!(stored.document().unwrap().get(id).unwrap().config.name, "b");
        let text = store.read().unwrap().text;
        assert_eq!(text, stored.text);
        assert!((1..=3).all(|n| text.contains(&format!("# person {n}\n"))), "{text}");
        assert_eq!(servers(&store), ["a", "b"]);
    }
}

#[test]
fn continuous_saves_and_invalid_edits_win() {
    let dir = temp_dir();
    let store = store(&dir);
    add(&store, "a");
    let mut n = 0;
    let change = store.edit(None, |document| {
        n += 1;
        by_rename(store.path(), &format!("# person {n}\n"));
        document.add(&ConfigScope::Defaults, &server("b"))
    });
    assert_eq!(change.unwrap_err().code(), ErrorCode::Conflict);
    assert!(store.read().unwrap().text.contains(&format!("# person {n}\n")));

    let change = store.edit(None, |document| {
        in_place(store.path(), "oops [");
        document.add(&ConfigScope::Defaults, &server("b"))
    });
    assert_eq!(change.unwrap_err().code(), ErrorCode::ValidationError);
    assert!(fs::read_to_string(store.path()).unwrap().ends_with("oops ["));
}

#[test]
fn file_removed_during_an_edit_stays_removed() {
    let dir = temp_dir();
    let store = store(&dir);
    add(&store, "a");
    let change = store.edit(None, |document| {
        if store.path().exists() {
            fs::remove_file(store.path()).unwrap();
        }
        document.add(&ConfigScope::Defaults, &server("b"))
    });
    change.unwrap();
    assert_eq!(servers(&store), ["b"]);
}

/// A program opens the file before it is replaced and writes to it afterwards.
#[test]
fn slow_writer_is_waited_for() {
    let dir = temp_dir();
    let store = store(&dir);
    add(&store, "a");
    let inode = || fs::metadata(store.path()).unwrap().ino();
    thread::scope(|scope| {
        let mut n_calls = 0;
        let change = store.edit(None, |document| {
            n_calls += 1;
            if n_calls == 1 {
                let mut file = OpenOptions::new().append(true).open(store.path()).unwrap();
                let old = inode();
                scope.spawn(move || {
                    eventually(TIMEOUT, "the file is replaced", || inode() != old);
                    thread::sleep(Duration::from_millis(100));
                    file.write_all(b"# slow\n").unwrap();
                });
            }
            document.add(&ConfigScope::Defaults, &server("b"))
        });
        change.unwrap();
    });
    assert_eq!(servers(&store), ["a", "b"]);
    assert!(store.read().unwrap().text.contains("# slow\n"));
}

/// Saves as a person all the time while the service saves. Returns the servers, the text and the number of saves.
fn meanwhile(save: Save) -> (Vec<String>, String, usize) {
    let dir = temp_dir();
    let store = store(&dir);
    add(&store, "first");
    let done = AtomicBool::new(false);
    let n_saves = thread::scope(|scope| {
        let person = scope.spawn(|| {
            let mut n_saves = 0;
            while !done.load(Ordering::Relaxed) {
                save(store.path(), &format!("# person {n_saves}.\n"));
                n_saves += 1;
                // A pause, or the service would never get to save.
                thread::sleep(Duration::from_millis(n_saves as u64 * 7 % 40));
            }
            n_saves
        });
        for n in 0..N_CHANGES {
            // A person who saves without a pause may win every time; try again, as a user would.
            while let Err(error) = store.edit(None, |document| {
                let last = document.find(&ConfigScope::Defaults, "last").map(|entry| entry.config);
                match last {
                    Some(last) => document.replace(&crate::store_fixture::counted(&last, n as u64)),
                    None => document.add(&ConfigScope::Defaults, &server("last")).map(drop),
                }
            }) {
                assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
            }
        }
        done.store(true, Ordering::Relaxed);
        person.join().unwrap()
    });
    (servers(&store), store.read().unwrap().text, n_saves)
}

#[test]
fn appended_lines_are_never_lost() {
    let (servers, text, n_saves) = meanwhile(by_appending);
    assert_eq!(servers, ["first", "last"]);
    assert!(text.contains(&format!("x_count = {} }}\n", N_CHANGES - 1)));
    let lost: Vec<_> =
        (0..n_saves).filter(|n| !text.contains(&format!("# person {n}.\n"))).collect();
    assert_eq!(lost, Vec::<usize>::new(), "of {n_saves}");
}

/// A person's editor may overwrite changes of the service, but not the other way round.
#[test]
fn renamed_saves_are_never_lost() {
    let (_, text, n_saves) = meanwhile(by_rename);
    let lost: Vec<_> =
        (0..n_saves).filter(|n| !text.contains(&format!("# person {n}.\n"))).collect();
    assert_eq!(lost, Vec::<usize>::new(), "of {n_saves}");
}
