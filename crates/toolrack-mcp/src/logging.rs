//! Logging: levels, `logging/setLevel` and log messages.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::serde_lenient::or_absent;

/// Log levels, least severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Debug information.
    Debug,
    /// General information.
    Info,
    /// Normal but significant events.
    Notice,
    /// Warnings.
    Warning,
    /// Errors.
    Error,
    /// Failure of a component.
    Critical,
    /// Immediate action required.
    Alert,
    /// System unusable.
    Emergency,
}

impl LogLevel {
    /// Every level, least severe first.
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

    /// Parses the name on the wire.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|level| level.as_str() == name)
    }
}

/// `logging/setLevel`: minimum level. Legacy era only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SetLevelParams {
    /// Minimum level.
    pub level: LogLevel,
}

/// `notifications/message`: a log message of the server.
#[derive(Debug, Clone, Deserialize)]
pub struct LogMessage {
    /// Level. An unknown level is read as [`LogLevel::Info`].
    #[serde(deserialize_with = "level_or_info")]
    pub level: LogLevel,
    /// Logger name.
    #[serde(default, deserialize_with = "or_absent")]
    pub logger: Option<String>,
    /// Message, any JSON, as written.
    pub data: Box<RawValue>,
}

/// Keeps a message with an unknown level.
fn level_or_info<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LogLevel, D::Error> {
    or_absent(deserializer).map(|level| level.unwrap_or(LogLevel::Info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_levels_are_ordered_and_round_trip() {
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
        let actual = read
            .as_ref()
            .map(|message| (message.level, message.logger.as_deref(), message.data.get()));
        assert_eq!(actual, expected, "{json}");
    }

    #[test]
    fn log_data_is_kept_as_written() {
        check(
            r#"{"level":"alert","logger":"db","data":{"a" : 1}}"#,
            Some((LogLevel::Alert, Some("db"), r#"{"a" : 1}"#)),
        );
        check(r#"{"level":"warn","data":null}"#, Some((LogLevel::Info, None, "null")));
        check(r#"{"level":"info"}"#, None);
    }
}
