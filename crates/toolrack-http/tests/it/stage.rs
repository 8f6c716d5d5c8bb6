//! What tests of the line share: an inbox that writes down, short ways to ask, and waiting for facts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use toolrack_http::{HttpLine, HttpOptions, HttpServerDef};
use toolrack_testkit::eventually_async;
use toolrack_transport::{
    Abandon, Delivery, Dialect, Ending, Inbox, Line, LineError, Outgoing, Patience, TransportError,
};
use toolrack_transport::{NoParams, Params, RawJson, RequestId};

use crate::server::{Said, Seen, Server};

pub(crate) const MODERN: Dialect = Dialect::Stateless("2026-07-28");
pub(crate) const VERSION: &str = "2025-11-25";
/// For what comes soon, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Writes down what the server said unasked.
#[derive(Default)]
pub(crate) struct Diary(Mutex<Vec<String>>);

impl Diary {
    pub(crate) fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn write(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }
}

impl Inbox for Diary {
    fn request(&self, id: RequestId, method: &str, _params: Option<RawJson>) {
        self.write(format!("request {id} {method}"));
    }

    fn request_about(&self, about: u64, id: RequestId, method: &str, _params: Option<RawJson>) {
        self.write(format!("request {id} {method} about {about}"));
    }

    fn notification(&self, method: &str, params: Option<RawJson>) {
        let params = params.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        self.write(format!("notification {method} {}", params.unwrap_or_default()));
    }

    fn renewed(&self) {
        self.write("renewed".to_owned());
    }

    fn unreachable(&self, reason: &TransportError) {
        self.write(reason.to_string());
    }

    fn ended(&self, ending: &Ending) {
        self.write(format!("ended: {ending}"));
    }
}

/// A line with its diary.
pub(crate) struct Stage {
    pub(crate) line: HttpLine,
    pub(crate) diary: Arc<Diary>,
}

impl Stage {
    pub(crate) async fn open(url: &str, options: HttpOptions) -> Self {
        Self::open_definition(&HttpServerDef::new(url), options).await
    }

    pub(crate) async fn open_definition(definition: &HttpServerDef, options: HttpOptions) -> Self {
        let diary = Arc::new(Diary::default());
        let inbox = Arc::clone(&diary) as Arc<dyn Inbox>;
        let line = HttpLine::open(definition, options, inbox).await.unwrap();
        Self { line, diary }
    }

    /// A line that speaks the stateless dialect.
    pub(crate) async fn modern(server: &Server) -> Self {
        let stage = Self::open(&server.url, HttpOptions::default()).await;
        stage.line.speak(MODERN);
        stage
    }

    /// A line in a session.
    pub(crate) async fn greeted(server: &Server) -> Self {
        let stage = Self::open(&server.url, HttpOptions::default()).await;
        stage.greet().await;
        stage
    }

    pub(crate) async fn greet(&self) {
        self.line.speak(Dialect::Greeting);
        self.ask("initialize").await.unwrap();
        self.line.speak(Dialect::Session(VERSION));
        self.line.notify("notifications/initialized", &NoParams).await.unwrap();
    }

    pub(crate) async fn ask(&self, method: &str) -> Result<Value, LineError> {
        self.ask_with(method, &Some(json!({"x": 1})), SOON).await
    }

    pub(crate) async fn ask_with(
        &self,
        method: &str,
        params: &dyn Params,
        patience: Duration,
    ) -> Result<Value, LineError> {
        let patience = Patience::exactly(patience);
        let abandon = Abandon::Tell;
        let outcome = self.line.request(Outgoing { method, params, patience, abandon }).await;
        outcome.map(|raw| raw.decode().unwrap())
    }

    /// How a request failed, and how far it had come.
    #[track_caller]
    pub(crate) fn failure(outcome: Result<Value, LineError>) -> (String, Delivery) {
        let failure = outcome.expect_err("a failure");
        (failure.to_string(), failure.delivery)
    }
}

/// A call of a tool with arguments that are said in headers too.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) mirrored: &'static [(&'static str, &'static str)],
}

impl Params for Call {
    fn write(&self, _id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        serde_json::to_writer(out, &json!({"name": self.name}))
    }

    fn subject(&self) -> Option<&str> {
        Some(self.name)
    }

    fn mirror(&self, tell: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.mirrored {
            tell(name, value);
        }
    }
}

pub(crate) async fn until(what: &str, mut fact: impl FnMut() -> bool) {
    eventually_async(SOON, what, sleep, async || fact()).await;
}

/// What a friendly server of 2025 says to greetings, and to whatever needs no thought.
pub(crate) fn courtesy(seen: &Seen, http_session_id: &str) -> Option<Said> {
    let answer = json!({"protocolVersion": VERSION, "capabilities": {}, "serverInfo": {}});
    Some(match seen.short().as_str() {
        "POST initialize" => Said::result(seen, answer).header("mcp-session-id", http_session_id),
        "GET" => Said::status(405),
        "DELETE" => Said::status(200),
        notification if notification.starts_with("POST notifications/") => Said::status(202),
        _ => return None,
    })
}
