//! Call expressions: `server.tool(name: "value", count: 3)`.
//!
//! Values are relaxed JSON, with single quotes, bare keys and trailing commas.
//!
//! **Invariant:** parsing terminates for any input, and nesting is bounded.

use serde_json::{Map, Value};

use crate::error::CliError;

/// Arguments given as an object.
pub(crate) type Members = Map<String, Value>;

/// Splits a call expression into the tool's name and its arguments, if there are any.
pub(crate) fn split(text: &str) -> Result<(&str, Option<Members>), CliError> {
    let text = text.trim();
    let Some((name, rest)) = text.split_once('(') else { return Ok((text, None)) };
    let Some(inner) = rest.strip_suffix(')') else {
        return Err(CliError::usage(
            format!("`{text}` has no closing `)`"),
            "quote the whole call: 'server.tool(name: \"value\")'",
        ));
    };
    let members = parse_members(inner).map_err(|reason| {
        let hint = "name each argument, e.g. 'server.tool(name: \"value\", count: 3)'";
        CliError::usage(format!("cannot parse the arguments of `{}`: {reason}", name.trim()), hint)
    })?;
    Ok((name.trim(), Some(members)))
}

/// Maximum nesting depth.
const MAX_DEPTH: usize = 64;

/// Parses `name: value, …` to the end of the text.
pub(crate) fn parse_members(text: &str) -> Result<Map<String, Value>, String> {
    Reader { rest: text, depth: 0 }.members(None)
}

struct Reader<'t> {
    rest: &'t str,
    depth: usize,
}

