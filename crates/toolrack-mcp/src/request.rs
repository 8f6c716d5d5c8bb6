//! Requests with their method and result types.
//!
//! The type of the parameters identifies the request. `_meta` is not part of it: the sender
//! inserts it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::call::Arguments;
use crate::completion::{CompleteParams, CompleteResult};
use crate::discover::{DiscoverParams, DiscoverResult};
use crate::error::DecodeError;
use crate::initialize::{InitializeParams, InitializeResult};
use crate::logging::SetLevelParams;
use crate::method::Method;
use crate::prompt::{GetPromptParams, GetPromptResult};
use crate::resource::{ReadResourceParams, ReadResourceResult, SubscribeParams, UnsubscribeParams};
use crate::serde_lenient::decode;
use crate::subscriptions_listen::ListenParams;
use crate::task::UpdateTaskParams;

/// Parameters of a request, with its method and result type.
pub trait Request: Serialize {
    /// The method.
    const METHOD: Method;
    /// Complete result.
    type Result: RequestResult;

    /// Writes the parameters as JSON.
    fn write(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error>
    where
        Self: Sized,
    {
        serde_json::to_writer(out, self)
    }

    /// Name of the tool or prompt, or URI of the resource.
    ///
    /// Spec 2026-07-28, transports §Standard Request Headers: HTTP repeats it in `Mcp-Name`.
    fn subject(&self) -> Option<&str> {
        None
    }

    /// Tool arguments; HTTP repeats some of them in headers.
    fn arguments(&self) -> Option<Arguments<'_>> {
        None
    }
}

/// A result that can be read from raw JSON and stored.
pub trait RequestResult: Sized {
    /// Reads the `result` member of a response.
    fn decode(raw: &[u8]) -> Result<Self, DecodeError>;
}

macro_rules! requests {
    ($($params:ty, $method:ident $(($subject:ident))? => $answer:ty;)*) => {
        $(impl Request for $params {
            const METHOD: Method = Method::$method;
            type Result = $answer;
            $(fn subject(&self) -> Option<&str> {
                Some(self.$subject)
            })?
        })*
    };
}

requests! {
    InitializeParams<'_>, Initialize => InitializeResult;
    DiscoverParams, Discover => DiscoverResult;
    PingParams, Ping => EmptyResult;
    ReadResourceParams<'_>, ReadResource(uri) => ReadResourceResult;
    SubscribeParams<'_>, Subscribe => EmptyResult;
    UnsubscribeParams<'_>, Unsubscribe => EmptyResult;
    GetPromptParams<'_>, GetPrompt(name) => GetPromptResult;
    CompleteParams<'_>, Complete => CompleteResult;
    SetLevelParams, SetLevel => EmptyResult;
    ListenParams<'_>, Listen => EmptyResult;
    UpdateTaskParams<'_>, UpdateTask(task_id) => EmptyResult;
}

impl<T: DeserializeOwned> RequestResult for T {
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        decode(raw)
    }
}

/// Parameters of `ping`: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PingParams {}

/// `{}`. Unknown members are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EmptyResult {}
