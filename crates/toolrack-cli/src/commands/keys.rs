//! `toolrack key`: makes, lists, replaces, revokes and checks the keys of clients over HTTP.
//!
//! The key file is changed here, with and without a daemon; a running daemon is then told to read it
//! again.
//!
//! **Invariant:** a key is printed once, when it is made, and is never taken from the command line.
//!
//! **Invariant:** `key check` does not send the key. It compares the answer to a random challenge.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use toolrack_config::{did_you_mean, similar_names};
use toolrack_daemon::{ApiKey, DEFAULT_ADDR, KeyEntry, KeyError, KeyFile, KeyHash, KeyScope};
use toolrack_manager::error_chain;
use toolrack_service::ErrorCode;
use url::{Host, Url};
use uuid::Uuid;

use crate::args::{KeyAction, KeyCheckOptions, KeyCreateOptions};
use crate::commands::{Context, credentials};
use crate::daemon_client::{self, find_any};
use crate::error::{CliError, ExitCode, command};
use crate::printer::{List, Output, format_utc};
use crate::server_selection::{Servers, Warnings};
use crate::settings::{Variable, env_var};

/// How long a program on the port may take to answer a challenge.
const PROOF_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum answer to a challenge.
const MAX_ANSWER_BYTES: u64 = 16 << 10;

/// Runs a `key` subcommand.
pub(crate) async fn key(action: KeyAction, context: &Context) -> Result<(), CliError> {
    match action {
        KeyAction::Create(options) => create(options, context).await,
        KeyAction::List => list(context).await,
        KeyAction::Rotate { name } => rotate(name, context).await,
        KeyAction::Revoke { name } => revoke(name, context).await,
        KeyAction::Check(options) => check(options, context).await,
    }
}

/// Reads or changes the key file on another thread.
async fn with_file<T: Send + 'static>(
    context: &Context,
    work: impl FnOnce(&KeyFile) -> Result<T, KeyError> + Send + 'static,
) -> Result<T, CliError> {
    let file = KeyFile::new(context.settings.home()?);
    context.blocking(move || work(&file).map_err(CliError::from)).await
}

async fn create(options: KeyCreateOptions, context: &Context) -> Result<(), CliError> {
    let KeyCreateOptions { name, server, admin } = options;
    let agent = context.settings.agent.clone();
    if admin && agent.is_some() {
        return Err(CliError::usage(
            "an admin key is not limited to an agent",
            "omit `--admin` for a key that is, or omit `--agent`",
        ));
    }
    let scope = if admin { KeyScope::Admin } else { KeyScope::Agent { agent, server } };
    if let KeyScope::Agent { server, .. } = &scope {
        // An unknown agent is an error, too.
        let servers = Servers::configured(Warnings::None, context)?;
        server.as_deref().map(|server| servers.server(server)).transpose()?;
    }
    let (entry, key) = with_file(context, move |file| file.create(&name, scope)).await?;
    let applied = apply(context).await;
    show(&entry, &key, "created", context)?;
    applied
}

async fn rotate(name: String, context: &Context) -> Result<(), CliError> {
    let (entry, key) = with_file(context, move |file| file.rotate(&name)).await?;
    let applied = apply(context).await;
    show(&entry, &key, "rotated", context)?;
    applied
}

async fn revoke(name: String, context: &Context) -> Result<(), CliError> {
    let entry = with_file(context, move |file| file.revoke(&name)).await?;
    apply(context).await?;
    let text = format!("revoked key `{}`, which was for {}", entry.name, entry.scope);
    context.printer.done(text, &entry_json(&entry));
    Ok(())
}

/// Tells a running daemon that the keys have changed.
async fn apply(context: &Context) -> Result<(), CliError> {
    let Some(daemon) = find_any(&context.settings)? else { return Ok(()) };
    let reloaded = daemon.request::<Value>(Method::POST, "/api/keys/reload").await;
    reloaded.map(drop).map_err(|failure| {
        let reason = failure.summary().message;
        let message =
            format!("the key file is changed, but the daemon has not confirmed it: {reason}");
        let hint = "run `toolrack daemon stop`; the next start reads the file";
        daemon_client::unavailable(&message).with_hint(hint)
    })
}

