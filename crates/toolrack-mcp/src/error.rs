//! The one way in which reading a payload can fail.

/// A payload that does not fit the protocol.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not JSON, or not of the shape the protocol gives it.
    #[error("the payload does not fit the protocol")]
    Shape(#[from] serde_json::Error),
    /// A member without which the payload means nothing.
    #[error("the payload has no `{member}`")]
    Missing {
        /// Its name on the wire.
        member: &'static str,
    },
}
