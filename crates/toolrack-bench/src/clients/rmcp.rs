//! The official Rust SDK.

use std::sync::Arc;

use anyhow::Context as _;
use rmcp::RoleClient;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RunningService, ServiceExt as _};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};

use super::{Call, Caller, Contender, HttpContender, ServerCommand};
use crate::server::http::Eras;
use crate::server_process::RemoteServer;

#[derive(Debug, Clone)]
pub(crate) struct Rmcp(Arc<RunningService<RoleClient, ()>>);

impl Contender for Rmcp {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        let transport = TokioChildProcess::new(server.tokio())?;
        Ok(Self(Arc::new(().serve(transport).await?)))
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_all_tools().await?.len())
    }
}

impl Caller for Rmcp {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let mut params = CallToolRequestParams::new(call.tool);
        params.arguments = call.arguments.as_object().cloned();
        let result = self.0.call_tool(params).await?;
        let text = result.content.first().and_then(|block| block.as_text());
        Ok(text.context("no text")?.text.len())
    }

    async fn close(self) -> anyhow::Result<()> {
        if let Some(service) = Arc::into_inner(self.0) {
            service.cancel().await?;
        }
        Ok(())
    }
}

impl HttpContender for Rmcp {
    async fn connect(server: &RemoteServer) -> anyhow::Result<Self> {
        let transport = StreamableHttpClientTransport::from_uri(server.url(Eras::Both));
        Ok(Self(Arc::new(().serve(transport).await?)))
    }
}
