//! Where a transcript is played: the client, its server's end, its user, and what they do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::task::{AbortHandle, JoinSet};
use toolrack_client::{
    CallOptions, DetectedVersion, EraChoice, Limits, ListChanges, McpClient, Timeouts,
};
use toolrack_mcp::{CompletionArgument, CompletionRef, Implementation, LogLevel};
use toolrack_transport::{Ending, Exit, ServerExit};

use crate::format;
use crate::memory_transport::{Log, Opening, Order, Switchboard};
use crate::schema_validator::Judge;
use crate::scripted_user::Person;
use crate::transcript::{Input, Script, Words, duration};

/// Plays a script and gives what was seen after each input.
pub(crate) async fn play(script: &Script) -> Vec<Vec<String>> {
    let mut stage = Stage::default();
    let mut seen = Vec::new();
    for scene in &script.scenes {
        match &scene.input {
            Input::Say(text) => stage.say(text),
            Input::Act(text) => stage.act(text).await,
        }
        settle().await;
        seen.push(stage.seen());
    }
    seen
}

/// Lets everything run that can, without moving the clock.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[derive(Default)]
struct Stage {
    log: Log,
    judge: Judge,
    switchboard: Option<Arc<Switchboard>>,
    person: Option<Arc<Person>>,
    client: Arc<Mutex<Option<Arc<McpClient>>>>,
    tasks: JoinSet<()>,
    last: Option<AbortHandle>,
}

