//! The result that says only "done".

use serde::{Deserialize, Serialize};

/// `{}`, read and written. Members that a server adds are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EmptyResult {}
