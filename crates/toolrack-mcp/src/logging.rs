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
        let names = r#"["debug","info","notice","warning","error","critical","alert","emergency"]"#;
        let levels: Vec<LogLevel> = serde_json::from_str(names).unwrap();
        assert!(levels.is_sorted());
        assert_eq!(serde_json::to_string(&levels).unwrap(), names);
        assert!(serde_json::from_str::<LogLevel>("\"warn\"").is_err());
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
