//! Answer server requests: elicitation, sampling and roots. This handler answers without a user.
//!
//! `cargo run -p toolrack --example handler`, with the fixture server of this repository
//! (`cargo build -p toolrack-testkit`).

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::sync::Arc;

use serde_json::json;
use toolrack::client::SamplingError;
use toolrack::mcp::{
    ClientCapabilities, Content, Elicitation, ElicitationCapability, ElicitationResult, Extra,
    FieldValue, FormContent, Role, Root, RootsCapability, SamplingCapability, SamplingParams,
    SamplingResult,
};
use toolrack::transport::BoxFuture;
use toolrack::{ClientHandler, McpServerConfig, Toolrack};

/// Client handler. Servers get exactly the capabilities it returns.
struct AutoHandler;

impl ClientHandler for AutoHandler {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            roots: Some(RootsCapability::default()),
            sampling: Some(SamplingCapability::default()),
            elicitation: Some(ElicitationCapability { form: true, url: false }),
            ..ClientCapabilities::default()
        }
    }

    // A real program shows the form to its user, with the name of the server.
    fn elicit<'a>(
        &'a self,
        server: &'a str,
        request: Elicitation,
    ) -> BoxFuture<'a, ElicitationResult> {
        Box::pin(async move {
            let Elicitation::Form(form) = request else { return ElicitationResult::Decline };
            println!("{server} asks: {}", form.message);
            let answer = |name: &str| (name.to_owned(), FieldValue::Text(format!("my {name}")));
            let fields = form.schema.fields().iter();
            let content: FormContent = fields.map(|field| answer(&field.name)).collect();
            ElicitationResult::Accept { content: Some(content) }
        })
    }

    // A real program asks its model, after the user has agreed.
    fn sample<'a>(
        &'a self,
        server: &'a str,
        params: SamplingParams,
    ) -> BoxFuture<'a, Result<SamplingResult, SamplingError>> {
        Box::pin(async move {
            println!("{server} wants at most {} tokens", params.max_tokens);
            let text = Content::Text { text: "Paris".into(), extra: Extra::default() };
            let (role, model) = (Role::Assistant, "none".to_owned());
            Ok(SamplingResult { role, content: vec![text], model, stop_reason: None })
        })
    }

    fn roots<'a>(&'a self, _server: &'a str) -> BoxFuture<'a, Vec<Root>> {
        Box::pin(async { Root::new("file:///work".to_owned(), None).into_iter().collect() })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Must come first: this program runs again as the guardian of its server.
    toolrack::init();
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn Error>> {
    let program = toolrack_testkit::program("fixture-server").display().to_string();
    let server = McpServerConfig::stdio("curious", program, &[]);
    let rack = Toolrack::builder().server(server).handler(Arc::new(AutoHandler)).open().await?;

    let request = json!({"message": "Who are you?"});
    println!("{}", rack.call("curious.test_elicitation").args(&request).send().await?.text());
    let prompt = json!({"prompt": "The capital of France?"});
    println!("{}", rack.call("curious.test_sampling").args(&prompt).send().await?.text());

    rack.shutdown().await;
    Ok(())
}
