//! A piece of JSON text that has been cut out of a message and not read yet.
//!
//! **Invariant:** the bytes are exactly those the peer sent. Whether they are JSON at all is found out
//! by the caller that decodes them, in its own task.

use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Undecoded JSON, cheap to clone and to hand over.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Bytes);

impl RawJson {
    /// The literal `null`.
    pub const NULL: RawJson = RawJson(Bytes::from_static(b"null"));

    /// Takes text that stands where JSON should stand.
    pub fn new(text: impl Into<Bytes>) -> Self {
        Self(text.into())
    }

    /// The text as it came.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads the text as `T`, which may borrow from it.
    pub fn decode<'de, T: Deserialize<'de>>(&'de self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// Checks that the text is one JSON value and gives it as such, without copying it.
    pub fn checked(&self) -> Result<&RawValue, serde_json::Error> {
        self.decode()
    }

    /// Gives the buffer up, for a caller that forwards it.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<Box<RawValue>> for RawJson {
    fn from(value: Box<RawValue>) -> Self {
        Self(Bytes::from(Box::<str>::from(value).into_boxed_bytes()))
    }
}

/// Payloads may hold secrets, so only their size is shown.
impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}
