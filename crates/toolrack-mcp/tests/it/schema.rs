//! All our messages against the official schema of each revision.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolrack_mcp::{
    Arguments, CallToolParams, CancelTaskParams, Cancelled, ClientCapabilities, CompleteParams,
    CompletionArgument, CompletionContext, CompletionRef, Content, DiscoverParams,
    ElicitationCapability, ElicitationResult, Era, FieldValue, FormContent, GetPromptParams,
    GetTaskParams, GetTaskReportParams, Implementation, InitializeParams, InputResponse,
    InputResponses, ListParams, ListenParams, LogLevel, Method, MethodKind, PingParams, Progress,
    ProgressToken, Prompt, ReadResourceParams, Request, RequestMeta, Resource, ResourceTemplate,
    Revision, Role, Root, RootsCapability, RootsResult, SamplingCapability, SamplingResult, Sender,
    SetLevelParams, SubscribeParams, SubscriptionFilter, TaskParams, TaskResultParams, Tool,
    UnsubscribeParams, UpdateTaskParams, WithInput,
};

use crate::official::{self, Official};
use crate::table::log_levels;

/// Messages to send, with everything that `revision` allows.
#[derive(Default)]
struct Outbox(Vec<(Method, Value)>);

impl Outbox {
    fn ask<R: Request>(&mut self, params: R) {
        self.0.push((R::METHOD, serde_json::to_value(params).unwrap()));
    }

    fn tell(&mut self, method: Method, params: impl Serialize) {
        self.0.push((method, serde_json::to_value(params).unwrap()));
    }
}

fn everything() -> ClientCapabilities {
    let settings = || RawValue::from_string("{}".to_owned()).unwrap();
    ClientCapabilities {
        roots: Some(RootsCapability { list_changed: true }),
        sampling: Some(SamplingCapability { tools: true, context: true }),
        elicitation: Some(ElicitationCapability { form: true, url: true }),
        experimental: BTreeMap::from([("e".to_owned(), settings())]),
        extensions: BTreeMap::from([("org.example/x".to_owned(), settings())]),
    }
}

