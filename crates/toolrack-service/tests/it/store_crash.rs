//! Gate G08: a save that is killed or fails at any of its system calls leaves the old file or the new one.
//!
//! The program that saves is this test executable itself, started again for its one test [`saver`] under `strace`,
//! which injects the failure.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use toolrack_service::{ConfigStore, Secret, SecretStore};
use toolrack_testkit::skipped;

use crate::store_fixture::{
    PATIENCE, add, again, folder, given_path, names, servers, store, write,
};

const OLD: &str = "# mine\n[[defaults.mcp]]\nname = 'old'\nid = '0190a6b2-0000-7000-8000-00000000000a'\ncommand = 'x'\n";
const NEW: &str = "# mine\n[[defaults.mcp]]\nname = 'old'\nid = '0190a6b2-0000-7000-8000-00000000000a'\ncommand = 'x'\nenabled = false\n";
const SAVED: &str = "the save went well";
const OLD_SECRET: &str = "canary-old";
const NEW_SECRET: &str = "canary-new";

/// Not a test of its own: the program that saves once.
#[test]
fn saver() {
    let Some(path) = given_path() else { return };
    let saved = if path.extension().is_some_and(|it| it == "key") {
        let store = SecretStore::new(path.parent().unwrap());
        store.set("a", &Secret::new(NEW_SECRET)).is_ok()
    } else {
        ConfigStore::new(path).replace_text(None, NEW).is_ok()
    };
    if saved {
        println!("{SAVED}");
    }
}

/// What a save is tried on.
struct Subject {
    dir: TempDir,
    file: &'static str,
    beside: [&'static str; 2],
    /// None if the file is saved for the first time.
    old: Option<&'static str>,
    new: &'static str,
}

impl Subject {
    fn reset(&self) {
        for name in fs::read_dir(self.dir.path()).unwrap() {
            fs::remove_file(name.unwrap().path()).unwrap();
        }
        if let Some(old) = self.old {
            write(&self.dir.path().join(self.file), old);
        }
    }

    fn strace(&self, words: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = ["strace", "-f", "-qq"].map(str::to_owned).to_vec();
        let dir = self.dir.path();
        let [lock, temporary] = self.beside;
        for path in [dir.to_owned(), dir.join(self.file), dir.join(lock), dir.join(temporary)] {
            all.extend(["-P".to_owned(), path.to_str().unwrap().to_owned()]);
        }
        all.extend(words.iter().map(|it| (*it).to_owned()));
        all
    }

    /// Runs the saver, and says whether it said that all went well.
    fn run(&self, words: &[&str]) -> bool {
        self.reset();
        let path = self.dir.path().join(self.file);
        let mut program = again(&self.strace(words), "store_crash::saver", &path);
        let (_, said, _) = program.output(PATIENCE).unwrap();
        said.contains(SAVED)
    }

    fn content(&self) -> Option<String> {
        let path = self.dir.path().join(self.file);
        path.exists().then(|| fs::read_to_string(path).unwrap())
    }

    /// Every system call of a save that touches the files, with how often it is made.
    fn calls(&self, log: &Path) -> BTreeMap<String, usize> {
        let log_path = log.to_str().unwrap();
        assert!(self.run(&["-o", log_path]), "a save under strace works");
        assert_eq!(self.content().as_deref(), Some(self.new));
        let mut calls = BTreeMap::new();
        for line in fs::read_to_string(log).unwrap().lines() {
            let call = line.split_whitespace().nth(1).and_then(|it| it.split('(').next());
            let call = call.filter(|it| {
                it.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
            });
            // A closed file is closed, whatever the answer.
            if let Some(call) = call.filter(|it| *it != "close") {
                *calls.entry(call.to_owned()).or_default() += 1;
            }
        }
        calls
    }
}

/// Fails every call in every way; `works_again` is a save without failures.
#[track_caller]
fn torture(subject: &Subject, works_again: impl Fn()) {
    let log = folder();
    let log = log.path().join("log");
    let calls = subject.calls(&log);
    for needed in ["openat", "write", "fsync", "fchmod"] {
        assert!(calls.contains_key(needed), "{needed} is not in {calls:?}");
    }
    assert!(calls.keys().any(|it| it.starts_with("rename")), "{calls:?}");
    let mut n_seen = [0, 0];
    for (call, &n_times) in &calls {
        for (n, fate) in (1..=n_times)
            .flat_map(|n| ["signal=KILL", "error=EIO", "error=ENOSPC"].map(|fate| (n, fate)))
        {
            let inject = format!("inject={call}:{fate}:when={n}");
            let well = subject.run(&["-o", log.to_str().unwrap(), "-e", &inject]);
            let content = subject.content();
            let is_new = content.as_deref() == Some(subject.new);
            assert!(is_new || content.as_deref() == subject.old, "{inject}: {content:?}");
            if well {
                assert!(is_new, "{inject}: it said that all went well");
            } else if fate != "signal=KILL" {
                assert!(!is_new, "{inject}: it said that it failed");
            }
            assert!(
                !well || call != "fsync",
                "{inject}: what the disk has not confirmed is not saved"
            );
            n_seen[usize::from(is_new)] += 1;
            works_again();
            assert_eq!(names(subject.dir.path()), [subject.file], "{inject}");
        }
    }
    assert!(n_seen.iter().all(|it| *it > 0), "both ends are seen: {n_seen:?}");
}

fn has_strace(test: &str) -> bool {
    let found = ["/usr/bin/strace", "/usr/local/bin/strace", "/bin/strace"];
    let has = found.iter().any(|it| Path::new(it).exists());
    if !has {
        skipped(test, "needs `strace`");
    }
    has
}

#[test]
fn a_save_that_is_killed_or_fails_leaves_the_old_file_or_the_new_one() {
    if !has_strace("a_save_that_is_killed_or_fails_leaves_the_old_file_or_the_new_one") {
        return;
    }
    let subject = Subject {
        dir: folder(),
        file: "toolrack.toml",
        beside: [".toolrack.toml.lock", ".toolrack.toml.tmp"],
        old: Some(OLD),
        new: NEW,
    };
    torture(&subject, || {
        add(&store(&subject.dir), "next");
        assert_eq!(servers(&store(&subject.dir)), ["old", "next"]);
    });
    let first = Subject { old: None, ..subject };
    torture(&first, || {
        add(&store(&first.dir), "next");
        assert_eq!(servers(&store(&first.dir)).last().unwrap(), "next");
    });
}

#[test]
fn a_secret_that_is_killed_while_saved_is_the_old_one_or_the_new_one() {
    if !has_strace("a_secret_that_is_killed_while_saved_is_the_old_one_or_the_new_one") {
        return;
    }
    let subject = Subject {
        dir: folder(),
        file: "mcp_a.key",
        beside: [".lock", ".tmp"],
        old: Some(OLD_SECRET),
        new: NEW_SECRET,
    };
    torture(&subject, || {
        let store = SecretStore::new(subject.dir.path());
        store.set("a", &Secret::new("third")).unwrap();
        assert_eq!(store.get("a").unwrap().unwrap().reveal(), "third");
    });
}
