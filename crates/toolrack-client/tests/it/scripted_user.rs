//! Client handler whose answers come from the transcript.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::oneshot;
use toolrack_client::{ClientHandler, SamplingError};
use toolrack_mcp::{
    ClientCapabilities, Content, Elicitation, ElicitationCapability, ElicitationResult, LogMessage,
    Role, Root, RootsCapability, SamplingCapability, SamplingParams, SamplingResult,
};
use toolrack_transport::BoxFuture;

use crate::format;
use crate::memory_transport::Log;
use crate::transcript::ActionArgs;

pub(crate) struct ScriptedUser {
    log: Log,
    capabilities: ClientCapabilities,
    waiting: Mutex<VecDeque<oneshot::Sender<Answer>>>,
}

enum Answer {
    Elicitation(ElicitationResult),
    Sampling(Result<SamplingResult, SamplingError>),
    /// The handler panics.
    Panic,
}

impl ScriptedUser {
    /// Creates a user with the capabilities in `names`, such as `form,url,sampling,tools,roots`.
    pub(crate) fn new(log: Log, names: &str) -> ScriptedUser {
        let can = |ability: &str| names.split(',').any(|name| name == ability);
        let elicitation = ElicitationCapability { form: can("form"), url: can("url") };
        let sampling = SamplingCapability { tools: can("tools"), context: false };
        let capabilities = ClientCapabilities {
            roots: can("roots").then_some(RootsCapability { list_changed: true }),
            sampling: can("sampling").then_some(sampling),
            elicitation: (elicitation.form || elicitation.url).then_some(elicitation),
            ..ClientCapabilities::default()
        };
        ScriptedUser { log, capabilities, waiting: Mutex::default() }
    }

    /// `accept {…}`, `decline`, `cancel`, `text …`, `reject`, `fail`, `panic`
    pub(crate) fn answer(&self, args: &ActionArgs) {
        let sampled = || SamplingResult {
            role: Role::Assistant,
            content: vec![Content::from_text(args.word(2).to_owned())],
            model: "m1".to_owned(),
            stop_reason: Some("endTurn".to_owned()),
        };
        let answer = match args.word(1) {
            "accept" => {
                let content = args.json.clone();
                let content =
                    content.map(|json| serde_json::from_value(json).expect("form content"));
                Answer::Elicitation(ElicitationResult::Accept { content })
            }
            "decline" => Answer::Elicitation(ElicitationResult::Decline),
            "cancel" => Answer::Elicitation(ElicitationResult::Cancel),
            "text" => Answer::Sampling(Ok(sampled())),
            "reject" => Answer::Sampling(Err(SamplingError::RejectedByUser)),
            "panic" => Answer::Panic,
            "fail" => Answer::Sampling(Err(SamplingError::Failed("the model is away".to_owned()))),
            other => panic!("unknown answer: {other}"),
        };
        let waiting = self.waiting.lock().unwrap().pop_front().expect("a request is open");
        assert!(waiting.send(answer).is_ok(), "the handler still waits");
    }

    async fn wait_for_answer(&self, request: String) -> Answer {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap().push_back(sender);
        self.log.write(format!("= {request}"));
        let mut drop_log = DropLog { log: &self.log, answered: false };
        let answer = receiver.await.expect("the fixture outlives the handler");
        drop_log.answered = true;
        answer
    }
}

/// Logs when a handler future is dropped before its answer.
struct DropLog<'a> {
    log: &'a Log,
    answered: bool,
}

impl Drop for DropLog<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.log.write("= handler dropped".to_owned());
        }
    }
}

impl ClientHandler for ScriptedUser {
    fn capabilities(&self) -> ClientCapabilities {
        self.capabilities.clone()
    }

    fn elicit<'a>(
        &'a self,
        server: &'a str,
        request: Elicitation,
    ) -> BoxFuture<'a, ElicitationResult> {
        Box::pin(async move {
            let content = match &request {
                Elicitation::Form(form) => {
                    let fields = form.schema.fields().iter().map(|field| field.name.as_str());
                    format!("form {:?}", fields.collect::<Vec<_>>())
                }
                Elicitation::Url(page) => format!("url {}", page.url),
            };
            match self
                .wait_for_answer(format!(
                    "elicitation from {server}: {} {content}",
                    request.message()
                ))
                .await
            {
                Answer::Elicitation(answer) => answer,
                Answer::Sampling(_) => panic!("expected an elicitation answer"),
                Answer::Panic => panic!("this panic is part of a transcript"),
            }
        })
    }

    fn sample<'a>(
        &'a self,
        server: &'a str,
        params: SamplingParams,
    ) -> BoxFuture<'a, Result<SamplingResult, SamplingError>> {
        Box::pin(async move {
            let request = format!("sampling from {server}: {} messages", params.messages.len());
            match self.wait_for_answer(request).await {
                Answer::Sampling(answer) => answer,
                Answer::Elicitation(_) => panic!("expected a sampling answer"),
                Answer::Panic => panic!("this panic is part of a transcript"),
            }
        })
    }

    fn roots<'a>(&'a self, _server: &'a str) -> BoxFuture<'a, Vec<Root>> {
        Box::pin(async {
            vec![Root::new("file:///work".to_owned(), Some("work".to_owned())).unwrap()]
        })
    }

    fn log(&self, message: &LogMessage) {
        self.log.write(format!("= {}", format::log(message)));
    }
}
