//! Gate G08: a save that is killed, or that fails at any system call, leaves the old file or the new one.
//!
//! The process that saves is this test executable, started again for its test [`config_writer`] under `strace`, which
//! injects the failure.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use toolrack_service::{ConfigStore, FileSecretStore, Secret, SecretStore as _};
use toolrack_testkit::skipped;

use crate::store_fixture::{
    TIMEOUT, add, child_path, names, servers, spawn_self, store, temp_dir, write,
};

const OLD: &str = "# mine\n[[defaults.mcp]]\nname = 'old'\nid = '0190a6b2-0000-7000-8000-00000000000a'\ncommand = 'x'\n";
const NEW: &str = "# mine\n[[defaults.mcp]]\nname = 'old'\nid = '0190a6b2-0000-7000-8000-00000000000a'\ncommand = 'x'\nenabled = false\n";
const SAVED: &str = "the save went well";
const OLD_SECRET: &str = "canary-old";
const NEW_SECRET: &str = "canary-new";

/// Not a test: run in a process of its own, it saves once.
#[test]
fn config_writer() {
    let Some(path) = child_path() else { return };
    let saved = if path.extension().is_some_and(|extension| extension == "key") {
        let store = FileSecretStore::new(path.parent().unwrap());
        store.set("a", &Secret::new(NEW_SECRET)).is_ok()
    } else {
        ConfigStore::new(path).replace_text(None, NEW).is_ok()
    };
    if saved {
        println!("{SAVED}");
    }
}

/// A file to save, with its old and new content.
struct SaveTest {
    dir: TempDir,
    file: &'static str,
    temp_names: [&'static str; 2],
    /// `None` if the file is created.
    old: Option<&'static str>,
    new: &'static str,
}

impl SaveTest {
    fn reset(&self) {
        for name in fs::read_dir(self.dir.path()).unwrap() {
            fs::remove_file(name.unwrap().path()).unwrap();
        }
        if let Some(old) = self.old {
            write(&self.dir.path().join(self.file), old);
        }
    }

    fn strace(&self, args: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = ["strace", "-f", "-qq"].map(str::to_owned).to_vec();
        let dir = self.dir.path();
        let [lock, temporary] = self.temp_names;
        for path in [dir.to_owned(), dir.join(self.file), dir.join(lock), dir.join(temporary)] {
            all.extend(["-P".to_owned(), path.to_str().unwrap().to_owned()]);
        }
        all.extend(args.iter().map(|word| (*word).to_owned()));
        all
    }

    /// Runs the writer. Returns whether it reported success.
    fn run(&self, args: &[&str]) -> bool {
        self.reset();
        let path = self.dir.path().join(self.file);
        let mut program = spawn_self(&self.strace(args), "store_crash::config_writer", &path);
        let (_, stdout, _) = program.wait_with_output(TIMEOUT).unwrap();
        stdout.contains(SAVED)
    }

    fn content(&self) -> Option<String> {
        let path = self.dir.path().join(self.file);
        path.exists().then(|| fs::read_to_string(path).unwrap())
    }

    /// The system calls of a save that touch the files, with their number.
    fn calls(&self, log: &Path) -> BTreeMap<String, usize> {
        let log_path = log.to_str().unwrap();
        assert!(self.run(&["-o", log_path]), "a save under strace works");
        assert_eq!(self.content().as_deref(), Some(self.new));
        let mut calls = BTreeMap::new();
        for line in fs::read_to_string(log).unwrap().lines() {
            let call = line.split_whitespace().nth(1).and_then(|word| word.split('(').next());
            let call = call.filter(|name| {
                name.chars()
                    .all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_')
            });
            // `close` closes the file even if it reports an error.
            if let Some(call) = call.filter(|name| *name != "close") {
                *calls.entry(call.to_owned()).or_default() += 1;
            }
        }
        calls
    }
}

/// Injects every failure into every call; `works_again` saves without failures.
#[track_caller]
fn inject_failures(save_test: &SaveTest, works_again: impl Fn()) {
    let log = temp_dir();
    let log = log.path().join("log");
    let calls = save_test.calls(&log);
    for needed in ["openat", "write", "fsync", "fchmod"] {
        assert!(calls.contains_key(needed), "{needed} is not in {calls:?}");
    }
    assert!(calls.keys().any(|name| name.starts_with("rename")), "{calls:?}");
    let mut n_seen = [0, 0];
    for (call, &n_times) in &calls {
        for (n, fate) in (1..=n_times)
            .flat_map(|n| ["signal=KILL", "error=EIO", "error=ENOSPC"].map(|fate| (n, fate)))
        {
            let inject = format!("inject={call}:{fate}:when={n}");
            let well = save_test.run(&["-o", log.to_str().unwrap(), "-e", &inject]);
            let content = save_test.content();
            let is_new = content.as_deref() == Some(save_test.new);
            assert!(is_new || content.as_deref() == save_test.old, "{inject}: {content:?}");
            if well {
                assert!(is_new, "{inject}: it reported success");
            } else if fate != "signal=KILL" {
                assert!(!is_new, "{inject}: it reported a failure");
            }
            assert!(
                !well || call != "fsync",
                "{inject}: what the disk has not confirmed is not saved"
            );
            n_seen[usize::from(is_new)] += 1;
            works_again();
            assert_eq!(names(save_test.dir.path()), [save_test.file], "{inject}");
        }
    }
    assert!(n_seen.iter().all(|count| *count > 0), "both outcomes occur: {n_seen:?}");
}

fn has_strace(test: &str) -> bool {
    let found = ["/usr/bin/strace", "/usr/local/bin/strace", "/bin/strace"];
    let has = found.iter().any(|path| Path::new(path).exists());
    if !has {
        skipped(test, "needs `strace`");
    }
    has
}

#[test]
fn killed_save_leaves_the_old_or_the_new_file() {
    if !has_strace("killed_save_leaves_the_old_or_the_new_file") {
        return;
    }
    let save_test = SaveTest {
        dir: temp_dir(),
        file: "toolrack.toml",
        temp_names: [".toolrack.toml.lock", ".toolrack.toml.tmp"],
        old: Some(OLD),
        new: NEW,
    };
    inject_failures(&save_test, || {
        add(&store(&save_test.dir), "next");
        assert_eq!(servers(&store(&save_test.dir)), ["old", "next"]);
    });
    let first = SaveTest { old: None, ..save_test };
    inject_failures(&first, || {
        add(&store(&first.dir), "next");
        assert_eq!(servers(&store(&first.dir)).last().unwrap(), "next");
    });
}

#[test]
fn killed_secret_save_leaves_the_old_or_the_new_value() {
    if !has_strace("killed_secret_save_leaves_the_old_or_the_new_value") {
        return;
    }
    let save_test = SaveTest {
        dir: temp_dir(),
        file: "mcp_a.key",
        temp_names: [".lock", ".tmp"],
        old: Some(OLD_SECRET),
        new: NEW_SECRET,
    };
    inject_failures(&save_test, || {
        let store = FileSecretStore::new(save_test.dir.path());
        store.set("a", &Secret::new("third")).unwrap();
        assert_eq!(store.get("a").unwrap().unwrap().reveal(), "third");
    });
}