/// Prints a new key, and how to use it.
fn show(entry: &KeyEntry, key: &ApiKey, verb: &str, context: &Context) -> Result<(), CliError> {
    let running = find_any(&context.settings)?.map(|daemon| daemon.running);
    let addr = match &running {
        Some(running) => running.addr,
        None => Some(DEFAULT_ADDR),
    };
    let url = addr.map(|addr| format!("http://{addr}{}", endpoint(&entry.scope)));
    let mut document = entry_json(entry);
    if let Some(members) = document.as_object_mut() {
        members.insert("key".to_owned(), json!(key.reveal()));
        members.insert("url".to_owned(), json!(url));
    }
    let printer = &context.printer;
    printer.show(key.reveal(), &document);
    if printer.output == Output::Table {
        let (name, scope) = (&entry.name, &entry.scope);
        printer.note(format_args!(
            "note: {verb} key `{name}` for {scope}; it is shown only this once"
        ));
        if entry.scope == KeyScope::Admin {
            printer.note(
                "note: it can add servers, which run programs as you; any program that a client sends it to can, too",
            );
        }
        if let Some(url) = url {
            let header = "Authorization: Bearer KEY";
            printer.note(format_args!("note: clients use {url} with the header `{header}`"));
        }
    }
    Ok(())
}

/// The path of the MCP endpoint that a key is for.
fn endpoint(scope: &KeyScope) -> String {
    let path = |parts: &[Option<&str>]| {
        let parts: Vec<&str> = parts.iter().copied().flatten().collect();
        daemon_client::path(&parts)
    };
    match scope {
        KeyScope::Admin => "/mcp".to_owned(),
        KeyScope::Agent { agent, server } => {
            let server = server.as_deref();
            path(&[Some("mcp"), agent.as_deref(), server.map(|_server| "server"), server])
        }
    }
}

fn entry_json(entry: &KeyEntry) -> Value {
    let (scope, agent, server) = match &entry.scope {
        KeyScope::Admin => ("admin", None, None),
        KeyScope::Agent { agent, server } => ("agent", agent.as_deref(), server.as_deref()),
    };
    json!({
        "name": entry.name, "id": entry.hash().id(), "scope": scope, "agent": agent, "server": server,
        "created_at": format_utc(entry.created_ms),
        "last_used_on": entry.last_used_ms.map(format_day), "legacy": entry.legacy,
    })
}

/// The day of a time, in UTC.
fn format_day(time_ms: u64) -> String {
    format_utc(time_ms).chars().take("2026-01-01".len()).collect()
}

async fn list(context: &Context) -> Result<(), CliError> {
    let printer = &context.printer;
    let entries = with_file(context, KeyFile::list).await?;
    if entries.is_empty() {
        let create = command("key create NAME");
        printer
            .note(format_args!("note: no keys; create one for a client over HTTP with {create}"));
    }
    let mut list = List::new(&["NAME", "FOR", "CREATED", "LAST USED"]);
    for entry in &entries {
        let used = entry.last_used_ms.map_or_else(|| "never".to_owned(), format_day);
        let row = [entry.name.clone(), entry.scope.to_string(), format_day(entry.created_ms), used];
        list.push(row.to_vec(), &entry_json(entry));
    }
    printer.list(&list);
    for entry in entries.iter().filter(|entry| entry.legacy) {
        printer.note(format_args!("note: {}; {}", legacy_warning(entry), legacy_fix(entry)));
    }
    Ok(())
}

/// What is wrong with a key that was the token of an earlier version.
pub(crate) fn legacy_warning(entry: &KeyEntry) -> String {
    let name = &entry.name;
    format!("key `{name}` was the token of an earlier version, which other programs may have seen")
}

pub(crate) fn legacy_fix(entry: &KeyEntry) -> String {
    let rotate = command(format_args!("key rotate {}", entry.name));
    format!("replace it with {rotate}, or use `toolrack serve`, which needs no key")
}

/// The answer to a challenge.
#[derive(Deserialize)]
struct ProofAnswer {
    proof: String,
}

/// What a program on the port has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// It knows the key.
    Proven,
    /// It does not, or is no daemon at all.
    Unproven,
    /// Nothing listens there.
    Absent,
}

