//! `turbomcp-client`, the newest stable release, on its child-process transport.

use std::collections::HashMap;

use serde_json::Value;
use turbomcp_client::{Client, ContentBlock};
use turbomcp_transport::{
    ChildProcessConfig, ChildProcessTransport, LimitsConfig, TransportConfig,
};

use super::{Call, Caller, Contender, MAX_MESSAGE_BYTES, ServerCommand};

#[derive(Clone)]
pub(crate) struct Turbomcp(Client<ChildProcessTransport>);

impl Contender for Turbomcp {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        let transport = ChildProcessTransport::new(ChildProcessConfig {
            command: server.program.to_string_lossy().into_owned(),
            args: server.args.clone(),
            max_message_size: MAX_MESSAGE_BYTES,
            ..ChildProcessConfig::default()
        });
        let config =
            TransportConfig { limits: LimitsConfig::unlimited(), ..TransportConfig::default() };
        let client = Client::new_with_config(transport, config);
        client.initialize().await?;
        Ok(Self(client))
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_tools().await?.len())
    }
}

impl Caller for Turbomcp {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let result = self.0.call_tool(call.tool, arguments(call), None).await?;
        match result.content.first() {
            Some(ContentBlock::Text(text)) => Ok(text.text.len()),
            _ => anyhow::bail!("no text"),
        }
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.shutdown().await?;
        Ok(())
    }
}

/// Its API wants a map of its own for every call.
fn arguments(call: &Call) -> Option<HashMap<String, Value>> {
    let members = call.arguments.as_object()?;
    Some(members.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
}
