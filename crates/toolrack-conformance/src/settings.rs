//! Input from the harness: command line and environment.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

/// Server URL, scenario name and scenario context.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) url: Url,
    pub(crate) scenario: String,
    pub(crate) context: ScenarioContext,
}

/// Context of a scenario (`MCP_CONFORMANCE_CONTEXT`). Each scenario sets some of the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "snake_case")]
pub(crate) struct ScenarioContext {
    #[serde(rename = "toolCalls")]
    pub(crate) tool_calls: Vec<ToolCall>,
    pub(crate) client_id: Option<String>,
    pub(crate) client_secret: Option<String>,
    pub(crate) issuer: Option<String>,
    pub(crate) private_key_pem: Option<String>,
    pub(crate) signing_algorithm: Option<String>,
    pub(crate) idp_client_id: Option<String>,
    pub(crate) idp_id_token: Option<String>,
    pub(crate) idp_token_endpoint: Option<String>,
}

/// A tool call with fixed arguments.
#[derive(Debug, Deserialize)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) arguments: Value,
}

impl Settings {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the environment")]
    pub(crate) fn read() -> Result<Self> {
        let url = std::env::args().next_back().context("the server URL is missing")?;
        let url = url.parse().with_context(|| format!("`{url}` is not a valid URL"))?;
        let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
        let context = match std::env::var("MCP_CONFORMANCE_CONTEXT") {
            Ok(text) => serde_json::from_str(&text).context("cannot parse the context")?,
            Err(_unset) => ScenarioContext::default(),
        };
        Ok(Self { url, scenario, context })
    }
}
