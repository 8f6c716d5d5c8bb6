//! Arguments of a tool call: `name=text`, `name:=json`, `name=@file` and `name:=@file`.
//!
//! The submodules parse call expressions, read the tool's schema, and coerce the arguments to it.

pub(crate) mod call_expr;
pub(crate) mod coerce;
pub(crate) mod schema;

use std::path::PathBuf;

use serde_json::Value;

use crate::error::CliError;

/// A parsed `name=value` argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyValue {
    pub(crate) path: String,
    pub(crate) format: ValueFormat,
    pub(crate) source: ValueSource,
}

/// Format of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueFormat {
    Text,
    Json,
}

/// Source of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueSource {
    Inline(String),
    File(PathBuf),
    Stdin,
}

/// An argument with its value read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Argument {
    pub(crate) path: String,
    pub(crate) value: ArgValue,
}

/// A value before the schema is applied.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ArgValue {
    Text(String),
    Json(Value),
}

/// Parses an argument.
pub(crate) fn parse(word: &str) -> Result<KeyValue, CliError> {
    // At the first `=`: values often contain more of them.
    let Some((name, value)) = word.split_once('=') else {
        return Err(CliError::usage(
            format!("`{word}` is not a valid argument"),
            "use `name=text` or `name:=json`",
        ));
    };
    let (path, format) = match name.strip_suffix(':') {
        Some(path) => (path, ValueFormat::Json),
        None => (name, ValueFormat::Text),
    };
    if path.is_empty() {
        return Err(CliError::usage(
            format!("`{word}` has no name before `=`"),
            "use `name=text` or `name:=json`",
        ));
    }
    let source = match value.strip_prefix('@') {
        None => ValueSource::Inline(value.to_owned()),
        Some("-") => ValueSource::Stdin,
        Some(escaped) if escaped.starts_with('@') => ValueSource::Inline(escaped.to_owned()),
        Some("") => {
            let message = format!("`{word}` has no file name after `@`");
            return Err(CliError::usage(message, "use `@file`, or `@@` for a literal `@`"));
        }
        Some(file) => ValueSource::File(PathBuf::from(file)),
    };
    Ok(KeyValue { path: path.to_owned(), format, source })
}

/// Builds an argument from the text that was read.
pub(crate) fn resolve(path: &str, format: ValueFormat, text: String) -> Result<Argument, CliError> {
    let value = match format {
        ValueFormat::Text => ArgValue::Text(text),
        ValueFormat::Json => ArgValue::Json(serde_json::from_str(&text).map_err(|error| {
            let message = format!("the value of `{path}` is not valid JSON: {error}");
            let hint = format!(
                "use `{path}=…` for text, or quote the value for both the shell \
                 and JSON"
            );
            CliError::usage(message, hint).with_field(path)
        })?),
    };
    Ok(Argument { path: path.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Option<(&str, ValueFormat, ValueSource)>) {
        let expected = expected.map(|(path, format, source)| KeyValue {
            path: path.to_owned(),
            format,
            source,
        });
        assert_eq!(parse(word).ok(), expected, "{word}");
    }

    fn here(text: &str) -> ValueSource {
        ValueSource::Inline(text.to_owned())
    }

    #[test]
    fn arguments_are_names_and_values() {
        check("a=b", Some(("a", ValueFormat::Text, here("b"))));
        check("a=", Some(("a", ValueFormat::Text, here(""))));
        check("a=b=c", Some(("a", ValueFormat::Text, here("b=c"))));
        check("a.b:=[1]", Some(("a.b", ValueFormat::Json, here("[1]"))));
        check("url=https://x/?a:=1", Some(("url", ValueFormat::Text, here("https://x/?a:=1"))));
        check("a=@f.txt", Some(("a", ValueFormat::Text, ValueSource::File("f.txt".into()))));
        check("a:=@f.json", Some(("a", ValueFormat::Json, ValueSource::File("f.json".into()))));
        check("a=@-", Some(("a", ValueFormat::Text, ValueSource::Stdin)));
        check("a=@@b", Some(("a", ValueFormat::Text, here("@b"))));
        check("ab", None);
        check("=b", None);
        check(":=b", None);
        check("a=@", None);
    }

    #[test]
    fn invalid_json_is_reported_with_its_argument() {
        let failure = resolve("n", ValueFormat::Json, "{".to_owned()).unwrap_err();
        assert_eq!(failure.error_details()[0].field.as_deref(), Some("n"));
        let one = Argument { path: "n".to_owned(), value: ArgValue::Json(Value::from(1)) };
        assert_eq!(resolve("n", ValueFormat::Json, "1".to_owned()).unwrap(), one);
    }

    proptest! {
        #[test]
        fn any_text_can_be_an_argument(name in "[a-z.]{1,8}", text in any::<String>()) {
            let escaped = if text.starts_with('@') { format!("@{text}") } else { text.clone() };
            let word = parse(&format!("{name}={escaped}")).unwrap();
            prop_assert_eq!(word, KeyValue { path: name, format: ValueFormat::Text, source: ValueSource::Inline(text) });
        }

        #[test]
        fn argument_parser_never_panics(word in any::<String>()) {
            let _outcome = parse(&word);
        }
    }
}
