//! A model without a provider: it calls one tool and repeats the tool's text.

use futures_util::stream;
use rig_agent::completion::{CompletionRequest, CompletionResponse, Usage};
use rig_core::driver::{Exchange, Model, Opened, Opening, Transport};
use rig_core::error::ProviderError;
use rig_core::message::{
    AssistantContent, EmptyToolName, Message, Origin, ToolCall, ToolFunction, ToolName,
    ToolResultContent, UserContent,
};
use rig_core::test_utils::{MockFrame, MockScript};
use serde_json::Value;

/// A model that calls `tool` once and repeats its text.
#[derive(Debug, Clone)]
pub(crate) struct StubModel {
    tool: ToolName,
    arguments: Value,
}

impl StubModel {
    /// The model for an `AgentBuilder`. A real agent uses a provider's model here; nothing else changes.
    pub(crate) fn model(
        tool: &str,
        arguments: Value,
    ) -> Result<Model<MockScript, Self>, EmptyToolName> {
        let stub = Self { tool: ToolName::new(tool)?, arguments };
        Ok(Model::new(MockScript::new("stub"), stub))
    }

    fn answer(&self, request: &CompletionRequest) -> AssistantContent {
        if let Some(text) = request.chat_history.iter().find_map(tool_text) {
            return AssistantContent::text(format!("The tool says: {text}"));
        }
        let function = ToolFunction::new(self.tool.clone(), self.arguments.clone());
        AssistantContent::ToolCall(ToolCall::from_wire("call-1", function))
    }
}

impl Transport<MockScript> for StubModel {
    fn send(&self, request: CompletionRequest, _exchange: Exchange) -> Opening<MockFrame> {
        let content = vec![self.answer(&request)];
        let origin = Origin::new("stub.api", "stub", "");
        let response = CompletionResponse::new(content, Usage::new(), origin, Value::Null);
        let frame: Result<_, ProviderError> = Ok(MockFrame::Response(Box::new(response)));
        Opening::ready(Opened::new(stream::iter([frame])))
    }
}

fn tool_text(message: &Message) -> Option<String> {
    let Message::User { content } = message else { return None };
    content.iter().find_map(|part| match part {
        UserContent::ToolResult(result) => match result.content.first()? {
            ToolResultContent::Text(text) => Some(text.text().to_owned()),
            _ => None,
        },
        _ => None,
    })
}
