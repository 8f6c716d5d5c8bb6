//! Ad-hoc servers over HTTP.

use toolrack_testkit::{HttpServer, HttpServerKind};

use crate::fixture::Fixture;

fn server(args: &[&str]) -> HttpServer {
    HttpServer::start(HttpServerKind::scripted(args)).unwrap()
}

#[track_caller]
fn check(server: &HttpServer, args: &[&str], code: i32, stdout: &str, stderr: &str) {
    let fixture = Fixture::new();
    let url = server.url();
    let outcome = fixture.run(&[args, &["--url", &url]].concat());
    assert_eq!(outcome.status.code(), Some(code), "{outcome:?}");
    assert_eq!(outcome.stdout, stdout);
    assert!(outcome.stderr.contains(stderr), "{}", outcome.stderr);
}

#[test]
fn ad_hoc_url_works_with_every_http_flavor() {
    for shape in ["session", "stateless", "sse", "dual"] {
        let server = server(&["--shape", shape]);
        check(&server, &["call", "add", "a=1", "b=2"], 0, "3\n", "");
        check(&server, &["read", "test://readme"], 0, "Read me.\n", "");
        check(&server, &["call", "ad", "a=1"], 1, "", "did you mean `add`?");
    }
}

#[test]
fn unauthorized_exits_with_3() {
    let server = server(&["--plan", "http=status(401)"]);
    check(&server, &["tools"], 3, "", "hint: ");
}

#[test]
fn server_error_exits_with_4() {
    let server = server(&["--plan", "http=status(500)"]);
    check(&server, &["tools", "--startup-timeout", "3s"], 4, "", "hint: ");
}

#[test]
fn rejected_token_hints_at_edit() {
    let server = server(&["--plan", "http=status(401)"]);
    let (fixture, url) = (Fixture::new(), server.url());
    let header = "Authorization: Bearer wrong";
    let edit = "`toolrack edit tk`";
    let add = fixture.run(&["add", "tk", &url, "--header", header]);
    assert_eq!(add.status.code(), Some(3), "{add:?}");
    assert!(
        add.stderr.contains(&format!("hint: change the token in its headers with {edit}")),
        "{add:?}"
    );
    let status = fixture.run(&["status", "--check"]);
    assert!(status.stdout.contains("toolrack edit tk"), "{status:?}");
    let doctor = fixture.run(&["doctor", "tk"]);
    assert!(doctor.stdout.contains(edit), "{doctor:?}");
    for outcome in [add, status, doctor] {
        assert!(!format!("{outcome:?}").contains("toolrack login"), "{outcome:?}");
    }
}
