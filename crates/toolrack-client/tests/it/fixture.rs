//! Test fixture: replays a transcript against the real client, a scripted server and a scripted user.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::task::{AbortHandle, JoinSet};
use toolrack_client::{CallOptions, EraChoice, Limits, McpClient, Timeouts};
use toolrack_mcp::{CompletionArgument, CompletionRef, Implementation, LogLevel, Revision};
use toolrack_transport::{CloseReason, ExitStatus, ProcessExit};

use crate::format;
use crate::memory_transport::{Log, MemoryConnector, OpenBehavior, PeerCommand};
use crate::schema_validator::SchemaValidator;
use crate::scripted_user::ScriptedUser;
use crate::transcript::{ActionArgs, Input, Transcript, duration};

/// Replays a transcript and returns the observed lines after each input.
pub(crate) async fn replay(transcript: &Transcript) -> Vec<Vec<String>> {
    let mut fixture = Fixture::default();
    let mut observed = Vec::new();
    for step in &transcript.steps {
        match &step.input {
            Input::ServerMessage(text) => fixture.server_message(text),
            Input::Action(text) => fixture.act(text).await,
        }
        run_until_idle().await;
        observed.push(fixture.take_observed());
    }
    observed
}

/// Runs all ready tasks without advancing the clock.
async fn run_until_idle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[derive(Default)]
struct Fixture {
    log: Log,
    validator: SchemaValidator,
    connector: Option<Arc<MemoryConnector>>,
    user: Option<Arc<ScriptedUser>>,
    client: Arc<Mutex<Option<Arc<McpClient>>>>,
    tasks: JoinSet<()>,
    last: Option<AbortHandle>,
}

