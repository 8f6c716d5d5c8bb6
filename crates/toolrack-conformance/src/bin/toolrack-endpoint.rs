//! Gateway program for conformance suites and other MCP clients: over HTTP on this machine, or over stdio.
//!
//! ```text
//! toolrack-endpoint [--http ADDRESS] [--raw NAME] --server NAME COMMAND [ARGUMENT …] [--server …]
//! ```
//!
//! With `--http` it says `listening URL` and ends with its input; `--raw` shows one server under its own names.

use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use toolrack_client::ClientHandler;
use toolrack_config::McpServerConfig;
use toolrack_gateway::{Gateway, HttpGateway, Scope, ServerRequestRouter, stdio_streams};
use toolrack_manager::McpManager;

/// Time limit for slow servers to connect before the endpoint opens.
const READY: Duration = Duration::from_secs(30);

/// Command-line options.
#[derive(Debug, Default)]
struct Options {
    http: Option<String>,
    raw: Option<String>,
    servers: Vec<McpServerConfig>,
}

fn main() -> ExitCode {
    toolrack_stdio::init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let options = Options::read(std::env::args().skip(1))?;
    tokio::runtime::Runtime::new()?.block_on(serve(options))
}

async fn serve(options: Options) -> Result<()> {
    let switchboard = ServerRequestRouter::new();
    let handler = Arc::clone(&switchboard) as Arc<dyn ClientHandler>;
    let builder = McpManager::builder().handler(handler).limits(ServerRequestRouter::limits());
    let manager = builder.ready_wait(READY).build(options.servers);
    for server in manager.connect_all().await? {
        if !server.is_connected() {
            print_error(&format!("{}: {}", server.name(), server.state()));
        }
    }
    let manager = Arc::new(manager);
    let scope = options.raw.map_or(Scope::All, Scope::Server);
    let gateway = Gateway::new(Arc::clone(&manager), switchboard, scope);
    let outcome = match options.http {
        Some(address) => listen(&gateway, &address).await,
        None => {
            let (input, output) = stdio_streams();
            let served = gateway.serve_stdio(input, output).await;
            served.context("the client disconnected")
        }
    };
    gateway.close().await;
    manager.close().await;
    outcome
}

async fn listen(gateway: &Gateway, address: &str) -> Result<()> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    print_line(&format!("listening http://{}/mcp", listener.local_addr()?));
    let endpoint = HttpGateway::new(gateway.clone());
    let mut connections = JoinSet::new();
    let mut input = tokio::io::stdin();
    let mut rest = [0; 1024];
    loop {
        let stream = tokio::select! {
            read = input.read(&mut rest) => match read {
                Ok(1..) => continue,
                Ok(0) | Err(_) => return Ok(()),
            },
            accepted = listener.accept() => accepted?.0,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let endpoint = endpoint.clone();
        connections.spawn(async move {
            let service = service_fn(|request| {
                let endpoint = endpoint.clone();
                async move { Ok::<_, Infallible>(endpoint.handle(request).await) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A client may disconnect in the middle of a request.
            connection.await.unwrap_or_default();
        });
    }
}

impl Options {
    fn read(args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.peekable();
        while let Some(option) = args.next() {
            let value = args.next().with_context(|| format!("`{option}` needs a value"))?;
            match option.as_str() {
                "--http" => options.http = Some(value),
                "--raw" => options.raw = Some(value),
                "--server" => {
                    let command = args.next().context("`--server` needs a name and a command")?;
                    let mut rest = Vec::new();
                    while let Some(word) = args.next_if(|word| word != "--server") {
                        rest.push(word);
                    }
                    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
                    options.servers.push(McpServerConfig::stdio(value, command, &rest));
                }
                _ => bail!("unknown option `{option}`; expected --http, --raw or --server"),
            }
        }
        Ok(options)
    }
}

#[expect(clippy::print_stdout, reason = "the program that starts the endpoint reads its address")]
fn print_line(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "a test program reports errors on stderr")]
fn print_error(text: &str) {
    eprintln!("{text}");
}
