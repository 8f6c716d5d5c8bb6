//! Minimal Rust lexer that separates code, comments and strings.
//!
//! The rules search for words in code. The lexer knows strings of every kind, nested comments,
//! characters and lifetimes.

/// The source twice, with everything else blanked, so that line numbers stay the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Split {
    /// Code, with the contents of strings and all comments blanked.
    pub(crate) code: String,
    /// Comments, with everything else blanked.
    pub(crate) comments: String,
}

/// Splits Rust source. Never fails, also for source that does not compile.
pub(crate) fn split(text: &str) -> Split {
    let mut lexer =
        Lexer { rest: text, previous: ' ', code: String::new(), comments: String::new() };
    while !lexer.rest.is_empty() {
        lexer.step();
    }
    Split { code: lexer.code, comments: lexer.comments }
}

/// The words of a line of code, each with the text before it.
pub(crate) fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let start = rest.find(is_word)?;
        let (gap, tail) = rest.split_at(start);
        let end = tail.find(|character| !is_word(character)).unwrap_or(tail.len());
        let (word, tail) = tail.split_at(end);
        rest = tail;
        Some((gap, word))
    })
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

struct Lexer<'a> {
    rest: &'a str,
    previous: char,
    code: String,
    comments: String,
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Text,
}

impl<'a> Lexer<'a> {
    fn step(&mut self) {
        let rest = self.rest;
        if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            self.take(end, Kind::Comment);
        } else if rest.starts_with("/*") {
            self.take(block_comment_len(rest), Kind::Comment);
        } else if rest.starts_with('"') {
            self.take(text_len(rest), Kind::Text);
        } else if let Some(len) = raw_text_len(rest).filter(|_| !is_word(self.previous)) {
            self.take(len, Kind::Text);
        } else if let Some(len) = character_len(rest) {
            self.take(len, Kind::Text);
        } else {
            let len = rest.chars().next().map_or(1, char::len_utf8);
            self.take(len, Kind::Code);
        }
    }

    fn take(&mut self, len: usize, kind: Kind) {
        let (taken, rest): (&'a str, &'a str) =
            self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        self.rest = rest;
        for character in taken.chars() {
            let blank = if character == '\n' { '\n' } else { ' ' };
            self.code.push(if matches!(kind, Kind::Code) { character } else { blank });
            self.comments.push(if matches!(kind, Kind::Comment) { character } else { blank });
            self.previous = character;
        }
    }
}

fn block_comment_len(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut skip = 0_usize;
    for (at, _) in rest.char_indices() {
        let tail = rest.get(at..).unwrap_or_default();
        if at < skip {
            continue;
        }
        if tail.starts_with("/*") {
            depth += 1;
            skip = at + 2;
        } else if tail.starts_with("*/") {
            depth -= 1;
            skip = at + 2;
        }
        if depth == 0 {
            return skip;
        }
    }
    rest.len()
}

/// Length of a literal that ends with its first character.
fn text_len(rest: &str) -> usize {
    let mut characters = rest.char_indices();
    let quote = characters.next().map(|(_, quote)| quote);
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if Some(character) == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#` and their `b` and `c` forms. A raw identifier (`r#type`) is none of them.
fn raw_text_len(rest: &str) -> Option<usize> {
    let tail = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let n_hashes = tail.len() - tail.trim_start_matches('#').len();
    let hashes = tail.get(..n_hashes)?;
    let start = rest.len() - tail.len() + n_hashes + 1;
    let body = tail.get(n_hashes..)?.strip_prefix('"')?;
    let close = format!("\"{hashes}");
    Some(body.find(&close).map_or(rest.len(), |at| start + at + close.len()))
}

/// `'x'` or `'\n'`, but not the lifetime `'x`.
fn character_len(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    let first = inner.chars().next()?;
    if first == '\\' {
        return Some(text_len(rest));
    }
    let tail = inner.get(first.len_utf8()..)?;
    tail.starts_with('\'').then_some(first.len_utf8() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected` is the code that is left, with runs of blanks shown as one `·`.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let split = split(text);
        assert_eq!(split.code.split_whitespace().collect::<Vec<_>>().join("·"), expected);
        assert_eq!(split.code.lines().count(), text.lines().count());
        assert_eq!(split.comments.lines().count(), text.lines().count());
    }

    #[test]
    fn code_is_told_from_strings_and_comments() {
        check("let a = 1; // unsafe", "let·a·=·1;");
        check("a /* b /* c */ d */ e", "a·e");
        check("a /* never closed", "a");
        check(r#"f("unsafe \" // x") + g"#, "f(·)·+·g");
        check(r##"f(r#"a "quoted" b"#, c)"##, "f(·,·c)");
        check(r#"f(b"x", br"y", c"z")"#, "f(b·,·,·c·)");
        check("let r#type = 1;", "let·r#type·=·1;");
        check("for r in x {}", "for·r·in·x·{}");
        check("fn f<'a>(x: &'a str) -> char { '\"' }", "fn·f<'a>(x:·&'a·str)·->·char·{·}");
        check(r"let q = '\''; let s = 'é'; z", "let·q·=·;·let·s·=·;·z");
        check("let s = \"two\nlines // here\"; b", "let·s·=·;·b");
    }

    #[test]
    fn comments_are_kept_with_their_lines() {
        let split = split("a // one\n\"// no\"\n/* two */ b\n");
        let comments: Vec<&str> = split.comments.lines().map(str::trim).collect();
        assert_eq!(comments, ["// one", "", "/* two */"]);
    }

    #[test]
    fn words_come_with_what_stands_before_them() {
        let seen: Vec<_> = words("  pub fn a_b(c: D)").collect();
        assert_eq!(seen, [("  ", "pub"), (" ", "fn"), (" ", "a_b"), ("(", "c"), (": ", "D")]);
    }
}