async fn check(options: KeyCheckOptions, context: &Context) -> Result<(), CliError> {
    let running = find_any(&context.settings)?.and_then(|daemon| daemon.running.addr);
    let addrs = match &options.url {
        Some(url) => parse_url(url)?,
        None => vec![running.unwrap_or(DEFAULT_ADDR)],
    };
    let hash = read_key(context).await?.hash();
    let mut proven = None;
    for addr in addrs {
        match context.run_cancellable(async { Ok(ask(addr, &hash).await) }).await? {
            Peer::Proven => proven = Some(addr),
            Peer::Absent => {}
            Peer::Unproven => return Err(unproven(addr, &hash, running, context).await),
        }
    }
    let Some(addr) = proven else {
        let message = "nothing listens at this address; do not send the key there, because another \
                       program may listen later";
        return Err(daemon_client::unavailable(message));
    };
    let text = format!("this is your daemon: {addr} has proven that it knows the key");
    context.printer.done(text, &json!({ "addr": addr.to_string(), "proven": true }));
    Ok(())
}

/// Error: the program on the port is not known to be the daemon.
async fn unproven(
    addr: SocketAddr,
    hash: &KeyHash,
    running: Option<SocketAddr>,
    context: &Context,
) -> CliError {
    let id = hash.id();
    let is_known = with_file(context, KeyFile::list)
        .await
        .is_ok_and(|entries| entries.iter().any(|entry| entry.hash().id() == id));
    let auth = |message: String, hint: String| {
        CliError::new(ExitCode::Auth, ErrorCode::Unauthorized, message, hint)
    };
    if running == Some(addr) && !is_known {
        let hint = format!("list keys with {}, and create one", command("key list"));
        let message =
            "this is your daemon, but it does not know the key, which may be revoked or rotated";
        return auth(message.to_owned(), hint);
    }
    let message = format!("something else listens on {addr}: do not send the key");
    let rotate = command("key rotate NAME");
    auth(message, format!("if a client has sent it already, replace it with {rotate}"))
}

