//! Ad-hoc servers over HTTP.

use toolrack_testkit::{HttpServer, HttpServerKind};

use crate::stage::Stage;

fn server(args: &[&str]) -> HttpServer {
    HttpServer::start(HttpServerKind::scripted(args)).unwrap()
}

#[track_caller]
fn check(server: &HttpServer, args: &[&str], code: i32, output: &str, talk: &str) {
    let stage = Stage::new();
    let url = server.url();
    let outcome = stage.run(&[args, &["--url", &url]].concat());
    assert_eq!(outcome.status.code(), Some(code), "{outcome:?}");
    assert_eq!(outcome.output, output);
    assert!(outcome.talk.contains(talk), "{}", outcome.talk);
}

#[test]
fn a_server_is_reached_by_its_address_in_every_shape() {
    for shape in ["session", "stateless", "sse", "dual"] {
        let server = server(&["--shape", shape]);
        check(&server, &["call", "add", "a=1", "b=2"], 0, "3\n", "");
        check(&server, &["read", "test://readme"], 0, "Read me.\n", "");
        check(&server, &["call", "ad", "a=1"], 1, "", "did you mean `add`?");
    }
}

#[test]
fn a_server_that_wants_a_login_has_its_exit_code() {
    let server = server(&["--plan", "http=status(401)"]);
    check(&server, &["tools"], 3, "", "hint: ");
}

#[test]
fn a_server_that_is_out_of_order_has_its_exit_code() {
    let server = server(&["--plan", "http=status(500)"]);
    check(&server, &["tools", "--startup-timeout", "3s"], 4, "", "hint: ");
}

#[test]
fn a_token_that_is_refused_is_to_be_changed() {
    let server = server(&["--plan", "http=status(401)"]);
    let (stage, url) = (Stage::new(), server.url());
    let header = "Authorization: Bearer wrong";
    let edit = "`toolrack edit tk`";
    let add = stage.run(&["add", "tk", &url, "--header", header]);
    assert_eq!(add.status.code(), Some(3), "{add:?}");
    assert!(
        add.talk.contains(&format!("hint: change the token in its headers with {edit}")),
        "{add:?}"
    );
    let status = stage.run(&["status", "--check"]);
    assert!(status.output.contains("toolrack edit tk"), "{status:?}");
    let doctor = stage.run(&["doctor", "tk"]);
    assert!(doctor.output.contains(edit), "{doctor:?}");
    for outcome in [add, status, doctor] {
        assert!(!format!("{outcome:?}").contains("toolrack login"), "{outcome:?}");
    }
}
