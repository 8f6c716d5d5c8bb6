//! Arguments of a tool call: `name=text`, `name:=json`, `name=@file` and `name:=@file`.
//!
//! The submodules parse call expressions, read the tool's schema, and coerce the arguments to it.

pub(crate) mod call_expr;
pub(crate) mod coerce;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod schema;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use toolrack_platform::read_pipe_at_most;

use crate::error::CliError;

/// Maximum size of an argument read from a file or from stdin.
const FILE_LIMIT_BYTES: u64 = 32 << 20;

/// The arguments of a call as typed, before the schema is applied.
#[derive(Debug, Default)]
pub(crate) struct TypedArguments {
    /// Object from `--args` or a call expression.
    pub(crate) object: Map<String, Value>,
    /// The path and the value of each `name=value` argument.
    pub(crate) members: Vec<(String, ArgValue)>,
    /// Whether they are sent even if the schema does not allow them.
    pub(crate) is_unchecked: bool,
}

/// A value before the schema is applied.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ArgValue {
    Text(String),
    Json(Value),
}

/// A parsed `name=value` argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyValue {
    pub(crate) path: String,
    pub(crate) is_json: bool,
    source: ValueSource,
}

/// Source of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ValueSource {
    Inline(String),
    File(PathBuf),
    Stdin,
}

impl KeyValue {
    /// Parses an argument.
    pub(crate) fn parse(word: &str) -> Result<Self, CliError> {
        let invalid = |reason: &str| {
            let hint = "use `name=text` or `name:=json`";
            CliError::usage(format!("`{word}` {reason}"), hint)
        };
        // At the first `=`: values often contain more of them.
        let (name, value) =
            word.split_once('=').ok_or_else(|| invalid("is not a valid argument"))?;
        let path = name.strip_suffix(':').unwrap_or(name);
        if path.is_empty() {
            return Err(invalid("has no name before `=`"));
        }
        let source = match value.strip_prefix('@') {
            None => ValueSource::Inline(value.to_owned()),
            Some("-") => ValueSource::Stdin,
            Some(escaped) if escaped.starts_with('@') => ValueSource::Inline(escaped.to_owned()),
            Some("") => {
                let hint = "use `@file`, or `@@` for a literal `@`";
                return Err(invalid("has no file name after `@`").with_hint(hint));
            }
            Some(file) => ValueSource::File(PathBuf::from(file)),
        };
        Ok(Self { path: path.to_owned(), is_json: name.ends_with(':'), source })
    }

    /// The text of the value, which may be in a file or on stdin.
    pub(crate) fn read_text(&self) -> Result<String, CliError> {
        match &self.source {
            ValueSource::Inline(text) => Ok(text.clone()),
            ValueSource::Stdin => read_input(&self.path),
            ValueSource::File(path) => read_file(&self.path, path),
        }
    }

    /// The value, parsed if it is JSON.
    pub(crate) fn read(&self) -> Result<ArgValue, CliError> {
        let (path, text) = (&self.path, self.read_text()?);
        if !self.is_json {
            return Ok(ArgValue::Text(text));
        }
        serde_json::from_str(&text).map(ArgValue::Json).map_err(|error| {
            let message = format!("the value of `{path}` is not valid JSON: {error}");
            let hint =
                format!("use `{path}=…` for text, or quote the value for both the shell and JSON");
            CliError::usage(message, hint).with_field(path)
        })
    }
}

pub(crate) fn read_file(field: &str, path: &Path) -> Result<String, CliError> {
    // A pipe is fine here, as in `@<(command)`.
    read_pipe_at_most(path, FILE_LIMIT_BYTES).map_err(|error| {
        let message = format!("cannot read file {}: {error}", path.display());
        CliError::usage(message, "check the path; use `@@` for a literal `@`").with_field(field)
    })
}

pub(crate) fn read_input(field: &str) -> Result<String, CliError> {
    let mut text = String::new();
    let read = io::stdin().lock().take(FILE_LIMIT_BYTES).read_to_string(&mut text);
    read.map_err(|error| {
        let message = format!("cannot read stdin: {error}");
        CliError::usage(message, "stdin must be UTF-8 text").with_field(field)
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Option<(&str, &str, ValueSource)>) {
        let expected = expected.map(|(path, format, source)| KeyValue {
            path: path.to_owned(),
            is_json: format == "json",
            source,
        });
        assert_eq!(KeyValue::parse(word).ok(), expected, "{word}");
    }

    fn here(text: &str) -> ValueSource {
        ValueSource::Inline(text.to_owned())
    }

    #[test]
    fn arguments_are_names_and_values() {
        check("a=b", Some(("a", "text", here("b"))));
        check("a=", Some(("a", "text", here(""))));
        check("a=b=c", Some(("a", "text", here("b=c"))));
        check("a.b:=[1]", Some(("a.b", "json", here("[1]"))));
        check("url=https://x/?a:=1", Some(("url", "text", here("https://x/?a:=1"))));
        check("a=@f.txt", Some(("a", "text", ValueSource::File("f.txt".into()))));
        check("a:=@f.json", Some(("a", "json", ValueSource::File("f.json".into()))));
        check("a=@-", Some(("a", "text", ValueSource::Stdin)));
        check("a=@@b", Some(("a", "text", here("@b"))));
        check("ab", None);
        check("=b", None);
        check(":=b", None);
        check("a=@", None);
    }

    #[test]
    fn invalid_json_is_reported_with_its_argument() {
        let read = |word: &str| KeyValue::parse(word).unwrap().read();
        assert_eq!(read("n:={").unwrap_err().summary().field.as_deref(), Some("n"));
        assert_eq!(read("n:=1").unwrap(), ArgValue::Json(Value::from(1)));
    }

    proptest! {
        #[test]
        fn any_text_can_be_an_argument(name in "[a-z.]{1,8}", text in any::<String>()) {
            let escaped = if text.starts_with('@') { format!("@{text}") } else { text.clone() };
            let word = KeyValue::parse(&format!("{name}={escaped}")).unwrap();
            let source = ValueSource::Inline(text);
            prop_assert_eq!(word, KeyValue { path: name, is_json: false, source });
        }

        #[test]
        fn argument_parser_never_panics(word in any::<String>()) {
            let _outcome = KeyValue::parse(&word);
        }
    }
}
