//! Multi-round-trip requests: answers `input_required` results until the result is complete.
//!
//! Spec 2026-07-28, multi round-trip requests: the request is repeated with a new id, the answers of this
//! round only, and the server's state unchanged.
//!
//! **Invariant:** every request ends: rounds are limited, and rounds without input requests are delayed.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::sleep;
use toolrack_mcp::{
    Elicitation, ElicitationResult, Era, ErrorCode, InputRequest, InputRequired, InputResponse,
    InputResponses, Request, ResultType, Revision, Tool, UrlElicitation, WithInput,
};
use toolrack_transport::{JsonRpcError, RawJson};

use crate::client::CallOptions;
use crate::error::CallError;
use crate::request_meta::{ForwardedFor, WantProgress};
use crate::session::Session;

/// Delay before a repeat when the server requested no input, so that it is not polled in a busy loop.
const EMPTY_ROUND_DELAY: Duration = Duration::from_millis(250);

impl Session {
    /// Sends a request and answers input requests until the result is complete.
    pub(crate) async fn send_multi_round_trip<P: Request + Sync>(
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
    async fn forward<P: Request + Sync>(
        &self,
        params: &P,
        options: &CallOptions,
        forwarded: &ForwardedFor,
    ) -> Result<RawJson, CallError> {
        // A legacy server has no place for responses and state in its params.
        if self.era() == Era::Modern && forwarded.has_input() {
            let (input_responses, request_state) =
                (forwarded.input_responses.as_ref(), forwarded.request_state.as_deref());
            let repeated = WithInput { params, input_responses, request_state };
            return self.send(&repeated, options, WantProgress::Yes).await;
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
    async fn retry_after_error<P: Request + Sync>(
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
        // Spec 2025-11-25, elicitation §URL mode: a server may reject a request until the user has opened some
        // URLs; then the request is repeated once.
        let Some(urls) = self.required_urls(&error) else { return Err(CallError::Refused(error)) };
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

    async fn run_rounds<P: Request + Sync>(
        self: &Arc<Self>,
        params: &P,
        options: &CallOptions,
        mut raw: RawJson,
    ) -> Result<RawJson, CallError> {
        let mut n_rounds = 0;
        loop {
            let input = InputRequired::parse(raw.as_bytes())
                .map_err(|error| CallError::undecodable(P::METHOD, error))?;
            if n_rounds >= self.limits.input_rounds {
                return Err(CallError::TooManyRounds { rounds: n_rounds });
            }
            let responses = if input.input_requests.is_empty() {
                sleep(EMPTY_ROUND_DELAY).await;
                None
            } else {
                // Only the answers of this round; the server keeps earlier ones in its request state.
                Some(self.answer_input_requests(input.input_requests).await?)
            };
            n_rounds += 1;
            // The state is that of this round's result: without one in it, the repeat must not send an older one.
            let (input_responses, request_state) =
                (responses.as_ref(), input.request_state.as_deref());
            let repeated = WithInput { params, input_responses, request_state };
            raw = self.send(&repeated, options, WantProgress::Yes).await?;
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
            responses.0.push((key, response));
        }
        Ok(responses)
    }

    fn required_urls(&self, error: &JsonRpcError) -> Option<Vec<UrlElicitation>> {
        #[derive(Deserialize)]
        struct ErrorData {
            elicitations: Vec<UrlElicitation>,
        }
        // The error code exists in this revision only; in the modern era URLs arrive
        // as input requests.
        let is_expected =
            self.revision() == Revision::R2025_11_25 && self.request_handler.supports_urls();
        if ErrorCode(error.code) != ErrorCode::URL_ELICITATION_REQUIRED || !is_expected {
            return None;
        }
        let data = ErrorData::deserialize(error.data.as_ref()?).ok()?;
        Some(data.elicitations)
    }
}
