//! `ping`: either side asks whether the other still listens. Legacy era only.

use serde::Serialize;

/// The parameters of `ping`: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PingParams {}
