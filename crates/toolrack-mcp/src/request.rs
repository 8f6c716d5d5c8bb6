//! The rows of the protocol that we speak: parameters, method and answer side by side.
//!
//! The type of the parameters is the name of the row. `_meta` is in none of them: whoever sends a
//! request splices it in.

use serde::{Deserialize, Serialize};

use crate::call::{Arguments, ToolCallResult};
use crate::completion::{CompleteParams, CompleteResult};
use crate::discover::{DiscoverParams, DiscoverResult};
use crate::error::DecodeError;
use crate::initialize::{InitializeParams, InitializeResult, Initialized};
use crate::list_page::{
    ListPromptsParams, ListResourceTemplatesParams, ListResourcesParams, ListToolsParams,
};
use crate::list_page::{Listed, Page};
use crate::logging::SetLevelParams;
use crate::method::Method;
use crate::notification::{Cancelled, Progress};
use crate::prompt::{GetPromptParams, GetPromptResult, Prompt};
use crate::resource::{ReadResourceParams, ReadResourceResult};
use crate::resource::{Resource, ResourceTemplate};
use crate::resource::{SubscribeParams, UnsubscribeParams};
use crate::roots::RootsListChanged;
use crate::serde_lenient::decode;
use crate::subscriptions_listen::ListenParams;
use crate::tool::Tool;

/// Parameters of a request, which know their method and their answer.
pub trait Request: Serialize {
    /// What is asked.
    const METHOD: Method;
    /// What a complete answer holds.
    type Answer: Answer;

    /// Appends the parameters as JSON, exactly as they would be serialized.
    fn write(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error>
    where
        Self: Sized,
    {
        serde_json::to_writer(out, self)
    }

    /// What is asked about: the name of a tool or prompt, or the URI of a resource to read.
    ///
    /// Spec 2026-07-28, transports §Standard Request Headers: HTTP repeats it in `Mcp-Name`.
    fn subject(&self) -> Option<&str> {
        None
    }

    /// The arguments of a tool, some of which HTTP repeats in headers.
    fn arguments(&self) -> Option<Arguments<'_>> {
        None
    }
}

/// Parameters of a notification, which know their method.
pub trait Notification: Serialize {
    /// What is told.
    const METHOD: Method;
}

/// A result that can be read from raw JSON and kept.
pub trait Answer: Sized {
    /// Reads the `result` member of a response.
    fn decode(raw: &[u8]) -> Result<Self, DecodeError>;
}

macro_rules! requests {
    ($($params:ty, $method:ident $(($subject:ident))? => $answer:ty;)*) => {
        $(impl Request for $params {
            const METHOD: Method = Method::$method;
            type Answer = $answer;
            $(fn subject(&self) -> Option<&str> {
                Some(self.$subject)
            })?
        })*
    };
}

macro_rules! notifications {
    ($($params:ty, $method:ident;)*) => {
        $(impl Notification for $params {
            const METHOD: Method = Method::$method;
        })*
    };
}

macro_rules! plain_answers {
    ($($answer:ty;)*) => {
        $(impl Answer for $answer {
            fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
                decode(raw)
            }
        })*
    };
}

requests! {
    InitializeParams<'_>, Initialize => InitializeResult;
    DiscoverParams, Discover => DiscoverResult;
    PingParams, Ping => EmptyResult;
    ListToolsParams<'_>, ListTools => Page<Tool>;
    ListResourcesParams<'_>, ListResources => Page<Resource>;
    ListResourceTemplatesParams<'_>, ListResourceTemplates => Page<ResourceTemplate>;
    ReadResourceParams<'_>, ReadResource(uri) => ReadResourceResult<'static>;
    SubscribeParams<'_>, Subscribe => EmptyResult;
    UnsubscribeParams<'_>, Unsubscribe => EmptyResult;
    ListPromptsParams<'_>, ListPrompts => Page<Prompt>;
    GetPromptParams<'_>, GetPrompt(name) => GetPromptResult;
    CompleteParams<'_>, Complete => CompleteResult;
    SetLevelParams, SetLevel => EmptyResult;
    ListenParams<'_>, Listen => EmptyResult;
}

notifications! {
    Initialized, Initialized;
    Cancelled, Cancelled;
    Progress, Progress;
    RootsListChanged, RootsListChanged;
}

plain_answers! {
    InitializeResult;
    CompleteResult;
    EmptyResult;
    GetPromptResult;
}

impl Answer for DiscoverResult {
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        Self::parse(raw)
    }
}

impl<T: Listed> Answer for Page<T> {
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        Self::parse(raw)
    }
}

impl Answer for ToolCallResult<'static> {
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        ToolCallResult::parse(raw).map(ToolCallResult::into_owned)
    }
}

impl Answer for ReadResourceResult<'static> {
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        ReadResourceResult::parse(raw).map(ReadResourceResult::into_owned)
    }
}

/// The parameters of `ping`: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PingParams {}

/// `{}`, read and written. Members that a server adds are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EmptyResult {}
