//! Multi-round-trip requests: answers `input_required` results until the result is complete.
//!
//! Spec 2026-07-28, multi round-trip requests: the request is repeated with a new id, the answers of this
//! round only, and the server's state unchanged.
//!
//! **Invariant:** every request ends: rounds are limited, and rounds without input requests are delayed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use toolrack_mcp::{
    CallToolParams, Elicitation, ElicitationResult, Era, ErrorCode, ErrorData, GetPromptParams,
    InputRequest, InputRequired, InputResponse, InputResponses, ReadResourceParams, Request,
    ResultType, Revision, Tool, UrlElicitation,
};
use toolrack_transport::{BoxFuture, JsonRpcError, RawJson};

use crate::client::CallOptions;
use crate::error::CallError;
use crate::request_meta::{ForwardedFor, WantProgress};
use crate::session::Session;

/// Delay before a repeat when the server requested no input, so that it is not polled in a busy loop.
const EMPTY_ROUND_DELAY: Duration = Duration::from_millis(250);

/// A request that can be repeated with input responses.
pub(crate) trait MultiRoundTrip: Request + Sync {
    /// Repeats the request. Boxed, because the parameters of a repeat have a shorter lifetime than those of
    /// the first request, which a generic caller cannot name.
    fn resend<'b>(
        &'b self,
        session: &'b Session,
        round: InputRound<'b>,
    ) -> BoxFuture<'b, Result<RawJson, CallError>>;
}

/// Additions to a repeated request.
#[derive(Clone, Copy)]
pub(crate) struct InputRound<'b> {
    responses: Option<&'b InputResponses>,
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
                let InputRound { responses, state, options } = round;
                let params = $params { input_responses: responses, request_state: state, ..*self };
                Box::pin(async move { session.send(&params, options, WantProgress::Yes).await })
            }
        })*
    };
}

multi_round_trip! {
    CallToolParams;
    GetPromptParams;
    ReadResourceParams;
}

/// Reaction to an `input_required` result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Answer the input requests and repeat.
    Answer,
    /// Wait and repeat.
    Wait,
    /// Too many rounds.
    Stop,
}

fn next_step(input: &InputRequired, n_rounds: u32, max_rounds: u32) -> Next {
    if n_rounds >= max_rounds {
        return Next::Stop;
    }
    if input.input_requests.is_empty() { Next::Wait } else { Next::Answer }
}

impl Session {
    /// Sends a request and answers input requests until the result is complete.
    pub(crate) async fn send_multi_round_trip<P: MultiRoundTrip>(
        self: &Arc<Self>,
        params: &P,
        options: &CallOptions,
    ) -> Result<RawJson, CallError> {
        if let Some(forwarded) = options.forwarded_for.as_deref() {
            // Boxed like the paths below: only a gateway forwards.
            return Box::pin(self.forward(params, options, forwarded)).await;
        }
        let raw = match self.send(params, options, WantProgress::Yes).await {
            Err(CallError::Refused(error)) => {
                Box::pin(self.retry_after_error(params, options, error)).await?
            }
            outcome => outcome?,
        };
        match self.result_type(&raw) {
            ResultType::Complete => Ok(raw),
            // Rare paths are boxed, so that the future of a plain call stays small.
            ResultType::InputRequired => Box::pin(self.run_rounds(params, options, raw)).await,
            ResultType::Task => Box::pin(self.poll_task::<P>(raw, options)).await,
            ResultType::Other => self.require_complete(P::METHOD, raw),
        }
    }

    /// Forwards a request of another client. That client answers input requests, so the result is returned as is.
    async fn forward<P: MultiRoundTrip>(
        &self,
        params: &P,
        options: &CallOptions,
        forwarded: &ForwardedFor,
    ) -> Result<RawJson, CallError> {
        // A legacy server has no place for responses and state in its params.
        if self.era() == Era::Modern && forwarded.has_input() {
            let (responses, state) =
                (forwarded.input_responses.as_ref(), forwarded.request_state.as_deref());
            return params.resend(self, InputRound { responses, state, options }).await;
        }
        match self.send(params, options, WantProgress::Yes).await {
            // The headers are ours; every other error belongs to the original client.
            Err(CallError::Refused(error))
                if ErrorCode(error.code) == ErrorCode::HEADER_MISMATCH =>
            {
                self.retry_after_error(params, options, error).await
            }
            outcome => outcome,
        }
    }

    /// Repeats the request once if its error allows that, else returns the error.
    async fn retry_after_error<P: MultiRoundTrip>(
        &self,
        params: &P,
        options: &CallOptions,
        error: JsonRpcError,
    ) -> Result<RawJson, CallError> {
        let mismatch = ErrorCode(error.code) == ErrorCode::HEADER_MISMATCH;
        if mismatch && self.is_stateless() && params.arguments().is_some() {
            // Spec 2026-07-28, transports §Custom Headers: the tool's schema may have changed, so the list is
            // fetched before the one retry.
            self.fetch_list::<Tool>().await?;
            return self.send(params, options, WantProgress::Yes).await;
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
            let responses = match next_step(&input, n_rounds, self.limits.input_rounds) {
                Next::Stop => return Err(CallError::TooManyRounds { rounds: n_rounds }),
                Next::Wait => {
                    sleep(EMPTY_ROUND_DELAY).await;
                    None
                }
                // Only the answers of this round; the server keeps earlier ones in
                // its request state.
                Next::Answer => Some(self.answer_input_requests(input.input_requests).await?),
            };
            n_rounds += 1;
            // From this round's result: without a state in it, the repeat must not send
            // an older one.
            let state = input.request_state.as_deref();
            let round = InputRound { responses: responses.as_ref(), state, options };
            raw = params.resend(self, round).await?;
            match self.result_type(&raw) {
                ResultType::InputRequired => {}
                ResultType::Task => return self.poll_task::<P>(raw, options).await,
                _ => return self.require_complete(P::METHOD, raw),
            }
        }
    }

    /// Spec 2026-07-28, multi round-trip requests: without an answer there is no point in a repeat. A declined
    /// form is an answer.
    pub(crate) async fn answer_input_requests(
        &self,
        requests: Vec<(String, InputRequest)>,
    ) -> Result<InputResponses, CallError> {
        let mut responses = InputResponses::default();
        // One after the other, because the user can fill in one form at a time.
        for (key, request) in requests {
            let method = request.method().to_owned();
            let response = self.request_handler.handle(&self.incoming, request).await;
            let response = response.map_err(|error| CallError::InputUnanswered {
                method,
                reason: error.to_string(),
            })?;
            responses.push(key, response);
        }
        Ok(responses)
    }

    /// Spec 2025-11-25, elicitation §URL mode: a server may reject a request until the user has opened some
    /// URLs; then the request is repeated once.
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
        // The error code exists in this revision only; in the modern era URLs arrive
        // as input requests.
        let expected =
            self.revision() == Revision::R2025_11_25 && self.request_handler.supports_urls();
        if code != ErrorCode::URL_ELICITATION_REQUIRED || !expected {
            return None;
        }
        let data = serde_json::to_vec(error.data.as_ref()?).ok()?;
        match ErrorData::from_code(code, &data) {
            Some(ErrorData::UrlElicitationRequired(urls)) => Some(urls),
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
            // A URL that the user did not accept makes the same error certain, so it is not
            // asked for again.
            let Ok(InputResponse::Elicitation(ElicitationResult::Accept { .. })) = answer else {
                return Err(CallError::Refused(error));
            };
        }
        self.send(params, options, WantProgress::Yes).await
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
    fn rounds_are_limited_and_delayed() {
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
