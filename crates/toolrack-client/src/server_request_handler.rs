//! Answers to what a server asks of the user, of a model, or of us, in either era.
//!
//! **Invariant:** nothing is asked of the program that was not declared to the server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::timeout;
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationAnswer, ErrorCode, FormElicitation, InputRequest,
    InputResponse, Method, Revision, RootsResult, SamplingParams, SamplingResult, check_sampling,
};
use toolrack_transport::BoxFuture;
use toolrack_transport::JsonRpcError;

use crate::handler::{ClientHandler, RawQuestion, Refusal};
use crate::incoming::Mailbox;

/// Whoever answers on behalf of the program around the client.
pub(crate) struct Respondent {
    pub(crate) server: Box<str>,
    pub(crate) handler: Option<Arc<dyn ClientHandler>>,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) revision: Revision,
    pub(crate) patience: Duration,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("that was not offered to it")]
    Undeclared,
    #[error("that mode was not offered to it")]
    UndeclaredMode,
    #[error("the question breaks the protocol: {0}")]
    Faulty(String),
    #[error("the user does not want it")]
    Rejected,
    #[error("{0}")]
    Failed(String),
    #[error("nobody answered in time")]
    TimedOut,
}

impl Unanswered {
    /// What a legacy server is told.
    pub(crate) fn to_error(&self) -> JsonRpcError {
        let code = match self {
            Unanswered::Undeclared => ErrorCode::METHOD_NOT_FOUND,
            // Spec 2025-11-25, elicitation §Error Handling and sampling §Tools.
            Unanswered::UndeclaredMode | Unanswered::Faulty(_) => ErrorCode::INVALID_PARAMS,
            Unanswered::Rejected => ErrorCode::USER_REJECTED,
            Unanswered::Failed(_) | Unanswered::TimedOut => ErrorCode::INTERNAL_ERROR,
        };
        let message = match self {
            Unanswered::Undeclared => "Method not found".to_owned(),
            Unanswered::UndeclaredMode => "this mode was not declared".to_owned(),
            Unanswered::Faulty(fault) => fault.clone(),
            Unanswered::Rejected => "User rejected sampling request".to_owned(),
            Unanswered::Failed(reason) => reason.clone(),
            Unanswered::TimedOut => "nobody answered in time".to_owned(),
        };
        JsonRpcError::new(code.0, message)
    }
}

/// Whether a question needs the user or a model, who are slow.
pub(crate) fn is_human(method: &str) -> bool {
    matches!(Method::parse(method), Some(Method::Elicit | Method::CreateMessage))
}

impl Respondent {
    /// Answers one question, within the time that questions get.
    pub(crate) async fn answer(
        &self,
        mailbox: &Mailbox,
        question: InputRequest,
    ) -> Result<InputResponse, Unanswered> {
        let Some(handler) = &self.handler else { return Err(Unanswered::Undeclared) };
        match question {
            InputRequest::Elicitation(question) => {
                self.elicit(&**handler, mailbox, question).await.map(InputResponse::Elicitation)
            }
            InputRequest::Sampling(params) => {
                self.sample(&**handler, *params).await.map(InputResponse::Sampling)
            }
            InputRequest::Roots => {
                if self.capabilities.roots.is_none() {
                    return Err(Unanswered::Undeclared);
                }
                let roots = timeout(self.patience, handler.roots(&self.server)).await;
                let roots = roots.map_err(|_elapsed| Unanswered::TimedOut)?;
                Ok(InputResponse::Roots(RootsResult { roots }))
            }
            InputRequest::Other { .. } => Err(Unanswered::Undeclared),
        }
    }

    /// Passes a question on as it is, if the program wants that and it was declared.
    pub(crate) fn pass_on<'a>(
        &'a self,
        question: RawQuestion<'a>,
    ) -> Option<BoxFuture<'a, Result<Box<RawValue>, JsonRpcError>>> {
        let is_declared = match Method::parse(question.method)? {
            Method::Elicit => self.capabilities.elicitation.is_some(),
            Method::CreateMessage => self.capabilities.sampling.is_some(),
            Method::ListRoots => self.capabilities.roots.is_some(),
            _ => false,
        };
        let answer =
            self.handler.as_ref().filter(|_| is_declared)?.pass_on(&self.server, question)?;
        Some(Box::pin(async {
            let late = |_elapsed| Err(Unanswered::TimedOut.to_error());
            timeout(self.patience, answer).await.unwrap_or_else(late)
        }))
    }

    /// Whether the user can be sent to a page.
    pub(crate) fn opens_pages(&self) -> bool {
        self.revision.has_url_elicitation()
            && self.capabilities.elicitation.is_some_and(|modes| modes.url)
    }

    async fn elicit(
        &self,
        handler: &dyn ClientHandler,
        mailbox: &Mailbox,
        question: Elicitation,
    ) -> Result<ElicitationAnswer, Unanswered> {
        let declared = self.capabilities.elicitation.filter(|_| self.revision.has_elicitation());
        let Some(modes) = declared else { return Err(Unanswered::Undeclared) };
        let (form, page) = match &question {
            Elicitation::Form(form) if modes.form => (Some(form.clone()), None),
            Elicitation::Url(page) if self.opens_pages() => (None, page.elicitation_id.clone()),
            Elicitation::Form(_) | Elicitation::Url(_) => return Err(Unanswered::UndeclaredMode),
        };
        let asked = timeout(self.patience, handler.elicit(&self.server, question)).await;
        // Nobody was there, which is not the same as a no.
        let answer = asked.unwrap_or(ElicitationAnswer::Cancel);
        match (answer, form) {
            (ElicitationAnswer::Accept { content }, Some(form)) => {
                filled_in(&form, content.unwrap_or_default())
            }
            (ElicitationAnswer::Accept { .. }, None) => {
                if let Some(id) = page {
                    mailbox.page_opened(id);
                }
                Ok(ElicitationAnswer::Accept { content: None })
            }
            (answer, _) => Ok(answer),
        }
    }

    async fn sample(
        &self,
        handler: &dyn ClientHandler,
        params: SamplingParams,
    ) -> Result<SamplingResult, Unanswered> {
        let Some(declared) = self.capabilities.sampling else { return Err(Unanswered::Undeclared) };
        check_sampling(&params, declared).map_err(|fault| Unanswered::Faulty(fault.to_string()))?;
        match timeout(self.patience, handler.sample(&self.server, params)).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(Refusal::ByUser)) => Err(Unanswered::Rejected),
            Ok(Err(refusal)) => Err(Unanswered::Failed(refusal.to_string())),
            Err(_elapsed) => Err(Unanswered::TimedOut),
        }
    }
}

/// Fields that were left out get their defaults, and the whole is checked before the server sees it.
fn filled_in(
    form: &FormElicitation,
    mut content: toolrack_mcp::FormContent,
) -> Result<ElicitationAnswer, Unanswered> {
    form.schema.fill_defaults(&mut content);
    match form.schema.validate(&content) {
        Ok(()) => Ok(ElicitationAnswer::Accept { content: Some(content) }),
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            Err(Unanswered::Failed(format!("the form was not filled in: {}", faults.join("; "))))
        }
    }
}

impl fmt::Debug for Respondent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Respondent")
            .field("server", &self.server)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}
