//! Chaos proxy in front of a real server: each impairment, healing, and counting.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use serde_json::json;
use toolrack_testkit::eventually;
use toolrack_testkit::proxy::{ChaosProxy, ProxyPlan};

use crate::http_client::Http;
use crate::http_peer::{HttpPeer, HttpReply, read_reply};
use crate::peer::TIMEOUT;

struct Network {
    peer: HttpPeer,
    proxy: ChaosProxy,
}

impl Network {
    fn new(text: &str) -> Self {
        let peer = HttpPeer::modern(&[]);
        let proxy = ChaosProxy::start(peer.server.address(), plan(text), 7).expect("it listens");
        Self { peer, proxy }
    }

    /// Calls `big` through the proxy, on a new connection.
    fn call(&mut self) -> std::io::Result<HttpReply> {
        let mut http = self.begin()?;
        read_reply(&mut http)
    }

    fn begin(&mut self) -> std::io::Result<Http> {
        let mut http = Http::connect(self.proxy.address())?;
        self.send(&mut http)?;
        Ok(http)
    }

    fn send(&mut self, http: &mut Http) -> std::io::Result<()> {
        let params = json!({ "name": "big", "arguments": { "bytes": 5000 } });
        let message = self.peer.build_request("tools/call", params);
        let headers = self.peer.headers(&message);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(a, b)| (*a, b.as_str())).collect();
        http.send("POST", "/mcp", &headers, message.to_string().as_bytes())
    }
}

fn plan(text: &str) -> ProxyPlan {
    ProxyPlan::parse(text).expect("a plan")
}

#[test]
fn empty_proxy_plan_forwards_unchanged() {
    let mut network = Network::new("");
    for _ in 0..3 {
        assert_eq!(network.call().expect("an answer").text().len(), 5000);
    }
    assert_eq!(network.proxy.n_connections(), 3);
    eventually(TIMEOUT, "the connections end", || network.proxy.n_open() == 0);
}

#[test]
fn impairments_apply_as_planned_and_can_be_removed() {
    let check = |text: &str, expected: ErrorKind| {
        let mut network = Network::new(text);
        let error = network.call().expect_err(text);
        assert_eq!(error.kind(), expected, "{text}: {error}");
        network.proxy.heal().expect("healed");
        assert_eq!(network.call().expect("an answer").text().len(), 5000, "{text}");
    };
    check("cut(0)", ErrorKind::UnexpectedEof);
    check("cut(1000)", ErrorKind::UnexpectedEof);
    check("reset(1000)", ErrorKind::ConnectionReset);
    check("refuse", ErrorKind::ConnectionRefused);
}

#[test]
fn slow_and_late_networks_still_deliver() {
    let mut network = Network::new("delay(30ms,20ms); slow(50KiB)");
    assert_eq!(network.call().expect("an answer").text().len(), 5000);
}

#[test]
fn one_byte_can_be_corrupted() {
    let mut network = Network::new("corrupt(2000)");
    let answer = network.call().expect("an answer");
    let text = answer.text();
    assert_eq!((text.len(), text.matches('x').count()), (5000, 4999));
}

#[test]
fn black_hole_drops_everything_until_healed() {
    let mut network = Network::new("hole");
    let http = network.begin().expect("it accepts");
    http.stream().set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let read = http.stream().read(&mut [0]);
    assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    network.proxy.heal().expect("healed");
    assert_eq!(network.call().expect("an answer").text().len(), 5000);
}

#[test]
fn new_plan_applies_to_open_connections() {
    let mut network = Network::new("");
    let mut http = network.begin().expect("sent");
    read_reply(&mut http).expect("an answer");
    network.proxy.set_plan(plan("cut(100)")).expect("set");
    network.send(&mut http).expect("sent");
    assert_eq!(read_reply(&mut http).expect_err("cut").kind(), ErrorKind::UnexpectedEof);

    network.proxy.heal().expect("healed");
    let mut http = network.begin().expect("sent");
    read_reply(&mut http).expect("an answer");
    network.proxy.reset_all();
    assert_eq!(read_reply(&mut http).expect_err("reset").kind(), ErrorKind::ConnectionReset);
    let address = network.proxy.address();
    drop(network.proxy);
    assert_eq!(Http::connect(address).expect_err("closed").kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn chance_impairs_some_connections() {
    let mut network = Network::new("cut(0); chance(50)");
    let outcomes: Vec<bool> = (0..30).map(|_| network.call().is_ok()).collect();
    assert!(outcomes.contains(&true) && outcomes.contains(&false), "{outcomes:?}");
}

#[test]
fn healed_proxy_accepts_connections_and_counts_them() {
    let mut network = Network::new("refuse");
    let address = network.proxy.address();
    assert_eq!(Http::connect(address).expect_err("refused").kind(), ErrorKind::ConnectionRefused);
    network.proxy.heal().expect("healed");
    assert_eq!((network.proxy.n_connections(), network.proxy.n_open()), (0, 0));
    let mut http = Http::connect(address).expect("it listens");
    network.send(&mut http).expect("sent");
    assert_eq!(read_reply(&mut http).expect("an answer").text().len(), 5000);
    assert_eq!((network.proxy.n_connections(), network.proxy.n_open()), (1, 1));
}
