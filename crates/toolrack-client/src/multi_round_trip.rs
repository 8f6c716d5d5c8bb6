//! Requests that a server may answer with questions, until it answers for good.
//!
//! Spec 2026-07-28, multi round-trip requests: the request is repeated with a new id, the answers of this
//! round only, and the server's state unchanged.
//!
//! **Invariant:** every conversation ends: rounds are counted, and a server that only wants to be asked
//! again is asked slowly.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use toolrack_mcp::{
    CallToolParams, Elicitation, ElicitationAnswer, Era, ErrorCode, ErrorDetail, GetPromptParams,
    InputRequest, InputRequired, InputResponse, InputResponses, ReadResourceParams, Request,
    ResultType, Revision, Tool, UrlElicitation,
};
use toolrack_transport::{BoxFuture, JsonRpcError, RawJson};

use crate::client::CallOptions;
use crate::error::CallError;
use crate::request_meta::Behalf;
use crate::session::Session;

/// How long to wait before asking again when the server asked nothing.
const PACE: Duration = Duration::from_millis(250);

/// A request that can be repeated with answers.
pub(crate) trait Repeatable: Request + Sync {
    /// Sends the request again. The future is behind a pointer because the parameters in it live
    /// shorter than those of the first request, which no generic caller could name.
    fn again<'b>(
        &'b self,
        session: &'b Session,
        round: Round<'b>,
    ) -> BoxFuture<'b, Result<RawJson, CallError>>;
}

/// What is added to a request that is sent again.
#[derive(Clone, Copy)]
pub(crate) struct Round<'b> {
    answers: Option<&'b InputResponses>,
    state: Option<&'b str>,
    options: &'b CallOptions,
}

macro_rules! repeatable {
    ($($params:ident;)*) => {
        $(impl Repeatable for $params<'_> {
            fn again<'b>(
                &'b self,
                session: &'b Session,
                round: Round<'b>,
            ) -> BoxFuture<'b, Result<RawJson, CallError>> {
                let Round { answers, state, options } = round;
                let params = $params { input_responses: answers, request_state: state, ..*self };
                Box::pin(async move { session.exchange(&params, options).await })
            }
        })*
    };
}

repeatable! {
    CallToolParams;
    GetPromptParams;
    ReadResourceParams;
}

/// What to do with a result that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Answer the questions and ask again.
    Answer,
    /// Wait a moment and ask again.
    Wait,
    /// It has gone on for too long.
    Stop,
}

fn next(asked: &InputRequired, n_rounds: u32, max_rounds: u32) -> Next {
    if n_rounds >= max_rounds {
        return Next::Stop;
    }
    if asked.input_requests.is_empty() { Next::Wait } else { Next::Answer }
}

impl Session {
    /// Sends a request and answers the server's questions until the result is complete.
    pub(crate) async fn converse<P: Repeatable>(
        self: &Arc<Self>,
        params: P,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        if let Some(behalf) = options.on_behalf.as_deref() {
            return Box::pin(self.pass(&params, options, behalf)).await;
        }
        let raw = match self.exchange(&params, options).await {
            Err(CallError::Refused(error)) => {
                Box::pin(self.second(&params, options, error)).await?
            }
            outcome => outcome?,
        };
        match self.kind(&raw) {
            ResultType::Complete => Ok(raw),
            // The long way is rare, and boxed so that the short one stays small.
            ResultType::InputRequired => Box::pin(self.rounds(&params, options, raw)).await,
            ResultType::Task => Box::pin(self.follow::<P>(raw, options)).await,
            ResultType::Other => self.complete(P::METHOD, raw),
        }
    }

    /// Passes a request on for somebody who answers the server's questions, so what comes back is theirs too.
    async fn pass<P: Repeatable>(
        &self,
        params: &P,
        options: &CallOptions,
        behalf: &Behalf,
    ) -> Result<RawJson, CallError> {
        if self.era() == Era::Modern && behalf.has_answers() {
            let (answers, state) = (behalf.answers.as_ref(), behalf.state.as_deref());
            return params.again(self, Round { answers, state, options }).await;
        }
        match self.exchange(params, options).await {
            Err(CallError::Refused(error))
                if ErrorCode(error.code) == ErrorCode::HEADER_MISMATCH =>
            {
                self.second(params, options, error).await
            }
            outcome => outcome,
        }
    }