impl Fixture {
    fn take_observed(&mut self) -> Vec<String> {
        while let Some(ended) = self.tasks.try_join_next() {
            match ended {
                Err(crash) if crash.is_panic() => std::panic::resume_unwind(crash.into_panic()),
                Ok(()) | Err(_) => {}
            }
        }
        let mut observed = Vec::new();
        for entry in self.log.take() {
            if let Some(message) = entry.strip_prefix("> ") {
                let whole = message.replacen('{', r#"{"jsonrpc":"2.0","#, 1);
                let errors = self.validator.check(&whole);
                assert!(errors.is_empty(), "{message}\n{errors:#?}");
            }
            observed.extend(entry.lines().map(str::to_owned));
        }
        observed
    }

    fn server_message(&mut self, text: &str) {
        let whole = match text.strip_prefix('{') {
            Some(members) => format!(r#"{{"jsonrpc":"2.0",{members}"#),
            None => text.to_owned(),
        };
        self.validator.record(&whole);
        self.send_command(PeerCommand::Send(whole));
    }

    fn send_command(&self, send_command: PeerCommand) {
        self.connector.as_ref().expect("connect comes first").send_command(send_command);
    }

    async fn act(&mut self, text: &str) {
        let args = ActionArgs::parse(text);
        match args.word(0) {
            "connect" => self.connect(&args),
            "wait" => tokio::time::sleep(duration(args.word(1))).await,
            "answer" => self.user.as_ref().expect("connected with capabilities").answer(&args),
            "cancel" => self.last.take().expect("a call is open").abort(),
            "drop_client" => *self.client.lock().unwrap() = None,
            "close_output" => self.send_command(PeerCommand::Close(CloseReason::OutputClosed)),
            "exit" => {
                let code = args.word(1).parse().expect("a code");
                let stderr = args.value("stderr").map(str::to_owned);
                let exit = ProcessExit {
                    status: ExitStatus::Code(code),
                    stderr: stderr.into_iter().collect(),
                };
                self.send_command(PeerCommand::Close(CloseReason::Exited(exit)));
            }
            "noise" => {
                for _ in 0..args.word(1).parse().expect("a number") {
                    self.send_command(PeerCommand::Send("y".to_owned()));
                    tokio::task::yield_now().await;
                }
            }
            "tools" => {
                let tools = self.client().tools();
                self.log.write(format!("= tools {}", format::list(&tools, |tool| &tool.name)));
            }
            "state" => self.state(),
            "events" => self.events(),
            _ => self.call(text, args),
        }
    }

    fn connect(&mut self, args: &ActionArgs) {
        let open_behavior = match args.value("open") {
            None => OpenBehavior::Works,
            Some("fails") => OpenBehavior::Fails,
            Some(_) => OpenBehavior::Hangs,
        };
        let launcher = args.value("launcher").map(str::to_owned);
        let connector = Arc::new(MemoryConnector::new(self.log.clone(), launcher, open_behavior));
        self.connector = Some(Arc::clone(&connector));
        let defaults = Timeouts::default();
        let timeouts = Timeouts {
            startup: args.duration("startup").unwrap_or(defaults.startup),
            server_request: args
                .duration("server_request_timeout")
                .unwrap_or(defaults.server_request),
            ..defaults
        };
        let number = |key: &str| args.value(key).map(|value| value.parse().expect("a number"));
        let standard = Limits::default();
        let limits = Limits {
            pages: number("pages").unwrap_or(standard.pages),
            entries: number("entries").unwrap_or(standard.entries),
            list_bytes: number("list_bytes").unwrap_or(standard.list_bytes),
            server_requests: number("server_requests").unwrap_or(standard.server_requests),
            user_requests: number("user_requests").unwrap_or(standard.user_requests),
            input_rounds: args
                .value("input_rounds")
                .map_or(standard.input_rounds, |value| value.parse().expect("a number")),
        };
        let client_info = Implementation {
            name: "toolrack".to_owned(),
            version: "1".to_owned(),
            ..Implementation::default()
        };
        let mut builder = McpClient::builder("srv")
            .client(client_info)
            .timeouts(timeouts)
            .limits(limits)
            .known_version(args.value("known_version").and_then(Revision::parse))
            .era(match args.value("era") {
                None => EraChoice::Auto,
                Some("legacy") => EraChoice::Legacy,
                Some(_) => EraChoice::Modern,
            });
        if let Some(capabilities) = args.value("capabilities") {
            let user = Arc::new(ScriptedUser::new(self.log.clone(), capabilities));
            self.user = Some(Arc::clone(&user));
            builder = builder.handler(user);
        }
        let (log, client) = (self.log.clone(), Arc::clone(&self.client));
        self.last = Some(self.tasks.spawn(async move {
            let outcome = builder.connect_with(connector).await;
            log.write(format::connection(&outcome));
            *client.lock().unwrap() = outcome.ok().map(Arc::new);
        }));
    }

    fn client(&self) -> Arc<McpClient> {
        Arc::clone(self.client.lock().unwrap().as_ref().expect("connected"))
    }

    fn state(&self) {
        let client = self.client();
        let observed = client.transport_stats();
        self.log.write(format!(
            "= state: server {:?}, instructions {:?}, detected version {}, ignored {}, late {}, unreadable {}",
            client.server_info().map(|info| info.name.as_str()),
            client.instructions(),
            client.revision(),
            client.n_ignored_requests(),
            observed.late,
            observed.unreadable,
        ));
    }

    fn events(&mut self) {
        let (mut events, log) = (self.client().subscribe(), self.log.clone());
        self.tasks.spawn(async move {
            while let Some(event) = events.next().await {
                log.write(format!("= event {}", format::event(&event)));
            }
        });
    }

    /// Starts a client call; its outcome is logged when it arrives.
    fn call(&mut self, text: &str, args: ActionArgs) {
        let (client, log) = (self.client(), self.log.clone());
        let label = args.plain.iter().take_while(|word| !word.contains('=')).cloned();
        let label = label.take(2).collect::<Vec<_>>().join(" ");
        let unknown = format!("no such action: {text}");
        self.last = Some(self.tasks.spawn(async move {
            let text = perform(&client, &args, &log).await.expect(&unknown);
            drop(client);
            log.write(format!("= {label}: {text}"));
        }));
    }
}

/// Performs one client call and formats its outcome.
async fn perform(client: &McpClient, args: &ActionArgs, log: &Log) -> Option<String> {
    let ok = |()| "ok".to_owned();
    let subject = args.word(1);
    let options = options(args, log);
    let texts = || -> BTreeMap<String, String> {
        let json = args.json.clone().unwrap_or_else(|| serde_json::json!({}));
        serde_json::from_value(json).expect("texts by name")
    };
    Some(match args.word(0) {
        "call_tool" => {
            let arguments = args.json.clone().unwrap_or_default();
            let result = client.call_tool_full(subject, &arguments, &options).await;
            format::outcome(result, |result| format::tool_result((&result).into()))
        }
        "call_text" => {
            let arguments = args.json.clone().unwrap_or_default();
            format::outcome(client.call_tool(subject, &arguments).await, format::tool_result)
        }
        "list_tools" => format::outcome(client.list_tools().await, |list| {
            format::list(&list, |tool| &tool.name)
        }),
        "list_resources" => format::outcome(client.list_resources().await, |list| {
            format::list(&list, |resource| &resource.uri)
        }),
        "list_templates" => format::outcome(client.list_resource_templates().await, |list| {
            format::list(&list, |template| &template.uri_template)
        }),
        "list_prompts" => format::outcome(client.list_prompts().await, |list| {
            format::list(&list, |prompt| &prompt.name)
        }),
        "read" => format::outcome(client.read_resource(subject, &options).await, |result| {
            format::resource(&result)
        }),
        "get_prompt" => {
            let result = client.get_prompt(subject, &texts(), &options).await;
            format::outcome(result, |prompt| {
                let texts = prompt.messages.iter().filter_map(|message| message.content.as_text());
                format!("{:?}", texts.collect::<Vec<_>>())
            })
        }
        "complete" => {
            let argument = CompletionArgument { name: "a", value: "x" };
            let reference = if subject.contains(':') {
                CompletionRef::Resource { uri: subject }
            } else {
                CompletionRef::Prompt { name: subject }
            };
            let result = client.complete(reference, argument, &texts()).await;
            format::outcome(result, |completion| format!("{:?}", completion.values))
        }
        "set_log_level" => {
            let level = log_level(subject);
            format::outcome(client.set_log_level(level).await, ok)
        }
        "ping" => format::outcome(client.ping().await, ok),
        "subscribe" => format::outcome(client.subscribe_resource(subject).await, ok),
        "unsubscribe" => format::outcome(client.unsubscribe_resource(subject).await, ok),
        "roots_changed" => format::outcome(client.notify_roots_changed().await, ok),
        "close" => client.close().await.to_string(),
        _ => return None,
    })
}

fn log_level(name: &str) -> LogLevel {
    serde_json::from_value(name.into()).expect("a level")
}

fn options(args: &ActionArgs, log: &Log) -> CallOptions {
    let log = log.clone();
    let on_progress = move |progress: &toolrack_mcp::Progress| {
        let message = progress.message.as_deref().unwrap_or_default();
        let line = format!("= progress {} of {:?} {message}", progress.progress, progress.total);
        log.write(line.trim_end().to_owned());
    };
    CallOptions {
        timeout: args.duration("timeout"),
        total_timeout: args.duration("total_timeout"),
        on_progress: args
            .has("progress")
            .then(|| Arc::new(on_progress) as toolrack_client::OnProgress),
        log_level: args.value("log").map(log_level),
        forwarded_for: None,
    }
}
