//! Scripted HTTP server on loopback that records requests.

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

/// A recorded request.
#[derive(Debug, Clone)]
pub(crate) struct SeenRequest {
    pub(crate) http_method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) version: http::Version,
}

/// A scripted response.
pub(crate) struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    steps: VecDeque<Step>,
    delay: Duration,
}

pub(crate) enum Step {
    Send(Bytes),
    Pause(Duration),
    /// Send nothing more and keep the body open.
    Hold,
    /// Break the connection.
    Abort,
    /// Poll for data every few milliseconds, until the server closes live streams.
    Live(Box<dyn FnMut() -> Bytes + Send>),
}

type Script = dyn Fn(&SeenRequest) -> Reply + Send + Sync;

pub(crate) struct Server {
    pub(crate) url: String,
    state: Arc<State>,
    _stop: DropGuard,
}

struct State {
    script: Box<Script>,
    seen: Mutex<Vec<SeenRequest>>,
    n_connections: AtomicUsize,
    /// Bodies that the client did not read to their end.
    n_aborted_bodies: Arc<AtomicUsize>,
    /// How often live streams were closed.
    n_closes: Arc<AtomicUsize>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl SeenRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// `POST tools/call`, `GET`, and so on.
    pub(crate) fn short(&self) -> String {
        format!("{} {}", self.http_method, self.method()).trim_end().to_owned()
    }
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            steps: VecDeque::new(),
            delay: Duration::ZERO,
        }
    }

    pub(crate) fn json(value: &Value) -> Self {
        Self::status(200).header("content-type", "application/json").send(value.to_string())
    }

    /// A JSON-RPC result as JSON.
    pub(crate) fn result(seen: &SeenRequest, result: Value) -> Self {
        Self::json(&json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}))
    }

    pub(crate) fn error(status: u16, code: i64, message: &str) -> Self {
        let error = json!({"code": code, "message": message});
        let reply = Self::json(&json!({"jsonrpc": "2.0", "id": null, "error": error}));
        Self { status: StatusCode::from_u16(status).unwrap(), ..reply }
    }

    pub(crate) fn events() -> Self {
        Self::status(200).header("content-type", "text/event-stream")
    }

    pub(crate) fn event(self, value: &Value) -> Self {
        self.send(format!("event: message\ndata: {value}\n\n"))
    }

    /// A JSON-RPC result as an SSE event.
    pub(crate) fn event_result(self, seen: &SeenRequest, result: Value) -> Self {
        let id = &seen.body["id"];
        self.event(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).unwrap();
        self.headers.append(name, HeaderValue::try_from(value).unwrap());
        self
    }

    pub(crate) fn send(self, bytes: impl Into<Bytes>) -> Self {
        self.step(Step::Send(bytes.into()))
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push_back(step);
        self
    }

    /// Delays the response head.
    pub(crate) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

impl Server {
    pub(crate) async fn start(
        script: impl Fn(&SeenRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, script)
    }

