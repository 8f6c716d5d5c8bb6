//! An HTTP server on loopback that answers as a test's own function says, and remembers what it saw.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Collected};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::{Sleep, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// What a server saw.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) verb: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) version: http::Version,
}

/// What a server says.
pub(crate) struct Said {
    status: StatusCode,
    headers: HeaderMap,
    steps: VecDeque<Step>,
    delay: Duration,
}

pub(crate) enum Step {
    Say(Bytes),
    Pause(Duration),
    /// Say nothing more, and do not end.
    Hold,
    /// Break the connection.
    Cut,
    /// Ask every few milliseconds what there is to say, until the server is told to cut.
    Live(Box<dyn FnMut() -> Bytes + Send>),
}

type Script = dyn Fn(&Seen) -> Said + Send + Sync;

pub(crate) struct Server {
    pub(crate) url: String,
    state: Arc<State>,
    _stop: DropGuard,
}

struct State {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
    n_connections: AtomicUsize,
    /// Bodies that nobody read to their end.
    n_left: Arc<AtomicUsize>,
    /// How often live streams were cut.
    n_cuts: Arc<AtomicUsize>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// `POST tools/call`, `GET`, and so on.
    pub(crate) fn short(&self) -> String {
        format!("{} {}", self.verb, self.method()).trim_end().to_owned()
    }
}

impl Said {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            steps: VecDeque::new(),
            delay: Duration::ZERO,
        }
    }

    pub(crate) fn json(value: &Value) -> Self {
        Self::status(200).header("content-type", "application/json").say(value.to_string())
    }

    /// The usual answer.
    pub(crate) fn result(seen: &Seen, result: Value) -> Self {
        Self::json(&json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}))
    }

    pub(crate) fn error(status: u16, code: i64, message: &str) -> Self {
        let error = json!({"code": code, "message": message});
        let said = Self::json(&json!({"jsonrpc": "2.0", "id": null, "error": error}));
        Self { status: StatusCode::from_u16(status).unwrap(), ..said }
    }

    pub(crate) fn events() -> Self {
        Self::status(200).header("content-type", "text/event-stream")
    }

    pub(crate) fn event(self, value: &Value) -> Self {
        self.say(format!("event: message\ndata: {value}\n\n"))
    }

    /// The answer as an event.
    pub(crate) fn event_result(self, seen: &Seen, result: Value) -> Self {
        let id = &seen.body["id"];
        self.event(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).unwrap();
        self.headers.append(name, HeaderValue::try_from(value).unwrap());
        self
    }

    pub(crate) fn say(self, bytes: impl Into<Bytes>) -> Self {
        self.step(Step::Say(bytes.into()))
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push_back(step);
        self
    }

    /// Waits before it says anything.
    pub(crate) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&Seen) -> Said + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, script)
    }

    pub(crate) fn on(
        listener: TcpListener,
        script: impl Fn(&Seen) -> Said + Send + Sync + 'static,
    ) -> Self {
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (server, state) = Self::new(url, script);
        let serving = Arc::clone(&state);
        state.employ(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                serving.serve(stream, http::Version::HTTP_11);
            }
        });
        server
    }

    /// A server behind TLS, which speaks the first of `protocols` that the client offers.
    pub(crate) async fn start_tls(
        config: rustls::ServerConfig,
        script: impl Fn(&Seen) -> Said + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/mcp", listener.local_addr().unwrap().port());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (server, state) = Self::new(url, script);
        let serving = Arc::clone(&state);
        state.employ(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let version = match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => http::Version::HTTP_2,
                    _ => http::Version::HTTP_11,
                };
                serving.serve(stream, version);
            }
        });
        server
    }

    #[cfg(unix)]
    pub(crate) fn start_unix(
        path: &std::path::Path,
        script: impl Fn(&Seen) -> Said + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::UnixListener::bind(path).unwrap();
        let (server, state) = Self::new(format!("unix:{}:/mcp", path.display()), script);
        let serving = Arc::clone(&state);
        state.employ(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.serve(stream, http::Version::HTTP_11);
            }
        });
        server
    }

    fn new(
        url: String,
        script: impl Fn(&Seen) -> Said + Send + Sync + 'static,
    ) -> (Self, Arc<State>) {
        let stop = CancellationToken::new();
        let state = Arc::new(State {
            script: Box::new(script),
            seen: Mutex::default(),
            n_connections: AtomicUsize::new(0),
            n_left: Arc::default(),
            n_cuts: Arc::default(),
            stop: stop.clone(),
            tasks: TaskTracker::new(),
        });
        (Self { url, state: Arc::clone(&state), _stop: stop.drop_guard() }, state)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// What came, in short.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.seen().iter().map(Seen::short).collect()
    }

    pub(crate) fn count(&self, short: &str) -> usize {
        self.heard().iter().filter(|it| *it == short).count()
    }

    pub(crate) fn n_connections(&self) -> usize {
        self.state.n_connections.load(Ordering::SeqCst)
    }

    pub(crate) fn n_left(&self) -> usize {
        self.state.n_left.load(Ordering::SeqCst)
    }

    /// Ends every live stream that is open.
    pub(crate) fn cut_live(&self) {
        self.state.n_cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Stops listening and breaks every connection.
    pub(crate) async fn stop(&self) {
        self.state.stop.cancel();
        self.state.tasks.close();
        self.state.tasks.wait().await;
    }
}

