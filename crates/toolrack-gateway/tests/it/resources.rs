//! Resources that no server lists: only their owners are asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolrack_client::{CallError, CallOptions, EraChoice, McpClient};
use toolrack_gateway::Scope;
use toolrack_mcp::{CompletionArgument, CompletionRef};

use crate::fixture::{Fixture, HttpFixture, TestUser, scripted};

/// Messages of the errors of a read, a subscription and a completion.
async fn refusals(client: &McpClient, uri: &str) -> [String; 3] {
    let message = |error: CallError| match error {
        CallError::Refused(error) | CallError::NoSuchResource { source: error, .. } => {
            error.message
        }
        error => format!("{error:?}"),
    };
    let read = client.read_resource(uri, &CallOptions::default()).await;
    let subscribed = client.subscribe_resource(uri).await;
    let argument = CompletionArgument { name: "text", value: "a" };
    let reference = CompletionRef::Resource { uri };
    let completed = client.complete(reference, argument, &BTreeMap::new()).await;
    [
        message(read.unwrap_err()),
        subscribed.map_or_else(message, |()| "subscribed".to_owned()),
        completed.map_or_else(message, |completion| format!("{completion:?}")),
    ]
}

/// A server without templates claims none; one that fails to list them may have one for any URI.
#[tokio::test(flavor = "multi_thread")]
async fn server_without_templates_is_not_waited_for() {
    for (plan, expected) in [
        ("templates=error(-32601)", "hello"),
        ("templates=error(-32603)", "some have not listed their resources yet"),
    ] {
        let configs = vec![scripted("one", &[]), scripted("two", &["--plan", plan])];
        let fixture = Fixture::start(configs, Scope::All).await;
        let http = HttpFixture::start(&fixture.gateway).await;
        let client = http.client(EraChoice::Legacy, &Arc::new(TestUser::default())).await;
        for _cached in 0..2 {
            let read = client.read_resource("test://echo/hello", &CallOptions::default()).await;
            let text = format!("{read:?}");
            assert!(text.contains(expected), "{plan}: {text}");
        }
        client.shutdown().await;
        fixture.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn private_uri_reaches_no_server() {
    // Both servers have resources with the scheme `test`.
    let configs = vec![scripted("one", &[]), scripted("two", &[])];
    let fixture = Fixture::start(configs, Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    // A legacy client: in the modern era a subscription that is not granted is no error.
    let client = http.client(EraChoice::Legacy, &Arc::new(TestUser::default())).await;
    for (uri, expected) in [
        ("file:///home/ada/secret", "no server lists it"),
        ("secret://1", "no server lists it"),
        ("test://unlisted", "several servers could have it: one, two"),
    ] {
        for message in refusals(&client, uri).await {
            assert!(message.contains(expected), "{uri}: {message}");
            assert!(message.contains("/mcp/server/NAME"), "{uri}: {message}");
        }
    }
    client.shutdown().await;
    fixture.close().await;

    // The only server with a scheme is asked, and says itself that it has no such resource.
    let fixture = Fixture::start(vec![scripted("one", &[])], Scope::All).await;
    let http = HttpFixture::start(&fixture.gateway).await;
    let client = http.client(EraChoice::Legacy, &Arc::new(TestUser::default())).await;
    let [read, ..] = refusals(&client, "test://unlisted").await;
    assert_eq!(read, "no resource `test://unlisted`");
    let [read, ..] = refusals(&client, "file:///home/ada/secret").await;
    assert!(read.contains("no server lists it"), "{read}");
    client.shutdown().await;
    fixture.close().await;
}