impl Reader<'_> {
    /// Members up to `close`, or to the end of the text.
    fn members(&mut self, close: Option<char>) -> Result<Map<String, Value>, String> {
        let mut members = Map::new();
        while !self.at_end(close)? {
            let name = self.name()?;
            if !self.consume(':') && !self.consume('=') {
                return Err(format!("missing `:` after `{name}`"));
            }
            let value = self.value()?;
            // JSON parsers keep the last one; here it is most likely a typo.
            if members.insert(name.clone(), value).is_some() {
                return Err(format!("`{name}` is given more than once"));
            }
            self.separator(close)?;
        }
        Ok(members)
    }

    fn items(&mut self) -> Result<Vec<Value>, String> {
        let mut items = Vec::new();
        while !self.at_end(Some(']'))? {
            items.push(self.value()?);
            self.separator(Some(']'))?;
        }
        Ok(items)
    }

    /// Whether the end is reached; consumes the closing bracket.
    fn at_end(&mut self, close: Option<char>) -> Result<bool, String> {
        self.skip_space();
        match close {
            None => Ok(self.rest.is_empty()),
            Some(close) if self.consume(close) => Ok(true),
            Some(close) if self.rest.is_empty() => Err(format!("missing `{close}`")),
            Some(_) => Ok(false),
        }
    }

    fn separator(&mut self, close: Option<char>) -> Result<(), String> {
        self.skip_space();
        let is_end = match close {
            None => self.rest.is_empty(),
            Some(close) => self.rest.starts_with(close) || self.rest.is_empty(),
        };
        if is_end || self.consume(',') {
            return Ok(());
        }
        Err(format!("missing `,` before {}", self.next_char()))
    }

    fn name(&mut self) -> Result<String, String> {
        self.skip_space();
        if self.rest.starts_with(['"', '\'']) {
            return self.string();
        }
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '.');
        match self.take_while(is_name) {
            "" => Err(format!("missing name before {}", self.next_char())),
            name => Ok(name.to_owned()),
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip_space();
        if self.depth == MAX_DEPTH {
            return Err(format!("nested more than {MAX_DEPTH} levels deep"));
        }
        self.depth += 1;
        let value = match self.rest.chars().next() {
            Some('{') => {
                self.consume('{');
                self.members(Some('}')).map(Value::Object)
            }
            Some('[') => {
                self.consume('[');
                self.items().map(Value::Array)
            }
            Some('"' | '\'') => self.string().map(Value::String),
            Some(_) => self.literal(),
            None => Err("missing value at the end".to_owned()),
        };
        self.depth -= 1;
        value
    }

    /// A number, `true`, `false` or `null`.
    fn literal(&mut self) -> Result<Value, String> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        match self.take_while(is_part) {
            "" => Err(format!("missing value before {}", self.next_char())),
            word => serde_json::from_str(word).map_err(|_other| {
                format!("`{word}` is not a number, true, false or null; quote it if it is text")
            }),
        }
    }

    /// A string in single or double quotes, with JSON escapes.
    fn string(&mut self) -> Result<String, String> {
        let mut characters = self.rest.char_indices();
        let quote = characters.next().map_or('"', |(_, c)| c);
        let mut json = String::from('"');
        let mut is_escaped = false;
        for (at, character) in characters {
            match character {
                c if is_escaped => {
                    // JSON has no `\'` escape.
                    if c == '\'' {
                        json.pop();
                    }
                    json.push(c);
                    is_escaped = false;
                }
                '\\' => {
                    json.push('\\');
                    is_escaped = true;
                }
                c if c == quote => {
                    json.push('"');
                    self.rest = self.rest.get(at + 1..).unwrap_or_default();
                    return serde_json::from_str(&json)
                        .map_err(|error| format!("invalid string: {error}"));
                }
                // Inside single quotes; JSON needs the escape.
                '"' => json.push_str("\\\""),
                '\n' => json.push_str("\\n"),
                '\t' => json.push_str("\\t"),
                c => json.push(c),
            }
        }
        Err(format!("missing closing {quote}"))
    }

    fn consume(&mut self, character: char) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(character) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn next_char(&self) -> String {
        match self.rest.chars().next() {
            Some(character) => format!("`{character}`"),
            None => "the end".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, name: &str, members: Option<Value>) {
        let (found, arguments) = split(text).unwrap();
        assert_eq!((found, arguments.map(Value::Object)), (name, members), "{text}");
    }

    #[test]
    fn call_expressions_are_split() {
        check("server.tool", "server.tool", None);
        check("server.tool()", "server.tool", Some(json!({})));
        check(" s.t ( a: ')' ) ", "s.t", Some(json!({"a": ")"})));
        assert!(split("s.t(a: 1").is_err());
        assert!(split("s.t('positional')").is_err());
    }

    #[track_caller]
    fn check_relaxed_json(text: &str, expected: Value) {
        assert_eq!(parse_members(text).map(Value::Object), Ok(expected), "{text}");
    }

    #[track_caller]
    fn check_fault(text: &str, expected: &str) {
        assert_eq!(parse_members(text), Err(expected.to_owned()), "{text}");
    }

    #[test]
    fn relaxed_json_is_parsed() {
        check_relaxed_json("", json!({}));
        check_relaxed_json(r#"a: "x", n: 3"#, json!({"a": "x", "n": 3}));
        check_relaxed_json(r"a = 'it\'s'", json!({"a": "it's"}));
        check_relaxed_json(
            r#""a b": [1, -2.5, true, null,], c: {d: {e: 'f'}},"#,
            json!({"a b": [1, -2.5, true, null], "c": {"d": {"e": "f"}}}),
        );
        check_relaxed_json(
            r#"a: 'say "hi"', b: "\u00e9\n""#,
            json!({"a": "say \"hi\"", "b": "é\n"}),
        );
    }

    #[test]
    fn parse_errors_are_specific() {
        check_fault("a", "missing `:` after `a`");
        check_fault("a: ", "missing value at the end");
        check_fault("a: b", "`b` is not a number, true, false or null; quote it if it is text");
        check_fault("a: 1 b: 2", "missing `,` before `b`");
        check_fault("a: 'x", "missing closing '");
        check_fault("a: [1", "missing `]`");
        check_fault("\"v\", 3", "missing `:` after `v`");
        check_fault("a: 1, a: 2", "`a` is given more than once");
        check_fault(&format!("a: {}", "[".repeat(100)), "nested more than 64 levels deep");
    }

    proptest! {
        #[test]
        fn strict_json_is_parsed(name in "[a-z]{1,5}", number in any::<i64>(), text in any::<String>()) {
            let value = json!({ name.clone(): [number, text, {"x": null}] });
            let written = value.to_string();
            let inner = &written[1..written.len() - 1];
            prop_assert_eq!(parse_members(inner).map(Value::Object), Ok(value));
        }

        #[test]
        fn parsing_never_panics(text in any::<String>()) {
            let _outcome = parse_members(&text);
        }
    }
}
