//! Calls for whoever wants all of the answer, and to know how far a call came that has none.

use serde_json::value::RawValue;
use toolrack_client::CallOptions;
use toolrack_manager::Called;
use toolrack_transport::Delivery;
use toolrack_transport::RawJson;

use super::LocalService;
use crate::error::ServiceError;
use crate::error_mapping;

/// A call that is to be made.
#[derive(Debug)]
pub struct ToolCall<'a> {
    /// By which number events tell of it. From
    /// [`reserve_call`](toolrack_manager::McpManager::reserve_call) of the manager.
    pub number: u64,
    /// Which tool.
    pub called: Called<'a>,
    /// With what.
    pub arguments: &'a RawValue,
    /// And how.
    pub options: CallOptions,
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFault {
    /// Why.
    pub error: ServiceError,
    /// How far it came.
    pub delivery: Delivery,
}

impl LocalService {
    /// Calls a tool, and gives everything it answered. What must not be seen is taken out of the answer.
    ///
    /// # Errors
    ///
    /// When there is no answer. A tool that ran and failed is an answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call(&self, call: ToolCall<'_>) -> Result<RawJson, CallFault> {
        let unsent = |error| CallFault { error, delivery: Delivery::NotSent };
        self.inner.catch_up().await.map_err(unsent)?;
        let ToolCall { number, called, arguments, options } = call;
        let made = self.inner.manager.call_reserved(number, called, arguments, &options);
        let raw = made.await.map_err(|error| CallFault {
            error: self.inner.masked(error_mapping::of_rack(&error)),
            delivery: error.delivery(),
        })?;
        Ok(self.inner.unseen(raw))
    }
}

impl super::Inner {
    /// The same answer without what must not be seen. One without it is not copied.
    fn unseen(&self, raw: RawJson) -> RawJson {
        RawJson::new(self.mask.clean_json(raw.into_bytes()))
    }
}
