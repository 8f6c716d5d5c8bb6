//! Fixture server: every tool, prompt and resource that the official conformance suites expect, in both eras. It is
//! the scripted server without a plan, and with content of its own.
//!
//! It runs behind a gateway, so it speaks stdio only; the HTTP checks of the suites test the gateway.

mod client_requests;
mod tools;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tools::PIXEL;

use crate::jsonrpc::{Params, Response, RpcError, RpcResult, text_block};
use crate::revision::{Era, Revision, SupportedRevisions};
use crate::scripted::{self, Content, PendingRequest, ServerInfo, ToolResult};

const USAGE: &str = "fixture-server [--revision R]   R as for scripted-server (default dual)\n";

/// Serves one client until the end of input.
pub fn run(
    args: &[String],
    input: impl BufRead,
    output: impl Write + Send + 'static,
) -> io::Result<ExitCode> {
    let revisions = match args {
        [] => Ok(SupportedRevisions::Dual),
        [option, revision] if option == "--revision" => SupportedRevisions::parse(revision),
        _ => Err(USAGE.to_owned()),
    };
    match revisions {
        Ok(revisions) => {
            scripted::serve_content(revisions, Fixture::default(), input, output)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            io::stderr().write_all(error.as_bytes())?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Content of the fixture server.
#[derive(Debug, Default)]
struct Fixture {
    /// How often the lists changed. Each list shows its latest dynamic entry.
    n_tool_changes: AtomicU64,
    n_prompt_changes: AtomicU64,
}

impl Content for Fixture {
    fn info(&self) -> ServerInfo {
        ServerInfo { name: "toolrack-fixture", title: None, instructions: None }
    }

    fn capabilities(&self, _revision: Revision) -> Value {
        json!({
            "tools": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "prompts": { "listChanged": true },
            "logging": {},
            "completions": {},
        })
    }

    fn change_kinds(&self) -> &'static [&'static str] {
        &["toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions"]
    }

    fn call_tool(&self, pending: &PendingRequest, params: &Params<'_>) -> ToolResult {
        if let Some(plan) = client_requests::plan(params) {
            return plan.run(pending, params);
        }
        let server = &pending.context.server;
        let response = match params.name() {
            "test_tool_with_logging" | "test_logging_tool" => {
                return Ok(tools::log_slowly(pending, params));
            }
            "test_tool_with_progress" => return Ok(tools::report_progress(params)),
            "test_trigger_tool_change" => {
                self.n_tool_changes.fetch_add(1, Ordering::Relaxed);
                server.notify_list_changed("tools");
                Response::text("The tools have changed")
            }
            "test_trigger_prompt_change" => {
                self.n_prompt_changes.fetch_add(1, Ordering::Relaxed);
                server.notify_list_changed("prompts");
                Response::text("The prompts have changed")
            }
            "test_missing_capability" if params.meta.declares("sampling") => {
                Response::text("The client can sample")
            }
            "test_missing_capability" => return Err(RpcError::missing_capability("sampling")),
            name => tools::static_result(name)?,
        };
        Ok(response.into())
    }

    fn read(&self, pending: &PendingRequest, method: &str, params: &Params<'_>) -> RpcResult {
        Ok(match method {
            "tools/list" => {
                let made = dynamic_name("test_dynamic_tool", &self.n_tool_changes);
                Response::cacheable(&json!({ "tools": tools(made.as_deref()) }))
            }
            "resources/list" => Response::cacheable(&json!({ "resources": [
                resource("test://static-text", "static-text", "A text", "text/plain"),
                resource("test://static-binary", "static-binary", "An image", "image/png"),
                resource("test://watched-resource", "watched", "Can be subscribed to", "text/plain"),
            ]})),
            "resources/templates/list" => Response::cacheable(&json!({ "resourceTemplates": [{
                "uriTemplate": "test://template/{id}/data", "name": "template",
                "description": "Data by id", "mimeType": "application/json",
            }]})),
            "resources/read" => return read_resource(params, pending.era()),
            "prompts/list" => {
                let made = dynamic_name("test_dynamic_prompt", &self.n_prompt_changes);
                Response::cacheable(&json!({ "prompts": prompts(made.as_deref()) }))
            }
            "prompts/get" if pending.era() == Era::Modern && params.name() == INPUT_PROMPT => {
                client_requests::prompt_with_input(params)
            }
            "prompts/get" => return get_prompt(params),
            "completion/complete" => {
                let values = ["paris", "park", "party"];
                let completion = json!({ "values": values, "total": 3, "hasMore": false });
                Response::complete(&json!({ "completion": completion }))
            }
            other => return Err(RpcError::unknown_method(other)),
        })
    }
}

/// Prompt that asks for its context first.
const INPUT_PROMPT: &str = "test_input_required_result_prompt";
const TEMPLATE_HEAD: &str = "test://template/";
const TEMPLATE_TAIL: &str = "/data";

/// Name of the latest dynamic entry, if the list has changed.
fn dynamic_name(name: &str, times: &AtomicU64) -> Option<String> {
    let times = times.load(Ordering::Relaxed);
    (times > 0).then(|| format!("{name}_{times}"))
}

fn resource(uri: &str, name: &str, description: &str, mime_type: &str) -> Value {
    json!({ "uri": uri, "name": name, "description": description, "mimeType": mime_type })
}

fn read_resource(params: &Params<'_>, era: Era) -> RpcResult {
    let uri = params.uri.as_deref().unwrap_or_default();
    let id = uri.strip_prefix(TEMPLATE_HEAD).and_then(|rest| rest.strip_suffix(TEMPLATE_TAIL));
    let contents = match (uri, id) {
        ("test://static-text", _) => json!({
            "uri": uri, "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        }),
        ("test://watched-resource", _) => {
            json!({ "uri": uri, "mimeType": "text/plain", "text": "Watch me." })
        }
        ("test://static-binary", _) => {
            json!({ "uri": uri, "mimeType": "image/png", "blob": PIXEL })
        }
        (_, Some(id)) => {
            let text =
                json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "uri": uri, "mimeType": "application/json", "text": text.to_string() })
        }
        _ => return Err(RpcError::resource_not_found(era, uri, "Resource not found")),
    };
    Ok(Response::cacheable(&json!({ "contents": [contents] })))
}

fn prompts(more: Option<&str>) -> Vec<Value> {
    let argument = |name: &str| json!({ "name": name, "description": name, "required": true });
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<Value> = arguments.iter().map(|name| argument(name)).collect();
        json!({ "name": name, "description": format!("The prompt {name}"), "arguments": arguments })
    };
    let mut prompts = vec![
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt(INPUT_PROMPT, &[]),
    ];
    prompts.extend(more.map(|more| prompt(more, &[])));
    prompts
}

fn get_prompt(params: &Params<'_>) -> RpcResult {
    let arguments = params.arguments();
    let argument = |name: &str| arguments.get::<String>(name).unwrap_or_default();
    Ok(Response::prompt(match params.name() {
        "test_simple_prompt" => vec![text_block("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1"), argument("arg2"));
            let text = format!("Prompt with arguments: arg1='{first}', arg2='{second}'");
            vec![text_block(text)]
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": argument("resourceUri"), "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            });
            vec![
                json!({ "type": "resource", "resource": resource }),
                text_block("Please process the embedded resource above."),
            ]
        }
        "test_prompt_with_image" => vec![
            json!({ "type": "image", "data": PIXEL, "mimeType": "image/png" }),
            text_block("Please analyze the image above."),
        ],
        made if made.starts_with("test_dynamic_prompt_") => vec![text_block("Here today.")],
        name => return Err(RpcError::invalid_params(format!("no prompt `{name}`"))),
    }))
}

