//! Secrets, logins, logs and edits on a terminal.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use toolrack_testkit::oauth::{OAuthPlan, OAuthServer};
use toolrack_testkit::{ChildGuard, eventually};

use crate::fixture::{Fixture, LONG};
use crate::pty::Pty;

const SECRET: &str = "s3cret-value";
const INTERRUPT: &str = "\u{3}";

fn open(fixture: &Fixture, args: &[&str], env: &[(&str, &str)]) -> Option<Pty> {
    Pty::open(fixture, 100, args, env)
}

#[track_caller]
fn run(fixture: &Fixture, args: &[&str]) -> String {
    let outcome = fixture.run(args);
    assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
    format!("{}{}", outcome.stdout, outcome.stderr)
}

#[test]
fn secret_prompt_does_not_echo() {
    let fixture = Fixture::new();
    let Some(mut pty) = open(&fixture, &["secret", "set", "token"], &[]) else { return };
    pty.shows("Value of `token` (hidden): ");
    pty.types(&format!("{SECRET}\n"));
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("stored secret `token`") && !text.contains(SECRET), "{text}");
    let stored = fs::read_to_string(fixture.path().join("home/secrets/mcp_token.key")).unwrap();
    assert_eq!(stored, SECRET);
}

#[test]
fn empty_secret_is_not_stored() {
    for (typed, code) in [("\n", 1), (INTERRUPT, 130)] {
        let fixture = Fixture::new();
        let Some(mut pty) = open(&fixture, &["secret", "set", "token"], &[]) else { return };
        pty.shows("(hidden)");
        pty.types(typed);
        let (found, text) = pty.end(LONG);
        assert_eq!(found, code, "{text}");
        assert!(!fixture.path().join("home/secrets").exists());
    }
}

#[test]
fn add_prompts_for_missing_secrets() {
    let fixture = Fixture::new();
    let add = ["add", "demo", "--env-secret", "TOKEN=token", "--", "demo-server"];
    let Some(mut pty) = open(&fixture, &add, &[]) else { return };
    pty.shows("Value of `token`");
    pty.types(&format!("{SECRET}\n"));
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("check passed: 5 tools") && !text.contains(SECRET), "{text}");
}

#[test]
fn invalid_edit_can_be_retried() {
    let fixture = Fixture::new();
    run(&fixture, &["add", "demo", "--no-check", "--", "demo-server"]);
    // Breaks the file in the first run and fixes it in the second.
    let editor = fixture.path().join("editor");
    fixture.put(
        "editor",
        "#!/bin/sh\nif grep -q ^comand \"$1\"; then sed -i s/^comand/command/ \"$1\"; \
         sed -i s/demo-server/scripted-server/ \"$1\"; else sed -i s/^command/comand/ \"$1\"; fi\n",
    );
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
    let env = [("EDITOR", editor.to_str().unwrap())];
    let Some(mut pty) = open(&fixture, &["edit"], &env) else { return };
    pty.shows("Edit again? [Y]es, [n]o: ");
    pty.types("\n");
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("saved "), "{text}");
    assert!(run(&fixture, &["list"]).contains("scripted-server"));
    assert_eq!(fs::read_dir(fixture.path().join("home/edit")).unwrap().count(), 0);
}

#[test]
fn logs_follow_a_server_of_another_process() {
    let fixture = Fixture::new();
    let script = "echo first words >&2; exec demo-server";
    run(&fixture, &["add", "demo", "--no-check", "--", "sh", "-c", script]);
    let mut command = fixture.toolrack(&["logs", "-f", "demo"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    // Stopped at the end of the test.
    let _kept = ChildGuard::new(child);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut some = [0; 1024];
        while let Ok(n_bytes @ 1..) = output.read(&mut some) {
            sender.send(String::from_utf8_lossy(&some[..n_bytes]).into_owned()).unwrap_or_default();
        }
    });
    run(&fixture, &["call", "demo.greet", "name=Ada"]);
    let mut seen = String::new();
    eventually(LONG, "what the server wrote", || {
        seen.extend(receiver.try_iter());
        seen.contains("| first words") && seen.contains("* connected")
    });
}

#[test]
fn ctrl_c_after_an_invalid_edit_keeps_the_draft() {
    let fixture = Fixture::new();
    run(&fixture, &["add", "demo", "--no-check", "--", "demo-server"]);
    let env = [("EDITOR", "sed -i s/^command/comand/")];
    let Some(mut pty) = open(&fixture, &["edit"], &env) else { return };
    pty.shows("Edit again? [Y]es, [n]o: ");
    pty.types(INTERRUPT);
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("the config file is unchanged"), "{text}");
    let kept = fs::read_to_string(fixture.path().join("home/edit/toolrack-1.toml")).unwrap();
    assert!(kept.contains("comand = \"demo-server\""), "{kept}");
    assert!(run(&fixture, &["list"]).contains("demo-server"));
}

#[test]
fn login_with_a_pasted_redirect_url() {
    let fixture = Fixture::new();
    let server = OAuthServer::start(OAuthPlan::default()).unwrap();
    run(&fixture, &["add", "remote", &server.url(), "--no-check"]);
    let Some(mut pty) = open(&fixture, &["login", "remote", "--no-browser"], &[]) else { return };
    pty.shows("Paste that URL here: ");
    let text = pty.text();
    let page = text.lines().find_map(|line| line.trim().strip_prefix("http")).unwrap();
    let mut curl = fixture.command("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{redirect_url}", &format!("http{page}")]);
    let redirect_url = crate::fixture::outcome(curl).stdout;
    pty.types(&format!("{redirect_url}\n"));
    let (code, text) = pty.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("logged in to `remote` via "), "{text}");
}

/// Adds the server and logs in with a browser.
fn log_in(fixture: &Fixture, server: &OAuthServer) {
    run(fixture, &["add", "remote", &server.url(), "--no-check"]);
    fixture.put("browser", "#!/bin/sh\nexec curl -sL -o /dev/null \"$1\"\n");
    let browser = fixture.path().join("browser");
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let mut login = fixture.toolrack(&["login", "remote"]);
    login.env("BROWSER", &browser);
    let outcome = crate::fixture::outcome(login);
    assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("logged in to `remote` via "), "{outcome:?}");
}

#[test]
fn login_and_logout_with_a_browser() {
    let fixture = Fixture::new();
    let server = OAuthServer::start(OAuthPlan::default()).unwrap();
    log_in(&fixture, &server);
    assert!(run(&fixture, &["logout", "remote"]).contains("logged out of `remote`"));
    assert!(run(&fixture, &["logout", "remote"]).contains("not logged in to"));
}

#[test]
fn remove_reports_a_logout_only_if_it_succeeded() {
    for is_broken in [false, true] {
        let fixture = Fixture::new();
        let server = OAuthServer::start(OAuthPlan::default()).unwrap();
        log_in(&fixture, &server);
        let files = fs::read_dir(fixture.path().join("home/secrets")).unwrap();
        let mut files = files.map(|entry| entry.unwrap().path());
        let lock = files.find(|path| path.extension().is_some_and(|end| end == "lock")).unwrap();
        if is_broken {
            // A directory cannot be locked, so the login cannot be deleted.
            fs::remove_file(&lock).unwrap();
            fs::create_dir(&lock).unwrap();
        }
        let text = run(&fixture, &["remove", "remote"]);
        assert!(text.contains("removed `remote` from "), "{text}");
        assert_eq!(text.contains(" and logged out"), !is_broken, "{text}");
    }
}
