//! A config file or data folder that other users can change is refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use toolrack_testkit::skipped;

use crate::fixture::{Fixture, Outcome, outcome};

const CONFIG: &str = "[[defaults.mcp]]\nname = \"demo\"\ncommand = \"demo-server\"\n";

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Every command that uses the home, with an argument list that works otherwise.
const COMMANDS: [&[&str]; 8] = [
    &["list"],
    &["tools"],
    &["status"],
    &["call", "demo.greet", "name=Ada"],
    &["daemon", "start"],
    &["serve"],
    &["secret", "list"],
    &["logs", "demo"],
];

#[track_caller]
fn check_refused(fixture: &Fixture, args: &[&str], expected: &[&str]) {
    let Outcome { status, stdout, stderr } = fixture.run(args);
    assert_eq!(status.code(), Some(2), "{args:?} {stdout} {stderr}");
    for text in expected {
        assert!(
            stderr.contains(text) || stdout.contains(text),
            "{args:?} {text} {stdout} {stderr}"
        );
    }
}

#[test]
fn home_that_all_users_can_write_is_refused() {
    let fixture = Fixture::new();
    fixture.put("home/toolrack.toml", CONFIG);
    let home = fixture.path().join("home");
    chmod(&home, 0o777);
    let path = home.display().to_string();
    let repair = format!("chmod o-w {path}");
    for args in COMMANDS {
        check_refused(&fixture, args, &[&path, "mode 0777", &repair, "--allow-insecure-home"]);
    }
    check_refused(&fixture, &["doctor"], &["permissions", &path, "mode 0777", &repair]);
    check_refused(&fixture, &["config", "check"], &[&path, "mode 0777", &repair]);
    // Nothing was written there.
    assert_eq!(fs::read_dir(&home).unwrap().count(), 1);
    let allowed = fixture.run(&["--allow-insecure-home", "list"]);
    assert_eq!(allowed.status.code(), Some(0), "{allowed:?}");
    assert!(allowed.stderr.contains("warning: ") && allowed.stderr.contains("0777"), "{allowed:?}");
    let mut command = fixture.toolrack(&["config", "check"]);
    command.env("TOOLRACK_ALLOW_INSECURE_HOME", "1");
    assert_eq!(outcome(command).status.code(), Some(0));
    chmod(&home, 0o755);
    let repaired = fixture.run(&["list"]);
    assert_eq!((repaired.status.code(), repaired.stderr.as_str()), (Some(0), ""));
}

/// A daemon that was started with the override runs with it.
#[test]
fn override_reaches_the_daemon() {
    let fixture = Fixture::new();
    fixture.put("home/toolrack.toml", CONFIG);
    chmod(&fixture.path().join("home"), 0o777);
    for args in
        [["daemon", "start"].as_slice(), &["call", "demo.greet", "name=Ada"], &["daemon", "stop"]]
    {
        let args = [&["--allow-insecure-home"], args].concat();
        let outcome = fixture.run(&args);
        assert_eq!(outcome.status.code(), Some(0), "{args:?} {outcome:?}");
    }
    fixture.marker.assert_no_processes_left(std::time::Duration::ZERO);
}

#[test]
fn writable_file_and_parent_are_refused() {
    let fixture = Fixture::new();
    fixture.put("home/toolrack.toml", CONFIG);
    let (home, file) = (fixture.path().join("home"), fixture.path().join("home/toolrack.toml"));
    chmod(&file, 0o666);
    for args in [["list"].as_slice(), &["config", "check"]] {
        check_refused(&fixture, args, &["toolrack.toml", "mode 0666", "chmod o-w"]);
    }
    chmod(&file, 0o600);
    // A config elsewhere is checked where it is.
    fixture.put("work/other.toml", CONFIG);
    chmod(&fixture.path().join("work/other.toml"), 0o602);
    check_refused(&fixture, &["--config", "other.toml", "list"], &["other.toml", "mode 0602"]);
    check_refused(&fixture, &["config", "check", "other.toml"], &["other.toml", "mode 0602"]);
    // The directory above can be renamed by all, unless it is sticky.
    chmod(fixture.path(), 0o777);
    check_refused(&fixture, &["list"], &["mode 0777"]);
    chmod(fixture.path(), 0o1777);
    assert_eq!(fixture.run(&["list"]).status.code(), Some(0));
    chmod(fixture.path(), 0o700);
    fs::create_dir(home.join("catalog")).unwrap();
    chmod(&home.join("catalog"), 0o777);
    check_refused(&fixture, &["list"], &["home/catalog"]);
}