    /// Whether a refusal can be helped by sending the request again, and its outcome.
    async fn second<P: Repeatable>(
        &self,
        params: &P,
        options: &CallOptions,
        error: JsonRpcError,
    ) -> Result<RawJson, CallError> {
        let mismatch = ErrorCode(error.code) == ErrorCode::HEADER_MISMATCH;
        if mismatch && self.is_stateless() && params.arguments().is_some() {
            // Spec 2026-07-28, transports §Custom Headers: the tool may have been changed, so the list is
            // fetched before the one other try.
            self.fetch::<Tool>().await?;
            return self.exchange(params, options).await;
        }
        self.after_pages(params, options, error).await
    }

    async fn rounds<P: Repeatable>(
        self: &Arc<Self>,
        params: &P,
        options: &CallOptions,
        mut raw: RawJson,
    ) -> Result<RawJson, CallError> {
        let mut n_rounds = 0;
        loop {
            let asked = InputRequired::parse(raw.as_bytes())
                .map_err(|fault| CallError::undecodable(P::METHOD, fault))?;
            let answers = match next(&asked, n_rounds, self.limits.rounds) {
                Next::Stop => return Err(CallError::TooManyRounds { rounds: n_rounds }),
                Next::Wait => {
                    sleep(PACE).await;
                    None
                }
                Next::Answer => Some(self.answers(asked.input_requests).await?),
            };
            n_rounds += 1;
            let state = asked.request_state.as_deref();
            let round = Round { answers: answers.as_ref(), state, options };
            raw = params.again(self, round).await?;
            match self.kind(&raw) {
                ResultType::InputRequired => {}
                ResultType::Task => return self.follow::<P>(raw, options).await,
                _ => return self.complete(P::METHOD, raw),
            }
        }
    }

    /// Spec 2026-07-28, multi round-trip requests: without an answer to a question there is no point in
    /// repeating the request. A form that was declined is an answer.
    pub(crate) async fn answers(
        &self,
        questions: Vec<(String, InputRequest)>,
    ) -> Result<InputResponses, CallError> {
        let mut answers = InputResponses::default();
        for (key, question) in questions {
            let method = question.method().to_owned();
            let answer = self.respondent.answer(&self.mailbox, question).await;
            let answer = answer.map_err(|unanswered| CallError::InputUnanswered {
                method,
                reason: unanswered.to_string(),
            })?;
            answers.push(key, answer);
        }
        Ok(answers)
    }

    /// Spec 2025-11-25, elicitation §URL mode: a server may refuse until the user has opened some
    /// pages; then the request is repeated, once.
    async fn after_pages<P: Repeatable>(
        &self,
        params: &P,
        options: &CallOptions,
        error: JsonRpcError,
    ) -> Result<RawJson, CallError> {
        match self.pages_wanted(&error) {
            Some(pages) => self.open_pages(params, options, pages, error).await,
            None => Err(CallError::Refused(error)),
        }
    }

    fn pages_wanted(&self, error: &JsonRpcError) -> Option<Vec<UrlElicitation>> {
        let code = ErrorCode(error.code);
        let expected = self.revision() == Revision::R2025_11_25 && self.respondent.opens_pages();
        if code != ErrorCode::URL_ELICITATION_REQUIRED || !expected {
            return None;
        }
        let data = serde_json::to_vec(error.data.as_ref()?).ok()?;
        match ErrorDetail::read(code, &data) {
            Some(ErrorDetail::UrlElicitationRequired(pages)) => Some(pages),
            _ => None,
        }
    }

    async fn open_pages<P: Repeatable>(
        &self,
        params: &P,
        options: &CallOptions,
        pages: Vec<UrlElicitation>,
        error: JsonRpcError,
    ) -> Result<RawJson, CallError> {
        for page in pages {
            let question = InputRequest::Elicitation(Elicitation::Url(page));
            let answer = self.respondent.answer(&self.mailbox, question).await;
            let Ok(InputResponse::Elicitation(ElicitationAnswer::Accept { .. })) = answer else {
                return Err(CallError::Refused(error));
            };
        }
        self.exchange(params, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, n_rounds: u32, expected: Next) {
        let asked = InputRequired::parse(raw.as_bytes()).unwrap();
        assert_eq!(next(&asked, n_rounds, 3), expected, "{raw} {n_rounds}");
    }

    #[test]
    fn rounds_are_counted_and_paced() {
        let asks = r#"{"inputRequests":{"r":{"method":"roots/list"}}}"#;
        let waits = r#"{"requestState":"s"}"#;
        check(asks, 0, Next::Answer);
        check(asks, 2, Next::Answer);
        check(asks, 3, Next::Stop);
        check(waits, 0, Next::Wait);
        check(waits, 3, Next::Stop);
        check(r#"{"inputRequests":{},"requestState":"s"}"#, 1, Next::Wait);
    }
}