/// The loopback addresses of a URL. `localhost` may mean either of two.
fn parse_url(url: &str) -> Result<Vec<SocketAddr>, CliError> {
    let invalid = |reason: &str| {
        CliError::usage(reason, "use a URL such as `http://127.0.0.1:7733/mcp`").with_field("--url")
    };
    let url = Url::parse(url).map_err(|_error| invalid("the URL is invalid"))?;
    if url.scheme() != "http" {
        return Err(invalid("the daemon speaks plain HTTP"));
    }
    let port = url.port_or_known_default().unwrap_or(80);
    let ips: Vec<IpAddr> = match url.host() {
        Some(Host::Ipv4(ip)) => vec![ip.into()],
        Some(Host::Ipv6(ip)) => vec![ip.into()],
        // Clients differ in which one they try first, so both must be the daemon or absent.
        Some(Host::Domain("localhost")) => {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        }
        _ => Vec::new(),
    };
    if ips.is_empty() || !ips.iter().all(IpAddr::is_loopback) {
        return Err(invalid("the daemon listens on loopback addresses only"));
    }
    Ok(ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
}

/// Reads the key from `TOOLRACK_KEY`, or else from the terminal or stdin.
async fn read_key(context: &Context) -> Result<ApiKey, CliError> {
    let given = env_var(Variable::ToolrackKey).filter(|value| !value.is_empty());
    if let Some(value) = given {
        return Ok(ApiKey::from_text(&value.to_string_lossy()));
    }
    let hint = "pipe the key in, or set `TOOLRACK_KEY`";
    let secret = credentials::read_secret("key", context).await;
    Ok(ApiKey::from_text(secret.map_err(|failure| failure.with_hint(hint))?.reveal()))
}

/// Challenges the program that listens on an address.
async fn ask(addr: SocketAddr, hash: &KeyHash) -> Peer {
    let challenge = [Uuid::new_v4(), Uuid::new_v4()].map(|part| part.simple().to_string()).concat();
    match timeout(PROOF_TIMEOUT, exchange(addr, &hash.id(), &challenge)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Peer::Absent,
        // A loopback address that this machine does not have.
        Ok(Err(error)) if error.kind() == io::ErrorKind::AddrNotAvailable => Peer::Absent,
        Ok(Ok(answer)) if is_proof(&answer, addr, hash, &challenge) => Peer::Proven,
        _ => Peer::Unproven,
    }
}

/// Sends the challenge, and reads the whole response.
async fn exchange(addr: SocketAddr, id: &str, challenge: &str) -> io::Result<Vec<u8>> {
    let body = json!({ "key_id": id, "challenge": challenge }).to_string();
    let request = format!(
        "POST /api/proof HTTP/1.1\r\nhost: {addr}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Whether a response has the right proof. Anything unexpected is none.
fn is_proof(response: &[u8], addr: SocketAddr, hash: &KeyHash, challenge: &str) -> bool {
    let Ok(text) = std::str::from_utf8(response) else { return false };
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let Ok(ProofAnswer { proof }) = serde_json::from_str(body) else { return false };
    head.starts_with("HTTP/1.1 200 ") && hash.is_proof(&proof, &addr.to_string(), challenge)
}

impl From<KeyError> for CliError {
    fn from(error: KeyError) -> Self {
        let (message, hint) = (error_chain(&error), error.hint());
        match error {
            KeyError::Unknown { name, names } => {
                let suggestion =
                    did_you_mean(&similar_names(&name, names.iter().map(String::as_str)));
                Self::unknown(format!("{message}{suggestion}"), hint)
            }
            KeyError::InvalidName => Self::usage(message, hint),
            KeyError::Duplicate(_) => {
                Self::new(ExitCode::Config, ErrorCode::Conflict, message, hint)
            }
            KeyError::TooMany | KeyError::NotPrivate(_) | KeyError::Damaged { .. } => {
                Self::config(message, hint)
            }
            _ => Self::new(ExitCode::Unreachable, ErrorCode::Internal, message, hint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_urls_are_checked() {
        let check = |url: &str, expected: Option<&[&str]>| {
            let found = parse_url(url)
                .ok()
                .map(|addrs| addrs.iter().map(ToString::to_string).collect::<Vec<_>>());
            let expected = expected.map(|addrs| addrs.iter().map(ToString::to_string).collect());
            assert_eq!(found, expected, "{url}");
        };
        check("http://127.0.0.1:7733/mcp", Some(&["127.0.0.1:7733"]));
        check("http://[::1]:7733", Some(&["[::1]:7733"]));
        check("http://localhost:7733/mcp", Some(&["127.0.0.1:7733", "[::1]:7733"]));
        check("http://localhost/mcp", Some(&["127.0.0.1:80", "[::1]:80"]));
        for url in [
            "",
            "127.0.0.1:7733",
            "https://127.0.0.1:7733",
            "http://10.0.0.1:7733",
            "http://0.0.0.0:7733",
            "http://evil.example",
            "http://localhost.evil.example",
            "unix:/s",
        ] {
            check(url, None);
        }
    }

    #[test]
    fn endpoint_follows_from_the_scope() {
        let check = |agent: Option<&str>, server: Option<&str>, expected: &str| {
            let (agent, server) = (agent.map(str::to_owned), server.map(str::to_owned));
            assert_eq!(endpoint(&KeyScope::Agent { agent, server }), expected);
        };
        check(None, None, "/mcp");
        check(Some("work"), None, "/mcp/work");
        check(None, Some("a b"), "/mcp/server/a%20b");
        check(Some("work"), Some("git"), "/mcp/work/server/git");
        assert_eq!(endpoint(&KeyScope::Admin), "/mcp");
    }

    #[test]
    fn only_the_right_proof_in_a_response_counts() {
        let key = ApiKey::from_text("trk_x");
        let (addr, challenge) = ("127.0.0.1:7".parse().unwrap(), "00".repeat(32));
        let proof = key.hash().proof("127.0.0.1:7", &challenge);
        let check = |response: &str, expected: bool| {
            let found = is_proof(response.as_bytes(), addr, &key.hash(), &challenge);
            assert_eq!(found, expected, "{response}");
        };
        let body = format!(r#"{{"proof":"{proof}"}}"#);
        check(&format!("HTTP/1.1 200 OK\r\n\r\n{body}"), true);
        check(&format!("HTTP/1.1 404 Not Found\r\n\r\n{body}"), false);
        check(&format!("SSH-2.0\r\n\r\n{body}"), false);
        check(&format!("HTTP/1.1 200 OK\r\n{body}"), false);
        check("HTTP/1.1 200 OK\r\n\r\n{\"proof\":\"\"}", false);
        check("HTTP/1.1 200 OK\r\n\r\nok\n", false);
        let elsewhere = key.hash().proof("[::1]:7", &challenge);
        check(&format!("HTTP/1.1 200 OK\r\n\r\n{{\"proof\":\"{elsewhere}\"}}"), false);
    }
}
