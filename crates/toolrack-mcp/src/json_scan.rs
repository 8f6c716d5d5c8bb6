//! Fast scan of JSON text: nesting, and whether a tool's input schema is sound.
//!
//! A list of tools is scanned as a whole, so this costs a few instructions per byte. The text is known to be
//! well-formed, or a parser reads it afterwards: malformed text gives any answer, but no panic and no endless loop.

use std::slice::Iter;

use memchr::memchr2;

/// Maximum number of open brackets. One pass without recursion, because a server can nest to any depth.
pub(crate) fn depth(json: &[u8]) -> usize {
    let mut scanner = Scanner::new(json);
    let (mut open, mut most) = (0_usize, 0);
    while let Some(byte) = scanner.bytes.next() {
        match byte {
            b'"' => {
                scanner.string();
            }
            b'{' | b'[' => {
                open += 1;
                most = most.max(open);
            }
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// The [`depth`] of an input schema whose outermost members are what clients expect. `None` also stands for a schema that
/// needs a closer look, such as one with a repeated member.
pub(crate) fn sound_schema_depth(schema: &str) -> Option<usize> {
    let mut scanner = Scanner::new(schema.as_bytes());
    scanner.sound_schema()?;
    Some(scanner.deepest)
}

/// Position in a JSON text.
struct Scanner<'a> {
    bytes: Iter<'a, u8>,
    open: usize,
    /// Most open brackets so far.
    deepest: usize,
}

/// Strings up to this length are searched byte by byte, which is faster than to start a vector search.
const SHORT_STRING: usize = 16;

impl<'a> Scanner<'a> {
    fn new(json: &'a [u8]) -> Self {
        Self { bytes: json.iter(), open: 0, deepest: 0 }
    }

    fn sound_schema(&mut self) -> Option<()> {
        let (mut has_type, mut has_properties, mut has_required) = (false, false, false);
        let is_first = |seen: &mut bool| (!std::mem::replace(seen, true)).then_some(());
        self.enter_if(b'{')?;
        while let Some(key) = self.next_key()? {
            match key {
                b"type" => {
                    is_first(&mut has_type)?;
                    let text = self.bytes.as_slice();
                    let is_object = text.starts_with(b"\"object\"") || text.starts_with(b"null");
                    is_object.then_some(())?;
                    self.skip_value()?;
                }
                b"properties" => {
                    is_first(&mut has_properties)?;
                    self.sound_properties()?;
                }
                b"required" => {
                    is_first(&mut has_required)?;
                    self.sound_names()?;
                }
                // It may be one of the above in other words.
                key if key.contains(&b'\\') => return None,
                _ => self.skip_value()?,
            }
        }
        Some(())
    }

    /// An object of schemas, or `null`.
    fn sound_properties(&mut self) -> Option<()> {
        if self.peek()? == b'n' {
            return self.skip_value();
        }
        self.enter_if(b'{')?;
        while self.next_key()?.is_some() {
            // `true` and `false` are schemas too.
            matches!(self.peek()?, b'{' | b't' | b'f').then_some(())?;
            self.skip_value()?;
        }
        Some(())
    }

    /// A list of strings, or `null`.
    fn sound_names(&mut self) -> Option<()> {
        if self.peek()? == b'n' {
            return self.skip_value();
        }
        self.enter_if(b'[')?;
        loop {
            match self.peek()? {
                b']' => {
                    self.leave();
                    return Some(());
                }
                b'"' => {
                    self.bytes.next();
                    self.string();
                }
                byte if byte == b',' || byte.is_ascii_whitespace() => {
                    self.bytes.next();
                }
                _ => return None,
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.as_slice().first().copied()
    }

    fn enter_if(&mut self, bracket: u8) -> Option<()> {
        (self.peek()? == bracket).then(|| self.enter())
    }

    fn skip_whitespace(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.bytes.next();
        }
    }

    /// Name of the next member of an object, as written, or `Some(None)` at its end. The value comes next.
    fn next_key(&mut self) -> Option<Option<&'a [u8]>> {
        loop {
            match self.peek()? {
                b'"' => break,
                b'}' => {
                    self.leave();
                    return Some(None);
                }
                _ => {
                    self.bytes.next();
                }
            }
        }
        self.bytes.next();
        let key = self.string();
        self.skip_whitespace();
        (*self.bytes.next()? == b':').then_some(())?;
        self.skip_whitespace();
        Some(Some(key))
    }

    fn skip_value(&mut self) -> Option<()> {
        let outer = self.open;
        loop {
            match self.peek()? {
                b'"' => {
                    self.bytes.next();
                    self.string();
                }
                b'{' | b'[' => self.enter(),
                // After a number, a bracket closes what is around it, and a comma ends the value.
                b'}' | b']' | b',' if self.open == outer => return Some(()),
                b'}' | b']' => self.leave(),
                _ => {
                    self.bytes.next();
                    continue;
                }
            }
            if self.open == outer {
                return Some(());
            }
        }
    }

    fn enter(&mut self) {
        self.bytes.next();
        self.open += 1;
        self.deepest = self.deepest.max(self.open);
    }

    fn leave(&mut self) {
        self.bytes.next();
        self.open = self.open.saturating_sub(1);
    }

    /// Skips a string after its opening quote, and returns it as written.
    fn string(&mut self) -> &'a [u8] {
        let text = self.bytes.as_slice();
        let mut from = 0;
        loop {
            let rest = text.get(from..).unwrap_or_default();
            let (short, long) = rest.split_at(rest.len().min(SHORT_STRING));
            let found = short.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            let found = found.or_else(|| Some(short.len() + memchr2(b'"', b'\\', long)?));
            match found.map(|at| (from + at, rest.get(at))) {
                Some((end, Some(b'"'))) => {
                    self.bytes.nth(end);
                    return text.get(..end).unwrap_or_default();
                }
                // The escaped character may be a quote.
                Some((escape, _)) => from = escape + 2,
                None => {
                    self.bytes = [].iter();
                    return text;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_ignores_brackets_in_strings() {
        let check =
            |json: &str, expected: usize| assert_eq!(depth(json.as_bytes()), expected, "{json}");
        check("", 0);
        check("5", 0);
        check(r#"{"a":[1,{}],"b":[]}"#, 3);
        check(r#"["[[[", "\"[[[", "\\", []]"#, 2);
        check(r#"["a long string before the bracket [[[ and \" after", "\\\\\\", [[]]]"#, 3);
        check("]]]][", 1);
        check(r#"["\"#, 1);
        check(r#"["x"#, 1);
        assert_eq!(depth("[".repeat(1_000_000).as_bytes()), 1_000_000);
    }

    #[test]
    fn sound_schemas_are_recognized() {
        let check = |json: &str, is_sound: bool| {
            let expected = is_sound.then(|| depth(json.as_bytes()));
            assert_eq!(sound_schema_depth(json), expected, "{json}");
        };
        check("{}", true);
        check(r#"{ "type" : "object" }"#, true);
        check(
            r#"{"x":1,"type":"object","y":-1.5e3,"properties":{"a":{},"b":true,"c":{"type":[]}}}"#,
            true,
        );
        check(
            r#"{"properties":{ "a" : { "x": [ "}" ] } , "b":false },"required":[ "a" , "b" ]}"#,
            true,
        );
        check(r#"{"properties":null,"required":null,"type":null}"#, true);
        check(r#"{"x":{"type":"string","properties":5},"y":[{"required":5}]}"#, true);
        check(r#"{"type":"string"}"#, false);
        check(r#"{"type":["object"]}"#, false);
        check(r#"{"properties":5}"#, false);
        check(r#"{"properties":{"x":5}}"#, false);
        check(r#"{"properties":{"x":{},"y":"z"}}"#, false);
        check(r#"{"required":"x"}"#, false);
        check(r#"{"required":["x",5]}"#, false);
        // A closer look decides.
        check(r#"{"type":"object","type":"object"}"#, false);
        check(r#"{"\u0074ype":"object"}"#, false);
        for malformed in ["", "{", r#"{"a"#, r#"{"a""#, r#"{"a":"#, r#"{"required":["#, "5"] {
            check(malformed, false);
        }
    }
}
