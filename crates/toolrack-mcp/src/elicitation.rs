//! Elicitation: the server requests input from the user, by a form or a URL.

use serde::{Deserialize, Serialize};

use crate::error::DecodeError;
use crate::form::{FormContent, FormSchema};
use crate::serde_lenient::{decode_params, or_absent};

/// Parameters of `elicitation/create`.
#[derive(Debug, Clone)]
pub enum Elicitation {
    /// Form mode, since 2025-06-18.
    Form(FormElicitation),
    /// URL mode, since 2025-11-25.
    Url(UrlElicitation),
}

/// A form.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormElicitation {
    /// Reason for the request, shown to the user.
    pub message: String,
    /// The fields.
    #[serde(rename = "requestedSchema")]
    pub schema: FormSchema,
}

/// A URL. It must not be fetched, and not be opened without consent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UrlElicitation {
    /// Reason for the request, shown to the user.
    pub message: String,
    /// The URL.
    pub url: String,
    /// Id in the completion notification. Only in 2025-11-25.
    #[serde(default, deserialize_with = "or_absent")]
    pub elicitation_id: Option<String>,
}

impl Elicitation {
    /// Reads the parameters of `elicitation/create`.
    pub fn parse(params: &[u8]) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct Mode {
            mode: Option<ModeName>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum ModeName {
            Form,
            Url,
        }
        let Mode { mode } = decode_params(params)?;
        match mode {
            // Spec 2025-11-25, elicitation §Form mode: a missing mode is a form.
            None | Some(ModeName::Form) => decode_params(params).map(Self::Form),
            Some(ModeName::Url) => decode_params(params).map(Self::Url),
        }
    }

    /// Reason for the request, shown to the user.
    pub fn message(&self) -> &str {
        match self {
            Self::Form(form) => &form.message,
            Self::Url(page) => &page.message,
        }
    }
}

/// Result of `elicitation/create`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum ElicitationResult {
    /// The user accepts. For a URL this is consent to open it, not completion.
    Accept {
        /// Form values; absent for a URL.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<FormContent>,
    },
    /// The user declines.
    Decline,
    /// The user dismissed the request, or no user is present.
    Cancel,
}

/// `notifications/elicitation/complete`: the user finished at the URL. Only in 2025-11-25.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationComplete {
    /// Id of the elicitation. Unknown ids are ignored.
    pub elicitation_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::FieldValue;

    #[track_caller]
    fn check(json: &str, expected: Option<&str>) {
        let read = Elicitation::parse(json.as_bytes()).ok();
        let actual = read.map(|elicitation| match elicitation {
            Elicitation::Form(form) => {
                format!("form {} {}", form.message, form.schema.fields().len())
            }
            Elicitation::Url(page) => {
                format!("page {} {} {:?}", page.message, page.url, page.elicitation_id)
            }
        });
        assert_eq!(actual.as_deref(), expected, "{json}");
    }

    /// Protocol facts §12.3 and §12.4.
    #[test]
    fn missing_elicitation_mode_is_form() {
        let schema = r#""requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}"#;
        check(&format!(r#"{{"message":"m",{schema}}}"#), Some("form m 1"));
        check(&format!(r#"{{"mode":"form","message":"m",{schema}}}"#), Some("form m 1"));
        check(&format!(r#"{{"mode":"voice","message":"m",{schema}}}"#), None);
        check(
            r#"{"mode":"url","message":"m","url":"https://e.org","elicitationId":"7"}"#,
            Some(r#"page m https://e.org Some("7")"#),
        );
        check(
            r#"{"mode":"url","message":"m","url":"https://e.org"}"#,
            Some("page m https://e.org None"),
        );
        check(r#"{"mode":"url","message":"m"}"#, None);
        check(r#"{"message":"m"}"#, None);
        check("", None);
    }

    #[test]
    fn elicitation_content_only_when_accepted() {
        let content = FormContent::from([("a".to_owned(), FieldValue::Boolean(true))]);
        let answers = [
            ElicitationResult::Accept { content: Some(content) },
            ElicitationResult::Accept { content: None },
            ElicitationResult::Decline,
            ElicitationResult::Cancel,
        ];
        assert_eq!(
            serde_json::to_string(&answers).unwrap(),
            concat!(
                r#"[{"action":"accept","content":{"a":true}},{"action":"accept"},"#,
                r#"{"action":"decline"},{"action":"cancel"}]"#
            )
        );
    }
}