#[test]
fn paths_of_another_user_are_refused() {
    if !rustix::process::geteuid().is_root() {
        return skipped("paths_of_another_user_are_refused", "only root can give files away");
    }
    let fixture = Fixture::new();
    fixture.put("home/toolrack.toml", CONFIG);
    let (home, file) = (fixture.path().join("home"), fixture.path().join("home/toolrack.toml"));
    chown(&file, Some(4321), None).unwrap();
    check_refused(&fixture, &["list"], &["toolrack.toml", "uid 4321", "sudo chown"]);
    chown(&file, Some(0), None).unwrap();
    chown(&home, Some(4321), None).unwrap();
    check_refused(&fixture, &["list"], &["uid 4321"]);
    check_refused(&fixture, &["doctor"], &["uid 4321"]);
    chown(&home, Some(0), None).unwrap();
    // A link that another user has left, from a time when the home was open.
    for planted in
        ["catalog", "logs", "secrets", "tokens", "packages", "run", "history.db", "daemon.log"]
    {
        let link = home.join(planted);
        symlink(fixture.path().join("elsewhere"), &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(4321), None).unwrap();
        for args in COMMANDS {
            check_refused(&fixture, args, &[planted, "uid 4321"]);
        }
        fs::remove_file(&link).unwrap();
    }
    assert!(!fixture.path().join("elsewhere").exists());
    // Shared with a group on purpose: a warning.
    chown(&home, Some(0), Some(4321)).unwrap();
    chmod(&home, 0o770);
    let warned = fixture.run(&["list"]);
    assert_eq!(warned.status.code(), Some(0), "{warned:?}");
    assert!(warned.stderr.contains("writable by group 4321"), "{warned:?}");
    assert!(fixture.run(&["doctor"]).stdout.contains("writable by group 4321"));
}

/// Config of the system, read by a user without rights.
#[test]
fn config_of_root_is_used_by_others() {
    const TEST: &str = "config_of_root_is_used_by_others";
    if !rustix::process::geteuid().is_root() {
        return skipped(TEST, "only root can become another user");
    }
    let fixture = Fixture::new();
    fixture.put("home/toolrack.toml", CONFIG);
    let copy = fixture.path().join("toolrack");
    fs::copy(env!("CARGO_BIN_EXE_toolrack"), &copy).unwrap();
    for dir in [fixture.path(), &fixture.path().join("home"), &fixture.path().join("work")] {
        chmod(dir, 0o755);
    }
    chmod(&fixture.path().join("home/toolrack.toml"), 0o644);
    let run = |args: &[&str]| {
        let mut command = fixture.command("setpriv");
        command
            .args(["--reuid", "4321", "--regid", "4321", "--clear-groups"])
            .arg(&copy)
            .args(args);
        outcome(command)
    };
    let listed = run(&["list"]);
    if listed.stderr.contains("setpriv") {
        return skipped(TEST, "no `setpriv`");
    }
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    assert!(listed.stdout.contains("demo"), "{listed:?}");
    // The own home of that user, and the same for root.
    chown(fixture.path().join("home"), Some(4321), Some(4321)).unwrap();
    assert_eq!(run(&["list"]).status.code(), Some(0));
    check_refused(&fixture, &["list"], &["uid 4321"]);
}
