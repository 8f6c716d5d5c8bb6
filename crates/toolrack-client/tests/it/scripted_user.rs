//! Somebody who answers what servers ask, when the driver says so.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::oneshot;
use toolrack_client::{ClientHandler, SamplingError};
use toolrack_mcp::{
    ClientCapabilities, Content, Elicitation, ElicitationAnswer, ElicitationCapability, LogMessage,
    Role, Root, RootsCapability, SamplingCapability, SamplingParams, SamplingResult,
};
use toolrack_transport::BoxFuture;

use crate::memory_transport::Log;
use crate::transcript::Words;

pub(crate) struct Person {
    log: Log,
    capabilities: ClientCapabilities,
    waiting: Mutex<VecDeque<oneshot::Sender<Answer>>>,
}

enum Answer {
    Elicitation(ElicitationAnswer),
    Sampling(Result<SamplingResult, SamplingError>),
    /// The program around the client panics.
    Crash,
}

impl Person {
    /// Somebody with the abilities in `offers`, such as `form,url,sampling,tools,roots`.
    pub(crate) fn new(log: Log, offers: &str) -> Person {
        let can = |ability: &str| offers.split(',').any(|offer| offer == ability);
        let elicitation = ElicitationCapability { form: can("form"), url: can("url") };
        let sampling = SamplingCapability { tools: can("tools"), context: false };
        let capabilities = ClientCapabilities {
            roots: can("roots").then_some(RootsCapability { list_changed: true }),
            sampling: can("sampling").then_some(sampling),
            elicitation: (elicitation.form || elicitation.url).then_some(elicitation),
            ..ClientCapabilities::default()
        };
        Person { log, capabilities, waiting: Mutex::default() }
    }

    /// `accept {…}`, `decline`, `cancel`, `text …`, `reject`, `fail`
    pub(crate) fn answer(&self, words: &Words) {
        let sampled = || SamplingResult {
            role: Role::Assistant,
            content: vec![Content::from_text(words.word(2).to_owned())],
            model: "m1".to_owned(),
            stop_reason: Some("endTurn".to_owned()),
        };
        let answer = match words.word(1) {
            "accept" => {
                let content = words.json.clone();
                let content =
                    content.map(|json| serde_json::from_value(json).expect("a filled form"));
                Answer::Elicitation(ElicitationAnswer::Accept { content })
            }
            "decline" => Answer::Elicitation(ElicitationAnswer::Decline),
            "cancel" => Answer::Elicitation(ElicitationAnswer::Cancel),
            "text" => Answer::Sampling(Ok(sampled())),
            "reject" => Answer::Sampling(Err(SamplingError::RejectedByUser)),
            "crash" => Answer::Crash,
            "fail" => Answer::Sampling(Err(SamplingError::Failed("the model is away".to_owned()))),
            other => panic!("no such answer: {other}"),
        };
        let waiting = self.waiting.lock().unwrap().pop_front().expect("somebody has asked");
        assert!(waiting.send(answer).is_ok(), "whoever asked has gone");
    }

    async fn ask(&self, request: String) -> Answer {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap().push_back(sender);
        self.log.write(format!("= asked {request}"));
        let mut regret = Regret { log: &self.log, answered: false };
        let answer = receiver.await.expect("the driver lives longer");
        regret.answered = true;
        answer
    }
}

/// Notes that a request was dropped before it was answered.
struct Regret<'a> {
    log: &'a Log,
    answered: bool,
}

impl Drop for Regret<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.log.write("= request dropped".to_owned());
        }
    }
}

impl ClientHandler for Person {
    fn capabilities(&self) -> ClientCapabilities {
        self.capabilities.clone()
    }

    fn elicit<'a>(
        &'a self,
        server: &'a str,
        request: Elicitation,
    ) -> BoxFuture<'a, ElicitationAnswer> {
        Box::pin(async move {
            let shown = match &request {
                Elicitation::Form(form) => {
                    let fields = form.schema.fields().iter().map(|field| field.name.as_str());
                    format!("form {:?}", fields.collect::<Vec<_>>())
                }
                Elicitation::Url(page) => format!("page {}", page.url),
            };
            match self.ask(format!("by {server}: {} {shown}", request.message())).await {
                Answer::Elicitation(answer) => answer,
                Answer::Sampling(_) => panic!("the user was asked, not the model"),
                Answer::Crash => panic!("this crash is part of a transcript"),
            }
        })
    }

    fn sample<'a>(
        &'a self,
        server: &'a str,
        params: SamplingParams,
    ) -> BoxFuture<'a, Result<SamplingResult, SamplingError>> {
        Box::pin(async move {
            let request = format!("by {server}: model, {} messages", params.messages.len());
            match self.ask(request).await {
                Answer::Sampling(answer) => answer,
                Answer::Elicitation(_) => panic!("the model was asked, not the user"),
                Answer::Crash => panic!("this crash is part of a transcript"),
            }
        })
    }

    fn roots<'a>(&'a self, _server: &'a str) -> BoxFuture<'a, Vec<Root>> {
        Box::pin(async {
            vec![Root::new("file:///work".to_owned(), Some("work".to_owned())).unwrap()]
        })
    }

    fn log(&self, message: &LogMessage) {
        self.log.write(format!("= logged {}: {}", message.level.as_str(), message.data.get()));
    }
}
