//! Log messages of servers, and how much of them one wants.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::serde_lenient::or_absent;

/// How much a log message matters, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Of use when looking for a fault.
    Debug,
    /// General.
    Info,
    /// Normal but worth a look.
    Notice,
    /// Something may be wrong.
    Warning,
    /// Something is wrong.
    Error,
    /// A part has failed.
    Critical,
    /// Somebody must act now.
    Alert,
    /// Nothing works.
    Emergency,
}

impl LogLevel {
    /// Every level, least first.
    pub const ALL: &'static [Self] = &[
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// Reads the name on the wire.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.as_str() == name)
    }
}

/// `logging/setLevel`: from which level on messages are wanted. Legacy era only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SetLevelParams {
    /// The least that is wanted.
    pub level: LogLevel,
}

/// `notifications/message`: a server says something for the log.
#[derive(Debug, Clone, Deserialize)]
pub struct LogMessage {
    /// How much it matters. A level that does not exist is read as [`LogLevel::Info`].
    #[serde(deserialize_with = "level_or_info")]
    pub level: LogLevel,
    /// Which part of the server speaks.
    #[serde(default, deserialize_with = "or_absent")]
    pub logger: Option<String>,
    /// What it says, any JSON, as written.
    pub data: Box<RawValue>,
}

/// A message is worth more than the spelling of its level.
fn level_or_info<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LogLevel, D::Error> {
    or_absent(deserializer).map(|it| it.unwrap_or(LogLevel::Info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_and_named_alike_everywhere() {
        assert!(LogLevel::ALL.is_sorted());
        for &level in LogLevel::ALL {
            assert_eq!(LogLevel::parse(level.as_str()), Some(level));
            let written = serde_json::to_string(&level).unwrap();
            assert_eq!(written, format!("\"{}\"", level.as_str()));
        }
        assert_eq!(LogLevel::parse("warn"), None);
    }

    #[track_caller]
    fn check(json: &str, expected: Option<(LogLevel, Option<&str>, &str)>) {
        let read: Option<LogMessage> = serde_json::from_str(json).ok();
        let said = read.as_ref().map(|it| (it.level, it.logger.as_deref(), it.data.get()));
        assert_eq!(said, expected, "{json}");
    }

    #[test]
    fn messages_are_kept_as_written() {
        check(
            r#"{"level":"alert","logger":"db","data":{"a" : 1}}"#,
            Some((LogLevel::Alert, Some("db"), r#"{"a" : 1}"#)),
        );
        check(r#"{"level":"warn","data":null}"#, Some((LogLevel::Info, None, "null")));
        check(r#"{"level":"info"}"#, None);
    }
}
