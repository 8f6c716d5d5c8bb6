//! Requests that a server may answer with requests, until it answers for good.
//!
//! Spec 2026-07-28, multi round-trip requests: the request is repeated with a new id, the answers of this
//! round only, and the server's state unchanged.
//!
//! **Invariant:** every conversation ends: rounds are counted, and a server that only wants to be input
//! again is input slowly.

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
use crate::request_meta::ForwardedFor;
use crate::session::Session;

/// How long to wait before asking again when the server input nothing.
const EMPTY_ROUND_DELAY: Duration = Duration::from_millis(250);

/// A request that can be repeated with answers.
pub(crate) trait MultiRoundTrip: Request + Sync {
    /// Sends the request again. The future is behind a pointer because the parameters in it live
    /// shorter than those of the first request, which no generic caller could name.
    fn resend<'b>(
        &'b self,
        session: &'b Session,
        round: InputRound<'b>,
    ) -> BoxFuture<'b, Result<RawJson, CallError>>;
}

/// What is added to a request that is sent again.
#[derive(Clone, Copy)]
pub(crate) struct InputRound<'b> {
    answers: Option<&'b InputResponses>,
    state: Option<&'b str>,
    options: &'b CallOptions,
}

macro_rules! multi_round_trip {
    ($($params:ident;)*) => {
        $(impl MultiRoundTrip for $params<'_> {
            fn resend<'b>(
                &'b self,
                session: &'b Session,
                round: InputRound<'b>,
            ) -> BoxFuture<'b, Result<RawJson, CallError>> {
                let InputRound { answers, state, options } = round;
                let params = $params { input_responses: answers, request_state: state, ..*self };
                Box::pin(async move { session.send_request(&params, options).await })
            }
        })*
    };
}

multi_round_trip! {
    CallToolParams;
    GetPromptParams;
    ReadResourceParams;
}

/// What to do with a result that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Answer the requests and ask again.
    Answer,
    /// Wait a moment and ask again.
    Wait,
    /// It has gone on for too long.
    Stop,
}

fn next_step(input: &InputRequired, n_rounds: u32, max_rounds: u32) -> Next {
    if n_rounds >= max_rounds {
        return Next::Stop;
    }
    if input.input_requests.is_empty() { Next::Wait } else { Next::Answer }
}

impl Session {
    /// Sends a request and answers the server's requests until the result is complete.
    pub(crate) async fn send_multi_round_trip<P: MultiRoundTrip>(
        self: &Arc<Self>,
        params: P,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        if let Some(forwarded) = options.forwarded_for.as_deref() {
            return Box::pin(self.forward(&params, options, forwarded)).await;
        }
        let raw = match self.send_request(&params, options).await {
            Err(CallError::Refused(error)) => {
                Box::pin(self.retry_after_error(&params, options, error)).await?
            }
            outcome => outcome?,
        };
        match self.result_type(&raw) {
            ResultType::Complete => Ok(raw),
            // The long way is rare, and boxed so that the short one stays small.
            ResultType::InputRequired => Box::pin(self.run_rounds(&params, options, raw)).await,
            ResultType::Task => Box::pin(self.poll_task::<P>(raw, options)).await,
            ResultType::Other => self.require_complete(P::METHOD, raw),
        }
    }

    /// Passes a request on for somebody who answers the server's requests, so what comes back is theirs too.
    async fn forward<P: MultiRoundTrip>(
        &self,
        params: &P,
        options: &CallOptions,
        forwarded: &ForwardedFor,
    ) -> Result<RawJson, CallError> {
        if self.era() == Era::Modern && forwarded.has_input() {
            let (answers, state) =
                (forwarded.input_responses.as_ref(), forwarded.request_state.as_deref());
            return params.resend(self, InputRound { answers, state, options }).await;
        }
        match self.send_request(params, options).await {
            Err(CallError::Refused(error))
                if ErrorCode(error.code) == ErrorCode::HEADER_MISMATCH =>
            {
                self.retry_after_error(params, options, error).await
            }
            outcome => outcome,
        }
    }