impl Stage {
    fn seen(&mut self) -> Vec<String> {
        while let Some(ended) = self.tasks.try_join_next() {
            match ended {
                Err(crash) if crash.is_panic() => std::panic::resume_unwind(crash.into_panic()),
                Ok(()) | Err(_) => {}
            }
        }
        let mut seen = Vec::new();
        for entry in self.log.take() {
            if let Some(message) = entry.strip_prefix("> ") {
                let whole = message.replacen('{', r#"{"jsonrpc":"2.0","#, 1);
                let faults = self.judge.judge(&whole);
                assert!(faults.is_empty(), "{message}\n{faults:#?}");
            }
            seen.extend(entry.lines().map(str::to_owned));
        }
        seen
    }

    fn say(&mut self, text: &str) {
        let whole = match text.strip_prefix('{') {
            Some(members) => format!(r#"{{"jsonrpc":"2.0",{members}"#),
            None => text.to_owned(),
        };
        self.judge.hear(&whole);
        self.order(Order::Say(whole));
    }

    fn order(&self, order: Order) {
        self.switchboard.as_ref().expect("connect comes first").order(order);
    }

    async fn act(&mut self, text: &str) {
        let words = Words::parse(text);
        match words.word(0) {
            "connect" => self.connect(&words),
            "wait" => tokio::time::sleep(duration(words.word(1))).await,
            "answer" => self.person.as_ref().expect("there is somebody").answer(&words),
            "drop" => self.last.take().expect("something was begun").abort(),
            "let_go" => *self.client.lock().unwrap() = None,
            "end" => self.order(Order::End(Ending::OutputClosed)),
            "exit" => {
                let code = words.word(1).parse().expect("a code");
                let stderr = words.value("stderr").map(str::to_owned);
                let exit =
                    ServerExit { exit: Exit::Code(code), stderr: stderr.into_iter().collect() };
                self.order(Order::End(Ending::Exited(exit)));
            }
            "noise" => {
                for _ in 0..words.word(1).parse().expect("a number") {
                    self.order(Order::Say("y".to_owned()));
                    tokio::task::yield_now().await;
                }
            }
            "tools" => {
                let tools = self.client().tools();
                self.log.write(format!("= tools {}", format::list(&tools, |tool| &tool.name)));
            }
            "state" => self.state(),
            "events" => self.events(),
            _ => self.call(text, words),
        }
    }

    fn connect(&mut self, words: &Words) {
        let opening = match words.value("open") {
            None => Opening::Works,
            Some("fails") => Opening::Fails,
            Some(_) => Opening::Hangs,
        };
        let launcher = words.value("launcher").map(str::to_owned);
        let switchboard = Arc::new(Switchboard::new(self.log.clone(), launcher, opening));
        self.switchboard = Some(Arc::clone(&switchboard));
        let defaults = Timeouts::default();
        let timeouts = Timeouts {
            startup: words.duration("startup").unwrap_or(defaults.startup),
            server_request: words.duration("question").unwrap_or(defaults.server_request),
            ..defaults
        };
        let number = |key: &str| words.value(key).map(|value| value.parse().expect("a number"));
        let standard = Limits::default();
        let limits = Limits {
            pages: number("pages").unwrap_or(standard.pages),
            entries: number("entries").unwrap_or(standard.entries),
            server_requests: number("questions").unwrap_or(standard.server_requests),
            user_requests: number("human").unwrap_or(standard.user_requests),
            input_rounds: words
                .value("rounds")
                .map_or(standard.input_rounds, |value| value.parse().expect("a number")),
        };
        let client = Implementation {
            name: "toolrack".to_owned(),
            version: "1".to_owned(),
            ..Implementation::default()
        };
        let mut builder = McpClient::builder("srv")
            .client(client)
            .timeouts(timeouts)
            .limits(limits)
            .known_version(words.value("remembered").and_then(DetectedVersion::parse))
            .list_changes(if words.has("ignore") {
                ListChanges::Ignore
            } else {
                ListChanges::Subscribe
            })
            .era(match words.value("era") {
                None => EraChoice::Auto,
                Some("legacy") => EraChoice::Legacy,
                Some(_) => EraChoice::Modern,
            });
        if let Some(offers) = words.value("offers") {
            let person = Arc::new(Person::new(self.log.clone(), offers));
            self.person = Some(Arc::clone(&person));
            builder = builder.handler(person);
        }
        let (log, place) = (self.log.clone(), Arc::clone(&self.client));
        self.last = Some(self.tasks.spawn(async move {
            let outcome = builder.connect_with(switchboard).await;
            log.write(format::connection(&outcome));
            *place.lock().unwrap() = outcome.ok().map(Arc::new);
        }));
    }

    fn client(&self) -> Arc<McpClient> {
        Arc::clone(self.client.lock().unwrap().as_ref().expect("connected"))
    }

    fn state(&self) {
        let client = self.client();
        let seen = client.transport_stats();
        self.log.write(format!(
            "= state: server {:?}, instructions {:?}, verdict {}, ignored {}, late {}, unreadable {}",
            client.server_info().map(|info| info.name.as_str()),
            client.instructions(),
            client.detected_version(),
            client.n_ignored_requests(),
            seen.late,
            seen.unreadable,
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

    /// Begins a call of the client; its outcome is seen when it comes.
    fn call(&mut self, text: &str, words: Words) {
        let (client, log) = (self.client(), self.log.clone());
        let label = words.plain.iter().take_while(|word| !word.contains('=')).cloned();
        let label = label.take(2).collect::<Vec<_>>().join(" ");
        let unknown = format!("no such action: {text}");
        self.last = Some(self.tasks.spawn(async move {
            let shown = perform(&client, &words, &log).await.expect(&unknown);
            drop(client);
            log.write(format!("= {label}: {shown}"));
        }));
    }
}

/// Does one thing with the client and shows what came of it.
async fn perform(client: &McpClient, words: &Words, log: &Log) -> Option<String> {
    let done = |()| "ok".to_owned();
    let subject = words.word(1);
    let options = options(words, log);
    let texts = || -> BTreeMap<String, String> {
        let json = words.json.clone().unwrap_or_else(|| serde_json::json!({}));
        serde_json::from_value(json).expect("texts by name")
    };
    Some(match words.word(0) {
        "call_tool" => {
            let arguments = words.json.clone().unwrap_or_default();
            let result = client.call_tool_full(subject, &arguments, &options).await;
            format::outcome(result, |result| format::tool_result((&result).into()))
        }
        "call_plain" => {
            let arguments = words.json.clone().unwrap_or_default();
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
            let level = LogLevel::parse(subject).expect("a level");
            format::outcome(client.set_log_level(level).await, done)
        }
        "ping" => format::outcome(client.ping().await, done),
        "subscribe" => format::outcome(client.subscribe_resource(subject).await, done),
        "unsubscribe" => format::outcome(client.unsubscribe_resource(subject).await, done),
        "roots_changed" => format::outcome(client.notify_roots_changed().await, done),
        "close" => client.close().await.to_string(),
        _ => return None,
    })
}

fn options(words: &Words, log: &Log) -> CallOptions {
    let log = log.clone();
    let show = move |progress: &toolrack_mcp::Progress| {
        let said = progress.message.as_deref().unwrap_or_default();
        let shown = format!("= progress {} of {:?} {said}", progress.progress, progress.total);
        log.write(shown.trim_end().to_owned());
    };
    CallOptions {
        timeout: words.duration("timeout"),
        total_timeout: words.duration("at_most"),
        on_progress: words.has("progress").then(|| Arc::new(show) as toolrack_client::OnProgress),
        log_level: words.value("log").and_then(LogLevel::parse),
        forwarded_for: None,
    }
}
