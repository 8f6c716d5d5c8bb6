//! Spans of calls as an OTLP collector receives them over HTTP.

use std::future::Future;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde_json::{Value, json};
use toolrack_testkit::Marker;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::fixture::{builder, scripted, with_subscriber};

/// HTTP client that opens a connection per request.
#[derive(Debug)]
struct PlainClient(SocketAddr);

impl PlainClient {
    fn post(&self, request: &Request<Bytes>) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(self.0)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: collector\r\nContent-Length: {}\r\n\r\n",
            request.uri().path(),
            request.body().len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(request.body())?;
        BufReader::new(stream).read_line(&mut String::new()).map(drop)
    }
}

impl HttpClient for PlainClient {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let sent = self.post(&request);
        Box::pin(async move { Ok(sent.map(|()| Response::new(Bytes::from_static(b"{}")))?) })
    }
}

/// OTLP collector: accepts requests until the receiver is dropped, and sends their bodies to it.
fn collector() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, bodies) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.strip_prefix("Content-Length: ") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            // Before the response, so that the body is there when the exporter returns.
            if sender.send(String::from_utf8(body).unwrap()).is_err() {
                return;
            }
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
            reader.get_mut().write_all(response).unwrap();
        }
    });
    (address, bodies)
}

/// All spans of all requests.
fn spans(bodies: &[String]) -> Vec<Value> {
    let mut spans = Vec::new();
    for body in bodies {
        let request: Value = serde_json::from_str(body).unwrap();
        for resource in request["resourceSpans"].as_array().unwrap() {
            for scope in resource["scopeSpans"].as_array().unwrap() {
                spans.extend(scope["spans"].as_array().unwrap().iter().cloned());
            }
        }
    }
    spans
}

fn attribute<'a>(span: &'a Value, name: &str) -> Option<&'a str> {
    let attributes = span["attributes"].as_array()?;
    attributes.iter().find(|attribute| attribute["key"] == name)?["value"]["stringValue"].as_str()
}

#[tokio::test]
async fn otlp_collector_receives_one_span_per_call() {
    let marker = Marker::new();
    let (address, bodies) = collector();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(PlainClient(address))
        .with_protocol(Protocol::HttpJson)
        .with_endpoint(format!("http://{address}/v1/traces"))
        .build()
        .unwrap();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(layer);
    let manager = builder().build(vec![scripted("one", &marker, &[])]);
    manager.connect_all().await.unwrap();
    manager.call("one_echo").args(json!({"text": "before"})).send().await.unwrap();
    let work = async {
        manager.call("one_echo").args(json!({"text": "s3cret-argument"})).send().await.unwrap();
        manager.call("one_fail").send().await.unwrap();
    };
    with_subscriber(subscriber, work).await;
    manager.close().await;
    provider.shutdown().unwrap();

    let bodies: Vec<String> = bodies.try_iter().collect();
    assert!(!bodies.iter().any(|body| body.contains("s3cret")), "an argument was exported");
    let spans = spans(&bodies);
    let named =
        |name: &str| -> Vec<&Value> { spans.iter().filter(|span| span["name"] == name).collect() };
    let [echo] = named("mcp.one.echo")[..] else { panic!("{spans:#?}") };
    let [fail] = named("mcp.one.fail")[..] else { panic!("{spans:#?}") };
    // In OTLP, span kind 3 is a client and status code 2 an error.
    assert_eq!((&echo["kind"], &fail["kind"]), (&json!(3), &json!(3)));
    assert_eq!(fail["status"]["code"], json!(2));
    assert_ne!(echo["status"]["code"], json!(2));
    assert_eq!(attribute(echo, "mcp.method.name"), Some("tools/call"));
    assert_eq!(attribute(echo, "gen_ai.tool.name"), Some("echo"));
    assert_eq!(attribute(echo, "error.type"), None);
    assert_eq!(attribute(fail, "error.type"), Some("tool_error"));
    marker.assert_no_processes_left(Duration::ZERO);
}