    pub(crate) fn on(
        listener: TcpListener,
        script: impl Fn(&SeenRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (server, state) = Self::new(url, script);
        let serving = Arc::clone(&state);
        state.spawn(async move {
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
        script: impl Fn(&SeenRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/mcp", listener.local_addr().unwrap().port());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (server, state) = Self::new(url, script);
        let serving = Arc::clone(&state);
        state.spawn(async move {
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
        script: impl Fn(&SeenRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::UnixListener::bind(path).unwrap();
        let (server, state) = Self::new(format!("unix:{}:/mcp", path.display()), script);
        let serving = Arc::clone(&state);
        state.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.serve(stream, http::Version::HTTP_11);
            }
        });
        server
    }

    fn new(
        url: String,
        script: impl Fn(&SeenRequest) -> Reply + Send + Sync + 'static,
    ) -> (Self, Arc<State>) {
        let stop = CancellationToken::new();
        let state = Arc::new(State {
            script: Box::new(script),
            seen: Mutex::default(),
            n_connections: AtomicUsize::new(0),
            n_aborted_bodies: Arc::default(),
            n_closes: Arc::default(),
            stop: stop.clone(),
            tasks: TaskTracker::new(),
        });
        (Self { url, state: Arc::clone(&state), _stop: stop.drop_guard() }, state)
    }

    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        self.state.seen.lock().unwrap().clone()
    }

    /// The requests so far, in short.
    pub(crate) fn request_log(&self) -> Vec<String> {
        self.seen().iter().map(SeenRequest::short).collect()
    }

    pub(crate) fn count(&self, short: &str) -> usize {
        self.request_log().iter().filter(|line| *line == short).count()
    }

    pub(crate) fn n_connections(&self) -> usize {
        self.state.n_connections.load(Ordering::SeqCst)
    }

    pub(crate) fn n_aborted_bodies(&self) -> usize {
        self.state.n_aborted_bodies.load(Ordering::SeqCst)
    }

    /// Ends every live stream that is open.
    pub(crate) fn close_live_streams(&self) {
        self.state.n_closes.fetch_add(1, Ordering::SeqCst);
    }

    /// Stops listening and breaks every connection.
    pub(crate) async fn stop(&self) {
        self.state.stop.cancel();
        self.state.tasks.close();
        self.state.tasks.wait().await;
    }
}

impl State {
    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
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
        self.spawn(async move {
            // A client that disconnects is not an error of the server.
            if version == http::Version::HTTP_2 {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _closed = builder.serve_connection(io, service).await;
            } else {
                let builder = hyper::server::conn::http1::Builder::new();
                let _closed = builder.serve_connection(io, service).await;
            }
        });
    }
}

async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<ScriptedBody>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let seen = SeenRequest {
        http_method: parts.method.to_string(),
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        version: parts.version,
    };
    state.seen.lock().unwrap().push(seen.clone());
    let reply = (state.script)(&seen);
    let (n_aborted_bodies, n_closes) =
        (Arc::clone(&state.n_aborted_bodies), Arc::clone(&state.n_closes));
    let n_closes_at_start = n_closes.load(Ordering::SeqCst);
    let mut response = Response::new(ScriptedBody {
        steps: reply.steps,
        pause: None,
        n_aborted_bodies,
        n_closes,
        n_closes_at_start,
    });
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    sleep(reply.delay).await;
    Ok(response)
}

/// A body that follows its steps.
struct ScriptedBody {
    steps: VecDeque<Step>,
    pause: Option<Pin<Box<Sleep>>>,
    n_aborted_bodies: Arc<AtomicUsize>,
    n_closes: Arc<AtomicUsize>,
    /// `n_closes` when this body started.
    n_closes_at_start: usize,
}

impl Body for ScriptedBody {
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
            let is_closed = self.n_closes.load(Ordering::SeqCst) != self.n_closes_at_start;
            if let Some(Step::Live(ask)) = self.steps.front_mut() {
                let reply = ask();
                self.pause = Some(Box::pin(sleep(Duration::from_millis(5))));
                if is_closed {
                    return Poll::Ready(None);
                }
                if reply.is_empty() {
                    continue;
                }
                return Poll::Ready(Some(Ok(Frame::data(reply))));
            }
            if matches!(self.steps.front(), Some(Step::Hold)) {
                return Poll::Pending;
            }
            return Poll::Ready(match self.steps.pop_front() {
                Some(Step::Send(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(Step::Abort) => Some(Err(io::Error::other("cut"))),
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
        let is_plain = self.steps.iter().all(|step| matches!(step, Step::Send(_)));
        let n_bytes = self.steps.iter().map(|step| match step {
            Step::Send(bytes) => bytes.len() as u64,
            _ => 0,
        });
        // Only a body in one piece declares its length, so that both cases are tested.
        if is_plain && self.steps.len() < 2 {
            return hyper::body::SizeHint::with_exact(n_bytes.sum());
        }
        hyper::body::SizeHint::default()
    }
}

impl Drop for ScriptedBody {
    fn drop(&mut self) {
        if !self.steps.is_empty() || self.pause.is_some() {
            self.n_aborted_bodies.fetch_add(1, Ordering::SeqCst);
        }
    }
}
