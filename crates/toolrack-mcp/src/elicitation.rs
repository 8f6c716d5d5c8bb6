//! Elicitation: a server asks the user, by a form or by a page to open.

use serde::{Deserialize, Serialize};

use crate::error::DecodeError;
use crate::form::{FormContent, FormSchema};
use crate::serde_lenient::{decode_params, or_absent};

/// What a server asks of the user.
#[derive(Debug, Clone)]
pub enum Elicitation {
    /// To fill in a form, since 2025-06-18.
    Form(FormElicitation),
    /// To open a page, since 2025-11-25.
    Url(UrlElicitation),
}

/// A form to fill in.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormElicitation {
    /// Why the server asks, for the user to read.
    pub message: String,
    /// The form.
    #[serde(rename = "requestedSchema")]
    pub schema: FormSchema,
}

/// A page to open. It must not be fetched by us, and not be opened without consent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UrlElicitation {
    /// Why the server asks, for the user to read.
    pub message: String,
    /// The page.
    pub url: String,
    /// What the server will call it when it is done. Only in 2025-11-25.
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

    /// Why the server asks, for the user to read.
    pub fn message(&self) -> &str {
        match self {
            Self::Form(form) => &form.message,
            Self::Url(page) => &page.message,
        }
    }
}

/// What the user said.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum ElicitationAnswer {
    /// Yes. For a page this means consent to open it, not that the matter is done.
    Accept {
        /// What was filled in; nothing for a page.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<FormContent>,
    },
    /// An explicit no.
    Decline,
    /// No choice was made: the question was dismissed, or nobody was there.
    Cancel,
}

/// `notifications/elicitation/complete`: what a page was opened for is done. Only in 2025-11-25.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationComplete {
    /// Which of them. An unknown one is to be ignored.
    pub elicitation_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::FieldValue;

    #[track_caller]
    fn check(json: &str, expected: Option<&str>) {
        let read = Elicitation::parse(json.as_bytes()).ok();
        let said = read.map(|it| match it {
            Elicitation::Form(form) => {
                format!("form {} {}", form.message, form.schema.fields().len())
            }
            Elicitation::Url(page) => {
                format!("page {} {} {:?}", page.message, page.url, page.elicitation_id)
            }
        });
        assert_eq!(said.as_deref(), expected, "{json}");
    }

    /// Protocol facts §12.3 and §12.4.
    #[test]
    fn the_mode_decides_and_a_missing_one_is_a_form() {
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
    fn answers_have_content_only_when_accepted() {
        let content = FormContent::from([("a".to_owned(), FieldValue::Boolean(true))]);
        let answers = [
            ElicitationAnswer::Accept { content: Some(content) },
            ElicitationAnswer::Accept { content: None },
            ElicitationAnswer::Decline,
            ElicitationAnswer::Cancel,
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