fn tools(more: Option<&str>) -> Vec<Value> {
    let tool = |name: &str, schema: Value| json!({ "name": name, "description": format!("The tool {name}"), "inputSchema": schema });
    let empty_schema = || json!({ "type": "object", "properties": {} });
    let one_string = |name: &str| {
        let properties = json!({ name: { "type": "string" } });
        json!({ "type": "object", "properties": properties, "required": [name] })
    };
    let mut tools: Vec<Value> =
        TOOLS_WITHOUT_ARGUMENTS.iter().map(|name| tool(name, empty_schema())).collect();
    tools.push(tool("test_sampling", one_string("prompt")));
    tools.push(tool("test_elicitation", one_string("message")));
    tools.push(tool("json_schema_2020_12_tool", schema_2020_12()));
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    let headed = json!({ "type": "object", "properties": { "region": region } });
    tools.push(tool("test_custom_headers", headed));
    tools.extend(more.map(|more| tool(more, empty_schema())));
    tools
}

/// Tools without arguments.
const TOOLS_WITHOUT_ARGUMENTS: [&str; 23] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_error_handling",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];

fn schema_2020_12() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "addressDef", "type": "object",
            "properties": { "street": text, "city": text },
        }},
        "properties": {
            "name": text,
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": text,
            "email": text,
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
