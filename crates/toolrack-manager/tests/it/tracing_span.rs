//! Span of a call, as a tracing subscriber sees it.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolrack_testkit::Marker;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

use crate::fixture::{builder, scripted, with_subscriber};

type Fields = BTreeMap<String, String>;

/// Records the spans named `mcp.tool`, and the text of all spans and events.
#[derive(Clone, Default)]
struct RecordingLayer {
    calls: Arc<Mutex<BTreeMap<u64, Fields>>>,
    everything: Arc<Mutex<String>>,
}

struct Collect<'a>(&'a mut Fields);

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl<S: tracing::Subscriber> Layer<S> for RecordingLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Collect(&mut fields));
        write!(self.everything.lock().unwrap(), "{fields:?}").unwrap();
        if attributes.metadata().name() == "mcp.tool" {
            self.calls.lock().unwrap().insert(id.into_u64(), fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(fields) = self.calls.lock().unwrap().get_mut(&id.into_u64()) {
            values.record(&mut Collect(fields));
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Collect(&mut fields));
        write!(self.everything.lock().unwrap(), "{fields:?}").unwrap();
    }
}

#[tokio::test]
async fn call_span_has_name_and_attributes_and_no_arguments() {
    let marker = Marker::new();
    let layer = RecordingLayer::default();
    let subscriber = tracing_subscriber::registry().with(layer.clone());
    let manager = builder().build(vec![scripted("one", &marker, &[])]);
    manager.connect_all().await.unwrap();
    manager.call("one_echo").args(json!({"text": "before"})).send().await.unwrap();
    let work = async {
        manager.call("one_echo").args(json!({"text": "s3cret-argument"})).send().await.unwrap();
        manager.call("one_fail").send().await.unwrap();
        manager.call_tool("one", "add", &json!({"a": "not a number"})).await.unwrap_err();
    };
    with_subscriber(subscriber, work).await;
    manager.close().await;

    let spans: Vec<Fields> = layer.calls.lock().unwrap().values().cloned().collect();
    let field = |name: &str| -> Vec<Option<&str>> {
        spans.iter().map(|fields| fields.get(name).map(String::as_str)).collect()
    };
    let names = field("otel.name");
    assert_eq!(names, [Some("mcp.one.echo"), Some("mcp.one.fail"), Some("mcp.one.add")]);
    assert_eq!(field("error.type"), [None, Some("tool_error"), Some("refused")]);
    assert_eq!(field("otel.status_code"), [None, Some("ERROR"), Some("ERROR")]);
    assert_eq!(field("rpc.response.status_code"), [None, None, Some("-32602")]);
    let common = [
        ("otel.kind", "client"),
        ("mcp.method.name", "tools/call"),
        ("mcp.server.name", "one"),
        ("mcp.protocol.version", "2025-11-25"),
        ("gen_ai.operation.name", "execute_tool"),
        ("network.transport", "pipe"),
    ];
    for (name, value) in common {
        assert_eq!(field(name), [Some(value); 3], "{name}");
    }
    assert_eq!(field("gen_ai.tool.name"), [Some("echo"), Some("fail"), Some("add")]);
    let everything = layer.everything.lock().unwrap();
    assert!(!everything.contains("s3cret"), "an argument was recorded");
}
