//! Test fixture: a manager with scripted servers, a gateway in front of it, and a socket in front of that.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use toolrack_client::{ClientHandler, EraChoice, McpClient, SamplingError};
use toolrack_config::McpServerConfig;
use toolrack_gateway::{Gateway, HttpGateway, HttpGatewayOptions, Scope, ServerRequestRouter};
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_manager::McpManager;
use toolrack_mcp::{
    ClientCapabilities, Content, Elicitation, ElicitationCapability, ElicitationResult, LogMessage,
    Role, Root, RootsCapability, SamplingCapability, SamplingParams, SamplingResult,
};
use toolrack_stdio::{Guardian, StdioOptions};
use toolrack_testkit::{Journal, JournalEvent, eventually_async, program};
use toolrack_transport::BoxFuture;

/// Long enough for a busy machine, short enough for a test.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A gateway with its router and its manager.
pub(crate) struct Fixture {
    pub(crate) manager: Arc<McpManager>,
    pub(crate) router: Arc<ServerRequestRouter>,
    pub(crate) gateway: Gateway,
}

/// A gateway on a socket.
pub(crate) struct HttpFixture {
    pub(crate) endpoint: HttpGateway,
    pub(crate) address: String,
    _serving: JoinSet<()>,
}

/// Config of a scripted server with these arguments.
pub(crate) fn scripted(name: &str, args: &[&str]) -> McpServerConfig {
    McpServerConfig::stdio(name, program("scripted-server").display().to_string(), args)
}

impl Fixture {
    /// Connects all servers and creates a gateway.
    pub(crate) async fn start(configs: Vec<McpServerConfig>, scope: Scope) -> Self {
        let fixture = Self::new(configs, scope);
        for server in fixture.manager.connect_all().await.unwrap() {
            assert!(server.is_connected(), "{}: {}", server.name(), server.state());
        }
        fixture
    }

    /// Creates a gateway without connecting its servers.
    pub(crate) fn new(configs: Vec<McpServerConfig>, scope: Scope) -> Self {
        let router = ServerRequestRouter::new();
        let guardian = Guardian::Program(program("toolrack-guard"));
        let builder = McpManager::builder()
            .stdio(StdioOptions { guardian, ..StdioOptions::default() })
            .ready_wait(TIMEOUT)
            .limits(ServerRequestRouter::limits())
            .handler(Arc::clone(&router) as Arc<dyn ClientHandler>);
        let manager = Arc::new(builder.build(configs));
        let gateway = Gateway::new(Arc::clone(&manager), Arc::clone(&router), scope);
        Self { manager, router, gateway }
    }

    pub(crate) async fn close(self) {
        self.gateway.close().await;
        self.manager.close().await;
    }
}

impl HttpFixture {
    pub(crate) async fn start(gateway: &Gateway) -> Self {
        Self::with_options(gateway, HttpGatewayOptions::default()).await
    }

    pub(crate) async fn with_options(gateway: &Gateway, options: HttpGatewayOptions) -> Self {
        let endpoint = HttpGateway::with_options(gateway.clone(), options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, endpoint.clone()));
        Self { endpoint, address, _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Connects a client of this era.
    pub(crate) async fn client(&self, era: EraChoice, user: &Arc<TestUser>) -> McpClient {
        let handler = Arc::clone(user) as Arc<dyn ClientHandler>;
        let builder = McpClient::builder("gateway").era(era).handler(handler);
        let definition = HttpServerDef::new(self.url());
        builder.connect_http(definition, HttpOptions::default()).await.unwrap()
    }
}

async fn serve(listener: TcpListener, endpoint: HttpGateway) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let endpoint = endpoint.clone();
        connections.spawn(async move {
            let service = service_fn(|request| {
                let endpoint = endpoint.clone();
                async move { Ok::<_, std::convert::Infallible>(endpoint.handle(request).await) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // Some tests disconnect in the middle of a response.
            connection.await.unwrap_or_default();
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Client handler that accepts every server request and records what it gets.
#[derive(Default)]
pub(crate) struct TestUser {
    /// Text of its sampling results, if not the default.
    pub(crate) name: Option<&'static str>,
    /// Whether it supports URL elicitation.
    pub(crate) opens_pages: bool,
    pub(crate) records: Mutex<Vec<String>>,
}

impl TestUser {
    pub(crate) fn record(&self, text: String) {
        self.records.lock().unwrap().push(text);
    }

    pub(crate) fn has_recorded(&self, text: &str) -> bool {
        self.records.lock().unwrap().iter().any(|record| record == text)
    }
}

impl ClientHandler for TestUser {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            roots: Some(RootsCapability { list_changed: true }),
            sampling: Some(SamplingCapability::default()),
            elicitation: Some(ElicitationCapability { form: true, url: self.opens_pages }),
            ..ClientCapabilities::default()
        }
    }

    fn elicit<'a>(&'a self, _: &'a str, question: Elicitation) -> BoxFuture<'a, ElicitationResult> {
        self.record(format!("asked {}", question.message()));
        if let Elicitation::Url(page) = question {
            self.record(format!("page {}", page.url));
            return Box::pin(async { ElicitationResult::Accept { content: None } });
        }
        let content = serde_json::from_str(r#"{"name":"Ada"}"#).unwrap();
        Box::pin(async { ElicitationResult::Accept { content: Some(content) } })
    }

    fn sample<'a>(
        &'a self,
        _: &'a str,
        params: SamplingParams,
    ) -> BoxFuture<'a, Result<SamplingResult, SamplingError>> {
        let prompt = params.system_prompt.unwrap_or_default();
        self.record(format!("sampled {} {prompt}", params.max_tokens));
        let text = self.name.unwrap_or("42").to_owned();
        Box::pin(async {
            Ok(SamplingResult {
                role: Role::Assistant,
                content: vec![Content::from_text(text)],
                model: "m1".to_owned(),
                stop_reason: None,
            })
        })
    }

    fn roots<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Vec<Root>> {
        Box::pin(async { vec![Root::new("file:///work".to_owned(), None).unwrap()] })
    }

    fn log(&self, message: &LogMessage) {
        let logger = message.logger.as_deref().unwrap_or_default();
        let level = serde_json::to_value(message.level).unwrap();
        let level = level.as_str().unwrap();
        self.record(format!("log {level} {logger} {}", message.data.get()));
    }
}

pub(crate) async fn eventually(what: &str, mut fact: impl FnMut() -> bool) {
    eventually_async(TIMEOUT, what, tokio::time::sleep, async || fact()).await;
}

/// Number of cancelled calls in a server's journal.
pub(crate) fn n_cancelled(journal: &Path) -> usize {
    let journal = Journal::read(journal).unwrap();
    journal.records.iter().filter(|record| record.event == JournalEvent::Cancelled).count()
}
