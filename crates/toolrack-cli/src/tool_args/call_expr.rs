//! A call in one word: `server.tool(name: "value", count: 3)`.

use serde_json::{Map, Value};

use super::relaxed_json;
use crate::error::Failure;

/// Arguments that were given as a whole.
pub(crate) type Members = Map<String, Value>;

/// The name of the tool, and its arguments if they are in the same word.
pub(crate) fn split(text: &str) -> Result<(&str, Option<Members>), Failure> {
    let text = text.trim();
    let Some((name, rest)) = text.split_once('(') else { return Ok((text, None)) };
    let Some(inner) = rest.strip_suffix(')') else {
        return Err(Failure::usage(
            format!("`{text}` has no `)` at its end"),
            "put the whole call in single quotes: 'server.tool(name: \"value\")'",
        ));
    };
    let members = relaxed_json::members(inner).map_err(|why| {
        let hint = "name each argument, as in 'server.tool(name: \"value\", count: 3)'";
        Failure::usage(format!("the arguments of `{}` cannot be read: {why}", name.trim()), hint)
    })?;
    Ok((name.trim(), Some(members)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, name: &str, members: Option<Value>) {
        let (found, arguments) = split(text).unwrap();
        assert_eq!((found, arguments.map(Value::Object)), (name, members), "{text}");
    }

    #[test]
    fn a_call_is_a_name_and_perhaps_arguments() {
        check("server.tool", "server.tool", None);
        check("server.tool()", "server.tool", Some(json!({})));
        check(" s.t ( a: ')' ) ", "s.t", Some(json!({"a": ")"})));
        assert!(split("s.t(a: 1").is_err());
        assert!(split("s.t('positional')").is_err());
    }
}
