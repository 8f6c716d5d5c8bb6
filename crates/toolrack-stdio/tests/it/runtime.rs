//! A line whose runtime is gone: nobody waits for what cannot come any more.

use std::error::Error as _;
use std::time::Duration;

use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use toolrack_testkit::Marker;
use toolrack_transport::{Delivery, Ending, Line as _};

use crate::fixture::{call, greeted, guarded, scripted};

/// Much less than the calls would wait, and enough for a busy machine.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_line_ends_with_the_runtime_in_which_it_was_opened() {
    let marker = Marker::new();
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let server = scripted(&marker, &["--plan", "call=hang"]);
    let line = first.block_on(greeted(&server, guarded()));
    second.block_on(async {
        let waiting = call(&line, "echo", json!({"text": "one"}), 600_000);
        let drop_first = async {
            tokio::task::yield_now().await;
            first.shutdown_background();
        };
        let (waiting, ()) =
            timeout(SOON, async { tokio::join!(waiting, drop_first) }).await.unwrap();
        let error = waiting.unwrap_err();
        let reason = error.source().unwrap().to_string();
        assert_eq!(reason, "the runtime in which it was opened has ended");

        let late = call(&line, "echo", json!({"text": "two"}), 600_000);
        let error = timeout(SOON, late).await.unwrap().unwrap_err();
        assert_eq!(error.delivery, Delivery::NotSent, "{error}");
        // There is nobody to wait for either.
        let ending = timeout(SOON, line.close()).await.unwrap();
        assert!(matches!(ending, Ending::Failed(_)), "{ending}");
    });
    marker.assert_nobody_left(SOON);
}