impl State {
    fn employ(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = task => {}
                () = stop.cancelled() => {}
            }
        });
    }

    fn serve(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        version: http::Version,
    ) {
        self.n_connections.fetch_add(1, Ordering::SeqCst);
        let state = Arc::clone(self);
        let service = service_fn(move |request| answer(Arc::clone(&state), request));
        let io = TokioIo::new(stream);
        self.employ(async move {
            // A client that goes away is no failure of the server.
            if version == http::Version::HTTP_2 {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _gone = builder.serve_connection(io, service).await;
            } else {
                let builder = hyper::server::conn::http1::Builder::new();
                let _gone = builder.serve_connection(io, service).await;
            }
        });
    }
}

async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Playing>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let seen = Seen {
        verb: parts.method.to_string(),
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        version: parts.version,
    };
    state.seen.lock().unwrap().push(seen.clone());
    let said = (state.script)(&seen);
    let (n_left, n_cuts) = (Arc::clone(&state.n_left), Arc::clone(&state.n_cuts));
    let begun = n_cuts.load(Ordering::SeqCst);
    let mut response =
        Response::new(Playing { steps: said.steps, pause: None, n_left, n_cuts, begun });
    *response.status_mut() = said.status;
    *response.headers_mut() = said.headers;
    sleep(said.delay).await;
    Ok(response)
}

/// A body that follows its steps.
struct Playing {
    steps: VecDeque<Step>,
    pause: Option<Pin<Box<Sleep>>>,
    n_left: Arc<AtomicUsize>,
    n_cuts: Arc<AtomicUsize>,
    /// How often streams had been cut when this one began.
    begun: usize,
}

impl Body for Playing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if let Some(pause) = &mut self.pause {
                std::task::ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            let is_cut = self.n_cuts.load(Ordering::SeqCst) != self.begun;
            if let Some(Step::Live(ask)) = self.steps.front_mut() {
                let said = ask();
                self.pause = Some(Box::pin(sleep(Duration::from_millis(5))));
                if is_cut {
                    return Poll::Ready(None);
                }
                if said.is_empty() {
                    continue;
                }
                return Poll::Ready(Some(Ok(Frame::data(said))));
            }
            if matches!(self.steps.front(), Some(Step::Hold)) {
                return Poll::Pending;
            }
            return Poll::Ready(match self.steps.pop_front() {
                Some(Step::Say(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(Step::Cut) => Some(Err(io::Error::other("cut"))),
                Some(Step::Pause(pause)) => {
                    self.pause = Some(Box::pin(sleep(pause)));
                    continue;
                }
                Some(Step::Hold | Step::Live(_)) | None => None,
            });
        }
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty() && self.pause.is_none()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        let is_plain = self.steps.iter().all(|step| matches!(step, Step::Say(_)));
        let n_bytes = self.steps.iter().map(|step| match step {
            Step::Say(bytes) => bytes.len() as u64,
            _ => 0,
        });
        // Only a body in one piece says its length, so that both ways are tried.
        if is_plain && self.steps.len() < 2 {
            return hyper::body::SizeHint::with_exact(n_bytes.sum());
        }
        hyper::body::SizeHint::default()
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        if !self.steps.is_empty() || self.pause.is_some() {
            self.n_left.fetch_add(1, Ordering::SeqCst);
        }
    }
}
