//! A conversation in memory, with every way to stop waiting.

use std::sync::Mutex;
use std::time::Duration;

use crate::NoParams;

use super::*;
use crate::error::Delivery;
use crate::timeout::Patience;

#[derive(Default)]
struct Endings(Mutex<Vec<String>>);

impl Inbox for Endings {
    fn request(&self, _id: RequestId, _method: &str, _params: Option<RawJson>) {}

    fn notification(&self, _method: &str, _params: Option<RawJson>) {}

    fn ended(&self, ending: &Ending) {
        self.0.lock().unwrap().push(ending.to_string());
    }
}

fn ask(method: &str) -> Outgoing<'_> {
    Outgoing {
        method,
        params: &NoParams,
        patience: Patience::exactly(Duration::from_millis(100)),
        abandon: Abandon::Tell,
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered_out_of_order() {
    let (line, mut peer) = pair(Arc::new(Endings::default()));
    let server = async {
        assert_eq!(peer.hear().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
        assert_eq!(peer.hear().await.unwrap(), r#"{"jsonrpc":"2.0","id":2,"method":"b"}"#);
        peer.say(r#"{"jsonrpc":"2.0","id":2,"result":{"b":2}}"#);
        peer.say("noise");
        peer.say(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#);
    };
    let (first, second, ()) = tokio::join!(line.request(ask("a")), line.request(ask("b")), server);
    assert_eq!(first.unwrap().as_bytes(), br#"{"a":1}"#);
    assert_eq!(second.unwrap().as_bytes(), br#"{"b":2}"#);
    assert_eq!(line.diagnosis().unreadable, 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_discarded_and_the_server_told() {
    let (line, mut peer) = pair(Arc::new(Endings::default()));
    let failure = line.request(ask("slow")).await.unwrap_err();
    assert!(matches!(failure.error, TransportError::Timeout(100)), "{failure:?}");
    assert_eq!(failure.delivery, Delivery::Unknown);
    peer.say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(peer.hear().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"slow"}"#);
    assert_eq!(
        peer.hear().await.unwrap(),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"the caller stopped waiting"}}"#
    );
    assert_eq!(line.diagnosis().late, 1);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_request_is_abandoned_without_a_word() {
    let (line, mut peer) = pair(Arc::new(Endings::default()));
    let request = Outgoing { abandon: Abandon::Quietly, ..ask("initialize") };
    assert!(line.request(request).await.is_err());
    drop(line);
    assert_eq!(peer.hear().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#);
    assert_eq!(peer.hear().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_full_line_times_out_without_sending() {
    let (line, _peer) = pair(Arc::new(Endings::default()));
    for _ in 0..CAPACITY {
        line.notify("note", &NoParams).await.unwrap();
    }
    let failure = line.request(ask("a")).await.unwrap_err();
    assert_eq!(failure.delivery, Delivery::NotSent);
    assert!(matches!(failure.error, TransportError::Timeout(100)));
    let refused = line.answer(&RequestId::from(1), Err(&JsonRpcError::new(1, ""))).unwrap_err();
    assert!(matches!(refused.error, TransportError::Clogged { .. }));
}

#[tokio::test(start_paused = true)]
async fn everyone_learns_how_the_line_ended() {
    let endings = Arc::new(Endings::default());
    let (line, peer) = pair(Arc::clone(&endings) as Arc<dyn Inbox>);
    let end = async {
        tokio::task::yield_now().await;
        drop(peer);
    };
    let (outcome, ()) = tokio::join!(line.request(ask("a")), end);
    assert!(matches!(outcome.unwrap_err().error, TransportError::StdoutNotAvailable));
    let refused = line.request(ask("b")).await.unwrap_err();
    assert_eq!(refused.delivery, Delivery::NotSent);
    assert_eq!(line.close().await.to_string(), "the server closed its output");
    assert_eq!(*endings.0.lock().unwrap(), ["the server closed its output"]);
}
