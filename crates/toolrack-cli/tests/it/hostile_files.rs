//! Files that do not end, do not open or do not parse: each gets a clear error at once.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::fixture::{Fixture, Outcome, outcome};

/// Each command takes milliseconds; a debug build on a busy machine some seconds for the largest files. The fixture kills
/// a command that hangs.
const LIMIT: Duration = Duration::from_secs(15);

/// Runs a command that must end in time, and not by a signal such as that of a stack overflow.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "measures a separate process")]
fn run(fixture: &Fixture, args: &[&str]) -> (i32, String) {
    let started = Instant::now();
    let Outcome { status, stdout, stderr } = fixture.run(args);
    let elapsed = started.elapsed();
    assert!(elapsed < LIMIT, "{args:?} {elapsed:?} {stderr}");
    let code = status.code();
    assert!(code.is_some(), "{args:?} {status} {stderr}");
    (code.unwrap(), format!("{stdout}{stderr}"))
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

fn write(path: &Path, content: &[u8]) {
    File::create(path).unwrap().write_all(content).unwrap();
}

/// A way to make a hostile file, and what the error says.
type Sample = (&'static str, fn(&Path), &'static str);

const SAMPLES: [Sample; 13] = [
    ("fifo", |path| fifo(path), "not a regular file"),
    ("device", |path| symlink("/dev/zero", path).unwrap(), "not a regular file"),
    ("directory", |path| fs::create_dir(path).unwrap(), "directory"),
    ("loop", |path| symlink(path, path).unwrap(), "symbolic links"),
    ("sparse", |path| File::create(path).unwrap().set_len(1 << 30).unwrap(), "large"),
    ("invalid UTF-8", |path| write(path, b"a = \"\xff\""), "UTF-8"),
    ("NUL", |path| write(path, b"a = \"\0\"\n"), "1"),
    ("deep arrays", |path| write(path, &[b"a = ".to_vec(), vec![b'['; 300_000]].concat()), ""),
    ("deep tables", |path| write(path, "a = {b = ".repeat(100_000).as_bytes()), ""),
    (
        "deep keys",
        |path| write(path, &[b"a".to_vec(), b".a".repeat(300_000), b" = 1".to_vec()].concat()),
        "",
    ),
    (
        "deep headers",
        |path| write(path, &[b"[a".to_vec(), b".a".repeat(300_000), b"]\n".to_vec()].concat()),
        "",
    ),
    (
        "deep JSON",
        |path| write(path, &[b"{\"mcpServers\":".to_vec(), vec![b'['; 1_000_000]].concat()),
        "",
    ),
    ("many keys", |path| write(path, &keys()), ""),
];

fn keys() -> Vec<u8> {
    (0..300_000).flat_map(|n| format!("k{n} = 1\n").into_bytes()).collect()
}

#[test]
fn hostile_config_fails_at_once() {
    for (name, make, expected) in SAMPLES {
        let fixture = Fixture::new();
        fs::create_dir(fixture.path().join("home")).unwrap();
        make(&fixture.path().join("home/toolrack.toml"));
        for args in [
            ["list"].as_slice(),
            &["config", "check"],
            &["daemon", "start"],
            &["tools"],
            &["doctor"],
            &["add", "demo", "--no-check", "--", "demo-server"],
            &["serve"],
        ] {
            let (code, text) = run(&fixture, args);
            println!("{name} {args:?}: {code} {}", text.chars().take(200).collect::<String>());
            // A file of unknown keys is valid, and tells no more than it must.
            let codes = if name == "many keys" { 0..10 } else { 1..10 };
            assert!(codes.contains(&code), "{name} {args:?} {code} {text}");
            assert!(text.contains(expected), "{name} {args:?} {text}");
            assert!(text.len() < 200_000, "{name} {args:?} {}", text.len());
        }
        fixture.run(&["daemon", "stop"]);
        fixture.marker.assert_no_processes_left(Duration::ZERO);
    }
}

#[test]
fn hostile_file_of_another_tool_fails_at_once() {
    for (name, make, expected) in SAMPLES {
        let fixture = Fixture::new();
        for file in ["mcp.json", "mcp.toml", "mcp.yaml", ".mcp.json"] {
            let path = fixture.path().join("work").join(file);
            make(&path);
            for args in [["import", file].as_slice(), &["config", "check", file]] {
                let (code, text) = run(&fixture, args);
                println!("{name} {args:?}: {code} {}", text.chars().take(200).collect::<String>());
                // As YAML, some of them are text.
                assert!(code < 10, "{name} {args:?} {text}");
                assert!(
                    code == 0 || file == "mcp.yaml" || text.contains(expected),
                    "{name} {args:?} {text}"
                );
            }
        }
    }
}

#[test]
fn planted_project_file_is_not_opened() {
    for (name, make, _) in SAMPLES {
        let fixture = Fixture::new();
        make(&fixture.path().join("work/.toolrack.toml"));
        let (code, text) = run(&fixture, &["list"]);
        assert_eq!(code, 0, "{name} {text}");
    }
}

/// Files of the data folder in the place of which there is a FIFO.
#[test]
fn fifo_in_the_data_folder_does_not_block() {
    let fixture = Fixture::new();
    fixture.put(
        "home/toolrack.toml",
        "[[defaults.mcp]]\nname = \"demo\"\ncommand = \"demo-server\"\n\
         env = { KEY = \"${secret:key}\" }\n",
    );
    let home = fixture.path().join("home");
    for dir in ["run", "secrets", "logs", "catalog"] {
        fs::create_dir(home.join(dir)).unwrap();
    }
    for (file, code) in [("daemon.log", 4), ("run/daemon.lock", 4), ("secrets/mcp_key.key", 2)] {
        fifo(&home.join(file));
        let (found, text) = run(&fixture, &["call", "demo.greet", "name=Ada"]);
        // The log is needed by the daemon only.
        let is_log = file == "daemon.log";
        assert!(found != 0 || is_log, "{file} {text}");
        let (found, text) = run(&fixture, &["daemon", "start"]);
        let is_secret = file.starts_with("secrets");
        assert!(found == code || is_secret, "{file} {found} {text}");
        let is_lock = file == "run/daemon.lock";
        assert!(!is_lock || text.contains("hint: remove it"), "{text}");
        if is_secret {
            run(&fixture, &["daemon", "stop"]);
        }
        fs::remove_file(home.join(file)).unwrap();
    }
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}

#[test]
fn empty_secret_is_named() {
    let fixture = Fixture::new();
    fixture.put(
        "home/toolrack.toml",
        "[[defaults.mcp]]\nname = \"demo\"\ncommand = \"demo-server\"\n\
         env = { KEY = \"${secret:key}\" }\n",
    );
    fixture.put("home/secrets/mcp_key.key", "\n");
    let (code, text) = run(&fixture, &["call", "demo.greet", "name=Ada"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("secret `key` is empty"), "{text}");
}

/// Homes that are no directories of this user.
#[test]
fn impossible_home_fails_at_once() {
    let fixture = Fixture::new();
    fixture.put("work/file", "");
    let file = fixture.path().join("work/file");
    for (home, expected) in [
        (Path::new("/proc"), "/proc"),
        (Path::new("/proc/self/toolrack"), "/proc/self/toolrack"),
        (Path::new("/sys/toolrack"), "/sys/toolrack"),
        (Path::new("/dev/null"), "/dev/null"),
        (&file, "work/file"),
        (&fixture.path().join("a".repeat(300)), "aaa"),
        (&fixture.path().join("b/".repeat(60)), "b"),
    ] {
        for args in [["daemon", "start"].as_slice(), &["add", "x", "--no-check", "--", "y"]] {
            let mut command = fixture.toolrack(args);
            command.env("TOOLRACK_HOME", home);
            let Outcome { status, stderr, .. } = outcome(command);
            println!("{} {args:?}: {status} {stderr}", home.display());
            let is_too_long = home.ends_with("b") && args[0] == "add";
            assert!(is_too_long || status.code().is_some_and(|code| (1..10).contains(&code)));
            assert!(
                is_too_long || (stderr.contains(expected) && stderr.contains("hint: ")),
                "{stderr}"
            );
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures a separate process")]
fn home_that_is_not_utf8_fails_at_once() {
    let fixture = Fixture::new();
    let mut command = fixture.toolrack(&["daemon", "start"]);
    command.env("TOOLRACK_HOME", fixture.path().join(OsStr::from_bytes(b"h\xff")));
    let started = Instant::now();
    let Outcome { status, stderr, .. } = outcome(command);
    // Less than the wait for a daemon that says nothing.
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("UTF-8"), "{stderr}");
}

/// Every write fails, as on a full disk.
#[test]
fn start_on_a_full_disk_says_why() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path().join("home")).unwrap();
    let program = env!("CARGO_BIN_EXE_toolrack");
    let line = format!("trap '' XFSZ; ulimit -f 0; exec {program} daemon start");
    let Outcome { status, stderr, .. } = fixture.shell(&line);
    assert_eq!(status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("File too large") && !stderr.contains("see its log"), "{stderr}");
    assert_eq!(fs::metadata(fixture.path().join("home/daemon.log")).unwrap().len(), 0);
    fixture.marker.assert_no_processes_left(Duration::from_secs(10));
}

#[test]
fn removed_lock_file_is_restored_and_starts_no_second_daemon() {
    let fixture = Fixture::new();
    assert_eq!(run(&fixture, &["daemon", "start"]).0, 0);
    let pid = || {
        let Outcome { stdout, .. } = fixture.run(&["-o", "json", "daemon", "status"]);
        serde_json::from_str::<serde_json::Value>(&stdout).map(|status| status["pid"].clone()).ok()
    };
    let before = pid();
    assert!(before.is_some());
    for remove in [
        |run: &Path| fs::remove_file(run.join("daemon.lock")).unwrap(),
        |run: &Path| fs::remove_dir_all(run).unwrap(),
    ] {
        remove(&fixture.path().join("home/run"));
        let started = fixture.run(&["daemon", "start"]);
        assert_eq!(started.status.code(), Some(0), "{started:?}");
        toolrack_testkit::eventually(crate::fixture::LONG, "the same daemon answers", || {
            pid() == before
        });
    }
    assert_eq!(run(&fixture, &["daemon", "stop"]).0, 0);
    fixture.marker.assert_no_processes_left(Duration::ZERO);
}
