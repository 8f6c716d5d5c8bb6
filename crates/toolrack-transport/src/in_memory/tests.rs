//! Requests, timeouts, cancellation and close over the in-memory transport.

use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use crate::encode::NoParams;
use crate::error::Delivery;
use crate::json_rpc::RawJson;
use crate::timeout::RequestTimeout;

#[derive(Default)]
struct CloseRecorder(Mutex<Vec<String>>);

impl IncomingHandler for CloseRecorder {
    fn on_request(&self, _id: RequestId, _method: &str, _params: Option<RawJson>) {}

    fn on_notification(&self, _method: &str, _params: Option<RawJson>) {}

    fn on_close(&self, reason: &CloseReason) {
        self.0.lock().push(reason.to_string());
    }
}

fn request(method: &str) -> OutgoingRequest<'_> {
    OutgoingRequest {
        method,
        params: &NoParams,
        timeout: RequestTimeout::fixed(Duration::from_millis(100)),
        on_cancel: OnCancel::Notify,
    }
}

#[tokio::test(start_paused = true)]
async fn responses_may_arrive_out_of_order() {
    let (transport, mut peer) = in_memory_pair(Arc::new(CloseRecorder::default()));
    let server = async {
        assert_eq!(peer.recv().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
        assert_eq!(peer.recv().await.unwrap(), r#"{"jsonrpc":"2.0","id":2,"method":"b"}"#);
        peer.send(r#"{"jsonrpc":"2.0","id":2,"result":{"b":2}}"#);
        peer.send("noise");
        peer.send(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#);
    };
    let (first, second, ()) =
        tokio::join!(transport.request(request("a")), transport.request(request("b")), server);
    assert_eq!(first.unwrap().as_bytes(), br#"{"a":1}"#);
    assert_eq!(second.unwrap().as_bytes(), br#"{"b":2}"#);
    assert_eq!(transport.stats().unreadable, 1);
}

#[tokio::test(start_paused = true)]
async fn late_response_is_discarded_and_cancelled() {
    let (transport, mut peer) = in_memory_pair(Arc::new(CloseRecorder::default()));
    let error = transport.request(request("slow")).await.unwrap_err();
    assert!(matches!(error.error, TransportError::Timeout(100)), "{error:?}");
    assert_eq!(error.delivery, Delivery::Unknown);
    peer.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(peer.recv().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"slow"}"#);
    assert_eq!(
        peer.recv().await.unwrap(),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"the caller stopped waiting"}}"#
    );
    assert_eq!(transport.stats().late, 1);
}

#[tokio::test(start_paused = true)]
async fn silent_request_sends_no_cancel_notification() {
    let (transport, mut peer) = in_memory_pair(Arc::new(CloseRecorder::default()));
    let request = OutgoingRequest { on_cancel: OnCancel::Silent, ..request("initialize") };
    assert!(transport.request(request).await.is_err());
    drop(transport);
    assert_eq!(peer.recv().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#);
    assert_eq!(peer.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn full_queue_times_out_without_sending() {
    let (transport, _peer) = in_memory_pair(Arc::new(CloseRecorder::default()));
    for _ in 0..CAPACITY {
        transport.notify("note", &NoParams).await.unwrap();
    }
    let error = transport.request(request("a")).await.unwrap_err();
    assert_eq!(error.delivery, Delivery::NotSent);
    assert!(matches!(error.error, TransportError::Timeout(100)));
    let rejected =
        transport.respond(&RequestId::from(1), Err(&JsonRpcError::new(1, ""))).unwrap_err();
    assert!(matches!(rejected.error, TransportError::QueueFull { .. }));
}

#[tokio::test(start_paused = true)]
async fn pending_requests_fail_with_the_close_reason() {
    let recorder = Arc::new(CloseRecorder::default());
    let (transport, peer) = in_memory_pair(Arc::clone(&recorder) as Arc<dyn IncomingHandler>);
    let close = async {
        tokio::task::yield_now().await;
        drop(peer);
    };
    let (outcome, ()) = tokio::join!(transport.request(request("a")), close);
    assert!(matches!(outcome.unwrap_err().error, TransportError::StdoutNotAvailable));
    let rejected = transport.request(request("b")).await.unwrap_err();
    assert_eq!(rejected.delivery, Delivery::NotSent);
    assert_eq!(transport.close().await.to_string(), "the server closed its output");
    assert_eq!(*recorder.0.lock(), ["the server closed its output"]);
}