fn client() -> Implementation {
    Implementation {
        name: "toolrack".to_owned(),
        version: "1".to_owned(),
        title: Some("Toolrack".to_owned()),
        description: Some("One rack".to_owned()),
        website_url: Some("https://example.org".to_owned()),
        icons: Some(RawValue::from_string(r#"[{"src":"https://e.org/i"}]"#.to_owned()).unwrap()),
    }
}

fn roots() -> RootsResult {
    let name = Some("work".to_owned());
    RootsResult { roots: vec![Root::new("file:///work".to_owned(), name).unwrap()] }
}

fn written() -> SamplingResult {
    SamplingResult {
        role: Role::Assistant,
        content: vec![Content::from_text("hi")],
        model: "m".to_owned(),
        stop_reason: Some("endTurn".to_owned()),
    }
}

fn accepted(revision: Revision) -> ElicitationResult {
    let mut content = FormContent::from([
        ("t".to_owned(), FieldValue::Text("x".to_owned())),
        ("n".to_owned(), FieldValue::Number(7.into())),
        ("b".to_owned(), FieldValue::Boolean(true)),
    ]);
    if revision.has_url_elicitation() {
        content.insert("l".to_owned(), FieldValue::List(vec!["a".to_owned()]));
    }
    ElicitationResult::Accept { content: Some(content) }
}

fn requests(revision: Revision) -> Outbox {
    let mut out = Outbox::default();
    let modern = revision.era() == Era::Modern;
    let (capabilities, client) = (everything(), client());
    let filled = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let arguments = RawValue::from_string(r#"{"a":[1,null]}"#.to_owned()).unwrap();
    let answers = InputResponses(vec![
        ("e".to_owned(), InputResponse::Elicitation(accepted(revision))),
        ("s".to_owned(), InputResponse::Sampling(written())),
        ("r".to_owned(), InputResponse::Roots(roots())),
    ]);
    let input_responses = modern.then_some(&answers);
    let request_state = modern.then_some("state");

    out.ask(InitializeParams { revision, capabilities: &capabilities, client: &client });
    out.ask(DiscoverParams {});
    out.ask(PingParams {});
    for cursor in [None, Some(""), Some("next")] {
        out.ask(ListParams::<Tool>::new(cursor));
        out.ask(ListParams::<Resource>::new(cursor));
        out.ask(ListParams::<ResourceTemplate>::new(cursor));
        out.ask(ListParams::<Prompt>::new(cursor));
    }
    out.ask(CallToolParams { name: "t", arguments: None, task: None });
    let call = CallToolParams {
        name: "t",
        arguments: Some(Arguments::Raw(&arguments)),
        task: revision.has_core_tasks().then_some(TaskParams { ttl: 60_000 }),
    };
    out.ask(WithInput { params: &call, input_responses, request_state });
    out.ask(GetTaskParams { task_id: "1" });
    out.ask(GetTaskReportParams { task_id: "1" });
    out.ask(TaskResultParams { task_id: "1" });
    out.ask(CancelTaskParams { task_id: "1" });
    out.ask(UpdateTaskParams { task_id: "1", input_responses: &answers });
    let read = ReadResourceParams { uri: "a:" };
    out.ask(WithInput { params: &read, input_responses, request_state });
    out.ask(SubscribeParams { uri: "a:" });
    out.ask(UnsubscribeParams { uri: "a:" });
    out.ask(GetPromptParams { name: "p", arguments: None });
    let get = GetPromptParams { name: "p", arguments: Some(&filled) };
    out.ask(WithInput { params: &get, input_responses, request_state });
    let context =
        revision.has_completion_context().then_some(CompletionContext { arguments: &filled });
    let argument = CompletionArgument { name: "a", value: "" };
    let prompt = CompletionRef::Prompt { name: "p" };
    out.ask(CompleteParams { reference: prompt, argument, context });
    let resource = CompletionRef::Resource { uri: "a:{x}" };
    out.ask(CompleteParams { reference: resource, argument, context: None });
    for level in log_levels() {
        out.ask(SetLevelParams { level });
    }
    let filter = SubscriptionFilter {
        tools_list_changed: true,
        prompts_list_changed: true,
        resources_list_changed: true,
        resource_subscriptions: vec!["a:".to_owned()],
    };
    out.ask(ListenParams { notifications: &filter });
    out.ask(ListenParams { notifications: &SubscriptionFilter::default() });
    out
}

fn notifications(revision: Revision) -> Outbox {
    let mut out = Outbox::default();
    out.tell(Method::Initialized, json!({}));
    out.tell(Method::RootsListChanged, json!({}));
    for id in [ProgressToken::Integer(1), ProgressToken::Text("1".to_owned())] {
        let reason = Some("late".to_owned());
        out.tell(Method::Cancelled, Cancelled { request_id: Some(id.clone()), reason });
        let message = revision.has_progress_message().then(|| "half".to_owned());
        let total = Some(1.0);
        out.tell(Method::Progress, Progress { token: id, progress: 0.5, total, message });
    }
    out
}

fn envelope(revision: Revision, method: Method, mut params: Value) -> Value {
    let is_request = method.kind() == MethodKind::Request;
    if is_request && revision.era() == Era::Modern {
        let (capabilities, client, token) = (everything(), client(), ProgressToken::Integer(1));
        let meta = RequestMeta {
            revision,
            capabilities: &capabilities,
            client: Some(&client),
            log_level: Some(LogLevel::Info),
            progress_token: Some(&token),
        };
        params["_meta"] = serde_json::to_value(meta).unwrap();
    }
    let mut message = json!({"method": method.as_str(), "params": params});
    // Definitions include the envelope since 2025-11-25.
    if revision >= Revision::R2025_11_25 {
        message["jsonrpc"] = json!("2.0");
        if is_request {
            message["id"] = json!(1);
        }
    }
    message
}

#[test]
fn everything_we_send_matches_the_official_schema() {
    let Some(all) = official::all("everything_we_send_fits_the_official_schema") else {
        return;
    };
    for (revision, official) in all {
        let sent = requests(revision).0.into_iter().chain(notifications(revision).0);
        for (method, params) in sent.filter(|(method, _)| method.is_in(revision)) {
            let definition = official.of_method(method.as_str()).unwrap();
            let message = envelope(revision, method, params);
            let violations = official.violations(definition, &message);
            assert_eq!(violations, Vec::<String>::new(), "{revision} {message}");
        }
    }
}

#[test]
fn modern_task_requests_match_their_schema() {
    let Some(official) = official::tasks("what_we_ask_about_modern_tasks_fits_their_schema") else {
        return;
    };
    let revision = Revision::LATEST;
    let mut n_checked = 0;
    for (method, params) in requests(revision).0 {
        let definition = match method {
            Method::GetTask => "GetTaskRequest",
            Method::UpdateTask => "UpdateTaskRequest",
            Method::CancelTask => "CancelTaskRequest",
            _ => continue,
        };
        let message = envelope(revision, method, params);
        assert_eq!(official.violations(definition, &message), Vec::<String>::new(), "{message}");
        n_checked += 1;
    }
    assert_eq!(n_checked, 4);
    let nameless = envelope(revision, Method::GetTask, json!({}));
    assert_ne!(official.violations("GetTaskRequest", &nameless), Vec::<String>::new());
}

#[test]
fn every_client_method_has_parameters() {
    // The client polls tasks that it started, and runs none for a server.
    let never_sent = [Method::ListTasks, Method::TaskStatus];
    let revision = Revision::LATEST;
    let sent = requests(revision).0.into_iter().chain(notifications(revision).0);
    let sent: BTreeSet<&str> = sent.map(|(method, _)| method.as_str()).collect();
    let ours = Method::ALL
        .iter()
        .filter(|method| method.sender() != Sender::Server && !never_sent.contains(method))
        .map(|method| method.as_str());
    assert_eq!(ours.collect::<BTreeSet<_>>(), sent);
}

#[track_caller]
fn check_answer(
    all: &[(Revision, Official)],
    definition: &str,
    answer: impl Fn(Revision) -> Option<Value>,
) {
    for (revision, official) in all {
        if let Some(answer) = answer(*revision) {
            let violations = official.violations(definition, &answer);
            assert_eq!(violations, Vec::<String>::new(), "{revision} {answer}");
        }
    }
}

fn value(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap()
}

#[test]
fn every_result_matches_the_official_schema() {
    let Some(all) = official::all("every_answer_fits_the_official_schema") else {
        return;
    };
    check_answer(&all, "ListRootsResult", |_| Some(value(roots())));
    check_answer(&all, "CreateMessageResult", |_| Some(value(written())));
    check_answer(&all, "CreateMessageResult", |revision| {
        let mut answer = written();
        let input = RawValue::from_string("{}".to_owned()).unwrap();
        answer.content.push(Content::ToolUse {
            id: "1".into(),
            name: "t".into(),
            input: std::borrow::Cow::Owned(input),
            extra: toolrack_mcp::Extra::default(),
        });
        revision.has_sampling_tools().then(|| value(answer))
    });
    let elicited = |answer: fn(Revision) -> ElicitationResult| {
        move |revision: Revision| revision.has_elicitation().then(|| value(answer(revision)))
    };
    check_answer(&all, "ElicitResult", elicited(accepted));
    check_answer(&all, "ElicitResult", elicited(|_| ElicitationResult::Accept { content: None }));
    check_answer(&all, "ElicitResult", elicited(|_| ElicitationResult::Decline));
    check_answer(&all, "ElicitResult", elicited(|_| ElicitationResult::Cancel));
}

/// The check itself must be able to fail.
#[test]
fn members_unknown_to_a_revision_are_detected() {
    let Some(all) = official::all("what_a_revision_does_not_know_is_noticed") else {
        return;
    };
    let (_, first) = all.first().unwrap();
    let modern = everything().wire(Revision::LATEST).serialize(serde_json::value::Serializer);
    assert_ne!(first.violations("ClientCapabilities", &modern.unwrap()), Vec::<String>::new());
    let level = json!({"method": "logging/setLevel", "params": {"level": "warn"}});
    assert_ne!(first.violations("SetLevelRequest", &level), Vec::<String>::new());
}