    /// Whether a refusal can be helped by sending the request again, and its outcome.
    async fn retry_after_error<P: MultiRoundTrip>(
        &self,
        params: &P,
        options: &CallOptions,
        error: JsonRpcError,
    ) -> Result<RawJson, CallError> {
        let mismatch = ErrorCode(error.code) == ErrorCode::HEADER_MISMATCH;
        if mismatch && self.is_stateless() && params.arguments().is_some() {
            // Spec 2026-07-28, transports §Custom Headers: the tool may have been changed, so the list is
            // fetched before the one other try.
            self.fetch_list::<Tool>().await?;
            return self.send_request(params, options).await;
        }
        self.retry_after_urls(params, options, error).await
    }

    async fn run_rounds<P: MultiRoundTrip>(
        self: &Arc<Self>,
        params: &P,
        options: &CallOptions,
        mut raw: RawJson,
    ) -> Result<RawJson, CallError> {
        let mut n_rounds = 0;
        loop {
            let input = InputRequired::parse(raw.as_bytes())
                .map_err(|error| CallError::undecodable(P::METHOD, error))?;
            let answers = match next_step(&input, n_rounds, self.limits.input_rounds) {
                Next::Stop => return Err(CallError::TooManyRounds { rounds: n_rounds }),
                Next::Wait => {
                    sleep(EMPTY_ROUND_DELAY).await;
                    None
                }
                Next::Answer => Some(self.answer_input_requests(input.input_requests).await?),
            };
            n_rounds += 1;
            let state = input.request_state.as_deref();
            let round = InputRound { answers: answers.as_ref(), state, options };
            raw = params.resend(self, round).await?;
            match self.result_type(&raw) {
                ResultType::InputRequired => {}
                ResultType::Task => return self.poll_task::<P>(raw, options).await,
                _ => return self.require_complete(P::METHOD, raw),
            }
        }
    }

    /// Spec 2026-07-28, multi round-trip requests: without an answer to a request there is no point in
    /// repeating the request. A form that was declined is an answer.
    pub(crate) async fn answer_input_requests(
        &self,
        requests: Vec<(String, InputRequest)>,
    ) -> Result<InputResponses, CallError> {
        let mut answers = InputResponses::default();
        for (key, request) in requests {
            let method = request.method().to_owned();
            let answer = self.request_handler.handle(&self.incoming, request).await;
            let answer = answer.map_err(|unanswered| CallError::InputUnanswered {
                method,
                reason: unanswered.to_string(),
            })?;
            answers.push(key, answer);
        }
        Ok(answers)
    }

    /// Spec 2025-11-25, elicitation §URL mode: a server may refuse until the user has opened some
    /// urls; then the request is repeated, once.
    async fn retry_after_urls<P: MultiRoundTrip>(
        &self,
        params: &P,
        options: &CallOptions,
        error: JsonRpcError,
    ) -> Result<RawJson, CallError> {
        match self.required_urls(&error) {
            Some(urls) => self.open_urls(params, options, urls, error).await,
            None => Err(CallError::Refused(error)),
        }
    }

    fn required_urls(&self, error: &JsonRpcError) -> Option<Vec<UrlElicitation>> {
        let code = ErrorCode(error.code);
        let expected =
            self.revision() == Revision::R2025_11_25 && self.request_handler.supports_urls();
        if code != ErrorCode::URL_ELICITATION_REQUIRED || !expected {
            return None;
        }
        let data = serde_json::to_vec(error.data.as_ref()?).ok()?;
        match ErrorDetail::read(code, &data) {
            Some(ErrorDetail::UrlElicitationRequired(urls)) => Some(urls),
            _ => None,
        }
    }

    async fn open_urls<P: MultiRoundTrip>(
        &self,
        params: &P,
        options: &CallOptions,
        urls: Vec<UrlElicitation>,
        error: JsonRpcError,
    ) -> Result<RawJson, CallError> {
        for url in urls {
            let request = InputRequest::Elicitation(Elicitation::Url(url));
            let answer = self.request_handler.handle(&self.incoming, request).await;
            let Ok(InputResponse::Elicitation(ElicitationAnswer::Accept { .. })) = answer else {
                return Err(CallError::Refused(error));
            };
        }
        self.send_request(params, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, n_rounds: u32, expected: Next) {
        let input = InputRequired::parse(raw.as_bytes()).unwrap();
        assert_eq!(next_step(&input, n_rounds, 3), expected, "{raw} {n_rounds}");
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
