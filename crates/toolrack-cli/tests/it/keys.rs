//! `toolrack key check` beside programs that listen on the daemon's port.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use crate::fixture::{Fixture, LONG, Outcome, outcome};

/// What a program on the port answers to a request.
type Answer = Box<dyn Fn(&str) -> String + Send>;

/// Accepts one connection and returns the request that it got.
fn listen(answer: Answer) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !request.ends_with(b"}") {
            let n_bytes = stream.read(&mut buffer).unwrap();
            assert!(n_bytes > 0);
            request.extend_from_slice(&buffer[..n_bytes]);
        }
        let request = String::from_utf8(request).unwrap();
        stream.write_all(answer(&request).as_bytes()).unwrap();
        request
    });
    (addr, served)
}

fn check_key(fixture: &Fixture, key: &str, addr: SocketAddr) -> Outcome {
    let mut command = fixture.toolrack(&["key", "check", "--url", &format!("http://{addr}/mcp")]);
    command.env("TOOLRACK_KEY", key);
    outcome(command)
}

#[test]
fn key_is_not_sent_to_a_program_that_cannot_prove_itself() {
    let fixture = Fixture::new();
    let run = |args: &[&str]| {
        let outcome = fixture.run(args);
        assert_eq!(outcome.status.code(), Some(0), "{args:?} {outcome:?}");
        outcome.stdout
    };
    run(&["daemon", "start"]);
    let key = run(&["key", "create", "client", "-q"]).trim().to_owned();
    let status: serde_json::Value =
        serde_json::from_str(&run(&["-o", "json", "daemon", "status"])).unwrap();
    let daemon: SocketAddr =
        status["url"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    let proven = check_key(&fixture, &key, daemon);
    assert_eq!(proven.status.code(), Some(0), "{proven:?}");
    assert!(proven.stderr.contains("this is your daemon"), "{proven:?}");
    let respond = |body: &str| format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}");
    let fixed = respond(&format!(r#"{{"proof":"{}"}}"#, "0".repeat(64)));
    // Passes the challenge on to the real daemon, at its own address.
    let relay = move |request: &str| {
        let mut stream = TcpStream::connect(daemon).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let lines = request.split("\r\n").map(|line| match line.strip_prefix("host: ") {
            Some(_) => format!("host: {daemon}"),
            None => line.to_owned(),
        });
        let request = lines.collect::<Vec<_>>().join("\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 ") && answer.contains("\"proof\""), "{answer}");
        answer
    };
    let ok = respond("ok\n");
    let answers: [Answer; 4] = [
        Box::new(move |_request| ok.clone()),
        Box::new(move |_request| fixed.clone()),
        Box::new(|_request| String::new()),
        Box::new(relay),
    ];
    for answer in answers {
        let (addr, served) = listen(answer);
        let refused = check_key(&fixture, &key, addr);
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        let expected = format!("something else listens on {addr}: do not send the key");
        assert!(refused.stderr.contains(&expected), "{refused:?}");
        let request = served.join().unwrap();
        let secret = key.strip_prefix("trk_").unwrap();
        assert!(request.starts_with("POST /api/proof ") && !request.contains(secret), "{request}");
    }
    run(&["daemon", "stop"]);
    fixture.marker.assert_no_processes_left(LONG);
}
