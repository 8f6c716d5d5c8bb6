//! A line whose runtime is gone.

use std::error::Error as _;

use serde_json::json;
use tokio::runtime::Runtime;
use toolrack_transport::{Delivery, Line as _};

use crate::server::{Said, Seen, Server};
use crate::stage::Stage;

#[test]
fn a_line_ends_with_the_runtime_in_which_it_was_opened() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let script = |seen: &Seen| Said::result(seen, json!({"ok": true}));
    let server = second.block_on(Server::start(script));
    let stage = first.block_on(Stage::modern(&server));
    second.block_on(stage.ask("tools/list")).unwrap();
    drop(first);
    let failure = second.block_on(stage.ask("tools/list")).unwrap_err();
    assert_eq!(failure.delivery, Delivery::NotSent);
    let reason = failure.source().unwrap().to_string();
    assert_eq!(reason, "the runtime in which it was opened has ended");
    assert_eq!(stage.diary.read().len(), 1, "{:?}", stage.diary.read());
    second.block_on(stage.line.close());
}
