//! What the program around a client can do for servers: ask its user, ask a model, name directories.

use serde_json::value::RawValue;
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationAnswer, LogMessage, Root, SamplingParams,
    SamplingResult,
};
use toolrack_transport::BoxFuture;
use toolrack_transport::{JsonRpcError, RawJson};

/// Answers what servers ask.
///
/// A server is told of exactly those abilities that [`capabilities`](Self::capabilities) names, and
/// nothing else is ever asked of the other methods. Whoever is asked must be shown which server asks.
pub trait ClientHandler: Send + Sync {
    /// What can be asked. Read once for each connection.
    fn capabilities(&self) -> ClientCapabilities;

    /// The user is asked to fill in a form or to open a page. A page must not be fetched, and not be
    /// opened without the user's consent to the address shown in full.
    ///
    /// # Cancel safety
    /// The future is dropped when the server no longer wants the answer.
    fn elicit<'a>(
        &'a self,
        _server: &'a str,
        _question: Elicitation,
    ) -> BoxFuture<'a, ElicitationAnswer> {
        Box::pin(async { ElicitationAnswer::Cancel })
    }

    /// A model is asked to go on with a conversation.
    ///
    /// # Cancel safety
    /// The future is dropped when the server no longer wants the answer.
    fn sample<'a>(
        &'a self,
        _server: &'a str,
        _params: SamplingParams,
    ) -> BoxFuture<'a, Result<SamplingResult, Refusal>> {
        Box::pin(async { Err(Refusal::Failed("no model is connected".to_owned())) })
    }

    /// The directories that the server may regard as its place of work.
    fn roots<'a>(&'a self, _server: &'a str) -> BoxFuture<'a, Vec<Root>> {
        Box::pin(async { Vec::new() })
    }

    /// For a program that passes questions on to somebody else: gets the question of a legacy server as it
    /// was written, and gives the answer as it is to be written. `None` has the other methods asked.
    ///
    /// # Cancel safety
    /// The future is dropped when the server no longer wants the answer.
    fn pass_on<'a>(
        &'a self,
        _server: &'a str,
        _question: RawQuestion<'a>,
    ) -> Option<BoxFuture<'a, Result<Box<RawValue>, JsonRpcError>>> {
        None
    }

    /// The server says something for the log. Called by the task that received it, so it must not wait.
    fn log(&self, _message: &LogMessage) {}

    /// The same, for a program that wants to know which server speaks.
    fn log_from(&self, _server: &str, message: &LogMessage) {
        self.log(message);
    }
}

/// A question as a legacy server wrote it.
#[derive(Debug, Clone, Copy)]
pub struct RawQuestion<'a> {
    /// What is asked for.
    pub method: &'a str,
    /// The parameters, if there are any.
    pub params: Option<&'a RawJson>,
    /// The id of our request that it belongs to, if the line tells. [`Behalf::noting`](crate::Behalf::noting) tells
    /// which id a request has.
    pub about: Option<u64>,
}

/// Why a model was not asked, or did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The user does not want it.
    #[error("the user does not want it")]
    ByUser,
    /// It did not work.
    #[error("{0}")]
    Failed(String),
}
