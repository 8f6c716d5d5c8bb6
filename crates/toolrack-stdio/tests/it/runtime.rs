//! A transport whose runtime is dropped fails its requests instead of waiting forever.

use std::time::Duration;

use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use toolrack_testkit::Marker;
use toolrack_transport::{CloseReason, Delivery, Transport as _};

use crate::fixture::{call, guarded, initialized, scripted_server};

/// Much shorter than the timeouts of the calls, and long enough for a busy machine.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn transport_closes_with_its_runtime() {
    let marker = Marker::new();
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let server = scripted_server(&marker, &["--plan", "call=hang"]);
    let transport = first.block_on(initialized(&server, guarded()));
    second.block_on(async {
        let waiting = call(&transport, "echo", json!({"text": "one"}), 600_000);
        let drop_first = async {
            tokio::task::yield_now().await;
            first.shutdown_background();
        };
        let (waiting, ()) =
            timeout(SOON, async { tokio::join!(waiting, drop_first) }).await.unwrap();
        let error = waiting.unwrap_err();
        let reason = "IO error: the Tokio runtime of this transport was dropped";
        assert_eq!(error.to_string(), reason);

        let late = call(&transport, "echo", json!({"text": "two"}), 600_000);
        let error = timeout(SOON, late).await.unwrap().unwrap_err();
        assert_eq!(error.delivery, Delivery::NotSent, "{error}");
        // All tasks are gone, so the close does not wait either.
        let reason = timeout(SOON, transport.close()).await.unwrap();
        assert!(matches!(reason, CloseReason::Failed(_)), "{reason}");
    });
    marker.assert_no_processes_left(SOON);
}
