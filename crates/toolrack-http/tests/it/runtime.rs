//! A transport whose runtime has shut down.

use serde_json::json;
use tokio::runtime::Runtime;
use toolrack_transport::{Delivery, Transport as _};

use crate::fixture::Fixture;
use crate::server::{Reply, SeenRequest, Server};

#[test]
fn transport_closes_with_its_runtime() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let script = |seen: &SeenRequest| Reply::result(seen, json!({"ok": true}));
    let server = second.block_on(Server::start(script));
    let fixture = first.block_on(Fixture::stateless(&server));
    second.block_on(fixture.request("tools/list")).unwrap();
    drop(first);
    let failure = second.block_on(fixture.request("tools/list")).unwrap_err();
    assert_eq!(failure.delivery, Delivery::NotSent);
    let reason = "IO error: the Tokio runtime of this transport was dropped";
    assert_eq!(failure.to_string(), reason);
    assert_eq!(fixture.handler.events().len(), 1, "{:?}", fixture.handler.events());
    second.block_on(fixture.transport.close());
}
