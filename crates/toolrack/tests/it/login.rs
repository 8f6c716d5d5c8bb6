//! OAuth login with a third-party authorization server.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::json;
use toolrack_auth::{AuthSettings, Authorizer, MemoryTokenStore, SystemBrowser};
use toolrack_client::McpClient;
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_testkit::oauth::follow_redirects;
use toolrack_testkit::{HttpServer, HttpServerKind, skipped};
use url::Url;

/// Longer than any step takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oauth_login_with_a_python_sdk_server() {
    let kind = HttpServerKind::FastMcpLogin;
    if let Some(reason) = kind.unavailable_reason() {
        return skipped("oauth_login_with_a_python_sdk_server", &reason);
    }
    let server = HttpServer::start(kind).unwrap();
    // A browser that approves everything.
    let opener = |url: &Url| {
        let url = url.to_string();
        thread::spawn(move || follow_redirects(&url));
        Ok(())
    };
    let browser =
        Arc::new(SystemBrowser { login_timeout: TIMEOUT, ..SystemBrowser::new(Arc::new(opener)) });
    let (url, store) = (Url::parse(&server.url()).unwrap(), Arc::new(MemoryTokenStore::default()));
    let login = Authorizer::new(&url, AuthSettings::default(), store, Some(browser)).unwrap();
    let options = HttpOptions { credentials: Some(login), ..HttpOptions::default() };
    let definition = HttpServerDef::new(server.url());
    let client = McpClient::builder("remote").connect_http(definition, options).await.unwrap();
    let sum = client.call_tool("add", &json!({"a": 19, "b": 23})).await.unwrap();
    assert_eq!(sum.content, "42");
    client.shutdown().await;
}
