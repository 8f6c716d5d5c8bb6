//! The arguments of a call: from what was typed to what is sent. Pure, except for reading files.

pub(crate) mod call_expr;
pub(crate) mod coerce;
pub(crate) mod schema;

use std::path::PathBuf;

use serde_json::Value;

use crate::error::Failure;

/// One argument as it is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) path: String,
    pub(crate) reads: Reads,
    pub(crate) from: From,
}

/// What the value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    Text,
    Json,
}

/// Where the value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum From {
    Here(String),
    File(PathBuf),
    Input,
}

/// One argument whose value is at hand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Argument {
    pub(crate) path: String,
    pub(crate) said: Said,
}

/// A value, as far as it is known without a schema.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Said {
    Text(String),
    Json(Value),
}

/// Reads one word.
pub(crate) fn parse(word: &str) -> Result<Word, Failure> {
    let Some((name, value)) = word.split_once('=') else {
        return Err(Failure::usage(
            format!("`{word}` is no argument"),
            "write `name=text` or `name:=json`",
        ));
    };
    let (path, reads) = match name.strip_suffix(':') {
        Some(path) => (path, Reads::Json),
        None => (name, Reads::Text),
    };
    if path.is_empty() {
        return Err(Failure::usage(
            format!("`{word}` has no name before the `=`"),
            "write `name=text` or `name:=json`",
        ));
    }
    let from = match value.strip_prefix('@') {
        None => From::Here(value.to_owned()),
        Some("-") => From::Input,
        Some(escaped) if escaped.starts_with('@') => From::Here(escaped.to_owned()),
        Some("") => {
            let message = format!("`{word}` names no file behind the `@`");
            return Err(Failure::usage(message, "write `@file`, or `@@` for an `@` that is text"));
        }
        Some(file) => From::File(PathBuf::from(file)),
    };
    Ok(Word { path: path.to_owned(), reads, from })
}

/// An argument of the text that was found where the word said.
pub(crate) fn resolve(path: &str, reads: Reads, text: String) -> Result<Argument, Failure> {
    let said = match reads {
        Reads::Text => Said::Text(text),
        Reads::Json => Said::Json(serde_json::from_str(&text).map_err(|error| {
            let message = format!("the value of `{path}` is no JSON: {error}");
            let hint = format!("write `{path}=…` if it is text, or put quotes around it twice");
            Failure::usage(message, hint).at(path)
        })?),
    };
    Ok(Argument { path: path.to_owned(), said })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Option<(&str, Reads, From)>) {
        let expected =
            expected.map(|(path, reads, from)| Word { path: path.to_owned(), reads, from });
        assert_eq!(parse(word).ok(), expected, "{word}");
    }

    fn here(text: &str) -> From {
        From::Here(text.to_owned())
    }

    #[test]
    fn words_are_names_and_values() {
        check("a=b", Some(("a", Reads::Text, here("b"))));
        check("a=", Some(("a", Reads::Text, here(""))));
        check("a=b=c", Some(("a", Reads::Text, here("b=c"))));
        check("a.b:=[1]", Some(("a.b", Reads::Json, here("[1]"))));
        check("url=https://x/?a:=1", Some(("url", Reads::Text, here("https://x/?a:=1"))));
        check("a=@f.txt", Some(("a", Reads::Text, From::File("f.txt".into()))));
        check("a:=@f.json", Some(("a", Reads::Json, From::File("f.json".into()))));
        check("a=@-", Some(("a", Reads::Text, From::Input)));
        check("a=@@b", Some(("a", Reads::Text, here("@b"))));
        check("ab", None);
        check("=b", None);
        check(":=b", None);
        check("a=@", None);
    }

    #[test]
    fn json_that_is_none_is_told_with_its_name() {
        let failure = resolve("n", Reads::Json, "{".to_owned()).unwrap_err();
        assert_eq!(failure.faults()[0].field.as_deref(), Some("n"));
        let one = Argument { path: "n".to_owned(), said: Said::Json(Value::from(1)) };
        assert_eq!(resolve("n", Reads::Json, "1".to_owned()).unwrap(), one);
    }

    proptest! {
        #[test]
        fn any_text_can_be_given(name in "[a-z.]{1,8}", text in any::<String>()) {
            let escaped = if text.starts_with('@') { format!("@{text}") } else { text.clone() };
            let word = parse(&format!("{name}={escaped}")).unwrap();
            prop_assert_eq!(word, Word { path: name, reads: Reads::Text, from: From::Here(text) });
        }

        #[test]
        fn no_word_is_too_odd(word in any::<String>()) {
            let _outcome = parse(&word);
        }
    }
}
