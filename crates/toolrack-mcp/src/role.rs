//! Who speaks in a message.

use serde::{Deserialize, Serialize};

/// The speaker of a prompt or sampling message, and the audience of a content block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person, or the program on their behalf.
    User,
    /// The model.
    Assistant,
}
