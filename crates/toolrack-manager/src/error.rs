//! Why the manager could not do what was asked.

use std::time::Duration;

use toolrack_client::CallError;
use toolrack_mcp::DecodeError;
use toolrack_transport::Delivery;

use crate::connection_state::ConnectionState;
use crate::tool_filter::Rule;

/// Why the manager could not do what was asked. Its text is about what was asked; why a call came to nothing is its
/// source, and [`with_causes`](crate::with_causes) gives both in one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RackError {
    /// No server has this name.
    #[error("there is no server `{server}`{}", meant(.nearest))]
    NoSuchServer {
        /// What was asked for.
        server: String,
        /// What may have been meant.
        nearest: Vec<String>,
    },
    /// No tool has this name.
    #[error("there is no tool `{tool}`{}", meant(.nearest))]
    NoSuchTool {
        /// What was asked for.
        tool: String,
        /// What may have been meant.
        nearest: Vec<String>,
    },
    /// Tools of several servers may be meant.
    #[error("the name `{tool}` is ambiguous: it may mean `{}`", .readings.join("` or `"))]
    Ambiguous {
        /// What was asked for.
        tool: String,
        /// Names that each mean one tool only.
        readings: Vec<String>,
    },
    /// The tool is there, and it is not to be used.
    #[error("the tool `{tool}` of `{server}` is denied: {rule}")]
    Denied {
        /// Where it is.
        server: String,
        /// As the server names it.
        tool: String,
        /// What keeps it out.
        rule: Rule,
    },
    /// The server does not take calls, and waiting does not help.
    #[error("the server `{server}` is not connected ({state})")]
    NotConnected {
        /// Which server.
        server: String,
        /// Where it stands.
        state: ConnectionState,
    },
    /// The server is being started, and that takes too long for this call.
    #[error("the server `{server}` was not ready within {waited:?} ({state})")]
    NotReady {
        /// Which server.
        server: String,
        /// Where it stands.
        state: ConnectionState,
        /// How long the call waited.
        waited: Duration,
    },
    /// The call has no result.
    #[error("the call of `{tool}` on `{server}` has no result")]
    Call {
        /// Which server.
        server: String,
        /// As the server names it.
        tool: String,
        /// Why.
        source: Box<CallError>,
    },
    /// The result is no answer to a call.
    #[error("the result of `{tool}` on `{server}` does not fit the protocol")]
    Undecodable {
        /// Which server.
        server: String,
        /// As the server names it.
        tool: String,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// The manager has been closed, or the runtime in which it was built has ended.
    #[error("the manager is closed")]
    Closed,
}

impl RackError {
    /// How far the request of a call may have traveled.
    pub fn delivery(&self) -> Delivery {
        match self {
            RackError::Call { source, .. } => source.delivery(),
            RackError::Undecodable { .. } => Delivery::Answered,
            _ => Delivery::NotSent,
        }
    }

    /// What to try next.
    pub fn hint(&self) -> Option<String> {
        match self {
            RackError::NotConnected { state, .. } | RackError::NotReady { state, .. } => {
                let told = state.failure().and_then(|it| it.hint()).map(str::to_owned);
                let general = match state {
                    ConnectionState::Disabled => "set `enabled = true` in the config to use it",
                    ConnectionState::Disconnected => "connect the server first",
                    ConnectionState::NeedsAuth(_) => "log in to the server first",
                    _ => "try again in a moment",
                };
                told.or_else(|| Some(general.to_owned()))
            }
            RackError::Ambiguous { .. } => Some("say which one is meant".to_owned()),
            RackError::Denied { .. } => {
                Some("change `allow` or `deny` of the server to use it".to_owned())
            }
            RackError::Call { source, .. } if source.delivery() == Delivery::Unknown => {
                Some("the server may have done it; look before calling again".to_owned())
            }
            RackError::Closed => {
                let hint = "it was shut down, or the runtime in which it was opened has ended";
                Some(hint.to_owned())
            }
            _ => None,
        }
    }
}

/// Suggestions behind a comma, or nothing.
fn meant(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!(", but there is `{}`", names.join("`, `")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Failure, FailureKind};

    #[track_caller]
    fn check(error: RackError, shown: &str, hint: Option<&str>) {
        assert_eq!((error.to_string().as_str(), error.hint().as_deref()), (shown, hint));
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let nearest = vec!["git_log".to_owned(), "git_show".to_owned()];
        check(
            RackError::NoSuchTool { tool: "git_lgo".to_owned(), nearest },
            "there is no tool `git_lgo`, but there is `git_log`, `git_show`",
            None,
        );
        let readings = vec!["db.prod_query".to_owned(), "db_prod.query".to_owned()];
        check(
            RackError::Ambiguous { tool: "db_prod_query".to_owned(), readings },
            "the name `db_prod_query` is ambiguous: it may mean `db.prod_query` or `db_prod.query`",
            Some("say which one is meant"),
        );
        let rule = Rule::Denied { pattern: "write_*".to_owned() };
        check(
            RackError::Denied { server: "fs".to_owned(), tool: "write_file".to_owned(), rule },
            "the tool `write_file` of `fs` is denied: the rule `deny = \"write_*\"` matches it",
            Some("change `allow` or `deny` of the server to use it"),
        );
        let failure = Failure::new(FailureKind::MissingTool, "no program").hinting("install it");
        let state = ConnectionState::Failed(failure);
        check(
            RackError::NotConnected { server: "fs".to_owned(), state },
            "the server `fs` is not connected (failed: no program)",
            Some("install it"),
        );
        let (server, state) = ("fs".to_owned(), ConnectionState::Disabled);
        check(
            RackError::NotConnected { server, state },
            "the server `fs` is not connected (disabled)",
            Some("set `enabled = true` in the config to use it"),
        );
    }
}
