//! Secrets, logins, logs and edits on a terminal.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use toolrack_testkit::oauth::{OAuthPlan, OAuthServer};
use toolrack_testkit::{Kept, eventually};

use crate::screen::Screen;
use crate::stage::{LONG, Stage};

const SECRET: &str = "s3cret-value";
const INTERRUPT: &str = "\u{3}";

fn open(stage: &Stage, args: &[&str], env: &[(&str, &str)]) -> Option<Screen> {
    Screen::open(stage, 100, args, env)
}

#[track_caller]
fn run(stage: &Stage, args: &[&str]) -> String {
    let outcome = stage.run(args);
    assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
    format!("{}{}", outcome.output, outcome.talk)
}

#[test]
fn a_secret_is_typed_unseen() {
    let stage = Stage::new();
    let Some(mut screen) = open(&stage, &["secret", "set", "token"], &[]) else { return };
    screen.shows("Value of `token` (it is not shown): ");
    screen.types(&format!("{SECRET}\n"));
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("`token` is stored") && !text.contains(SECRET), "{text}");
    let stored = fs::read_to_string(stage.path().join("home/secrets/mcp_token.key")).unwrap();
    assert_eq!(stored, SECRET);
}

#[test]
fn a_secret_that_is_not_typed_is_not_stored() {
    for (typed, code) in [("\n", 1), (INTERRUPT, 130)] {
        let stage = Stage::new();
        let Some(mut screen) = open(&stage, &["secret", "set", "token"], &[]) else { return };
        screen.shows("it is not shown");
        screen.types(typed);
        let (found, text) = screen.end(LONG);
        assert_eq!(found, code, "{text}");
        assert!(!stage.path().join("home/secrets").exists());
    }
}

#[test]
fn a_new_server_is_asked_for_its_secret() {
    let stage = Stage::new();
    let add = ["add", "demo", "--env-secret", "TOKEN=token", "--", "demo-server"];
    let Some(mut screen) = open(&stage, &add, &[]) else { return };
    screen.shows("Value of `token`");
    screen.types(&format!("{SECRET}\n"));
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("it works: 5 tools") && !text.contains(SECRET), "{text}");
}

#[test]
fn a_broken_edit_is_mended_at_once() {
    let stage = Stage::new();
    run(&stage, &["add", "demo", "--no-check", "--", "demo-server"]);
    // Breaks the file in the first run and fixes it in the second.
    let editor = stage.path().join("editor");
    stage.put(
        "editor",
        "#!/bin/sh\nif grep -q ^comand \"$1\"; then sed -i s/^comand/command/ \"$1\"; \
         sed -i s/demo-server/scripted-server/ \"$1\"; else sed -i s/^command/comand/ \"$1\"; fi\n",
    );
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
    let env = [("EDITOR", editor.to_str().unwrap())];
    let Some(mut screen) = open(&stage, &["edit"], &env) else { return };
    screen.shows("Edit it again? [Y]es, [n]o: ");
    screen.types("\n");
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("toolrack.toml is saved"), "{text}");
    assert!(run(&stage, &["list"]).contains("scripted-server"));
    assert_eq!(fs::read_dir(stage.path().join("home/edit")).unwrap().count(), 0);
}

#[test]
fn logs_are_followed_while_others_run_the_server() {
    let stage = Stage::new();
    let script = "echo first words >&2; exec demo-server";
    run(&stage, &["add", "demo", "--no-check", "--", "sh", "-c", script]);
    let mut command = stage.toolrack(&["logs", "-f", "demo"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    // Stopped at the end of the test.
    let _kept = Kept::new(child);
    let (told, heard) = mpsc::channel();
    thread::spawn(move || {
        let mut some = [0; 1024];
        while let Ok(n_bytes @ 1..) = output.read(&mut some) {
            told.send(String::from_utf8_lossy(&some[..n_bytes]).into_owned()).unwrap_or_default();
        }
    });
    run(&stage, &["call", "demo.greet", "name=Ada"]);
    let mut seen = String::new();
    eventually(LONG, "what the server wrote", || {
        seen.extend(heard.try_iter());
        seen.contains("| first words") && seen.contains("* connected")
    });
}

#[test]
fn a_broken_edit_is_left_with_ctrl_c_and_nothing_is_lost() {
    let stage = Stage::new();
    run(&stage, &["add", "demo", "--no-check", "--", "demo-server"]);
    let env = [("EDITOR", "sed -i s/^command/comand/")];
    let Some(mut screen) = open(&stage, &["edit"], &env) else { return };
    screen.shows("Edit it again? [Y]es, [n]o: ");
    screen.types(INTERRUPT);
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("nothing is lost"), "{text}");
    let kept = fs::read_to_string(stage.path().join("home/edit/toolrack-1.toml")).unwrap();
    assert!(kept.contains("comand = \"demo-server\""), "{kept}");
    assert!(run(&stage, &["list"]).contains("demo-server"));
}

#[test]
fn somebody_logs_in_by_pasting_where_a_page_led() {
    let stage = Stage::new();
    let server = OAuthServer::start(OAuthPlan::default()).unwrap();
    run(&stage, &["add", "remote", &server.url(), "--no-check"]);
    let Some(mut screen) = open(&stage, &["login", "remote", "--no-browser"], &[]) else { return };
    screen.shows("Paste that address here: ");
    let text = screen.text();
    let page = text.lines().find_map(|line| line.trim().strip_prefix("http")).unwrap();
    let mut curl = stage.command("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{redirect_url}", &format!("http{page}")]);
    let led = crate::stage::outcome(curl).output;
    screen.types(&format!("{led}\n"));
    let (code, text) = screen.end(LONG);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("logged in at `remote` by "), "{text}");
}

#[test]
fn somebody_logs_in_and_out_with_a_browser() {
    let stage = Stage::new();
    let server = OAuthServer::start(OAuthPlan::default()).unwrap();
    run(&stage, &["add", "remote", &server.url(), "--no-check"]);
    stage.put("browser", "#!/bin/sh\nexec curl -sL -o /dev/null \"$1\"\n");
    let browser = stage.path().join("browser");
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let mut login = stage.toolrack(&["login", "remote"]);
    login.env("BROWSER", &browser);
    let outcome = crate::stage::outcome(login);
    assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
    assert!(outcome.talk.contains("logged in at `remote` by "), "{outcome:?}");
    assert!(run(&stage, &["logout", "remote"]).contains("the login at `remote` is forgotten"));
    assert!(run(&stage, &["logout", "remote"]).contains("nobody was logged in"));
}
