//! Clients of others before the gateway, and servers of others behind it: over HTTP and over a pipe, in both eras.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use toolrack_testkit::{Kept, program, skipped};

/// Two interpreters and two servers start for each of these, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

fn servers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers")
}

fn everything() -> PathBuf {
    servers().join("node/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

fn time() -> PathBuf {
    servers().join("python/venv/bin/mcp-server-time")
}

/// The endpoint with server-everything and mcp-server-time behind it.
fn endpoint_args() -> Vec<String> {
    let everything = everything().display().to_string();
    let words = ["--server", "everything", "node", &everything, "stdio", "--server", "time"];
    let mut args: Vec<String> = words.iter().map(|&it| it.to_owned()).collect();
    args.push(time().display().to_string());
    args
}

#[expect(clippy::disallowed_methods, reason = "tests start real clients")]
fn start(program: &Path, args: &[String]) -> Child {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Has a client do everything, over HTTP and over a pipe, in every mode that it has.
fn check(test: &str, client: &[PathBuf], modes: &[&str]) {
    let needed = [everything(), time()];
    if let Some(missing) = needed.iter().chain(client).find(|it| it.is_absolute() && !it.exists()) {
        let reason = format!("{} is missing; run `cargo xtask servers`", missing.display());
        return skipped(test, &reason);
    }
    let endpoint = program("toolrack-endpoint");
    let mut http = vec!["--http".to_owned(), "127.0.0.1:0".to_owned()];
    http.extend(endpoint_args());
    let mut listening = start(&endpoint, &http);
    let mut line = String::new();
    BufReader::new(listening.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _listening = Kept::new(listening);
    let url = line.trim().strip_prefix("listening ").expect("the endpoint listens").to_owned();

    let mut pipe = vec!["stdio".to_owned(), endpoint.display().to_string()];
    pipe.extend(endpoint_args());
    for mode in modes {
        for way in [&vec!["http".to_owned(), url.clone()], &pipe] {
            let mut args: Vec<String> =
                client[1..].iter().map(|it| it.display().to_string()).collect();
            args.push((*mode).to_owned());
            args.extend(way.iter().cloned());
            let (status, said, complained) =
                Kept::new(start(&client[0], &args)).output(PATIENCE).unwrap();
            assert!(status.success(), "{mode} {way:?}: {said}{complained}");
            assert!(said.contains("done"), "{mode} {way:?}: {said}{complained}");
        }
    }
}

#[test]
fn the_python_client() {
    let python = servers().join("python");
    let client = [python.join("venv/bin/python"), python.join("gateway_client.py")];
    check("the_python_client", &client, &["legacy", "2026-07-28"]);
}

#[test]
fn the_typescript_client() {
    let node = servers().join("node");
    if !node.join("node_modules/@modelcontextprotocol/client").exists() {
        let reason = "the TypeScript client is missing; run `cargo xtask servers`";
        return skipped("the_typescript_client", reason);
    }
    let client = [PathBuf::from("node"), node.join("gateway-client.mjs")];
    check("the_typescript_client", &client, &["legacy", "auto"]);
}
