//! Text of a tool, made safe to show and still text: lines and tabs stay, commands to a terminal go.
//!
//! Unlike [`plain_text`](crate::plain_text) this keeps what people write: line breaks, joiners within
//! words and emoji. What cannot be seen and only serves to hide something goes.

use std::borrow::Cow;

use crate::ansi::skip_escape;
use crate::invisible::is_hidden;

/// Takes escape sequences, control characters and hidden characters out of a text. Copies nothing if there
/// are none.
pub fn clean_text(text: &str) -> Cow<'_, str> {
    if !text.as_bytes().chunks(GLANCE_BYTES).any(has_suspect) || is_clean(text) {
        return Cow::Borrowed(text);
    }
    let mut previous = None;
    let mut cleaned = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_escape(&mut characters),
            '\r' => {
                characters.next_if_eq(&'\n');
                previous = Some('\n');
                cleaned.push('\n');
            }
            unwanted if is_unwanted(previous, unwanted) => {}
            plain => {
                previous = Some(plain);
                cleaned.push(plain);
            }
        }
    }
    Cow::Owned(cleaned)
}

/// How many bytes are looked at before the next ones are.
const GLANCE_BYTES: usize = 64;

/// Looks at all bytes without stopping at the first, which a processor does many at a time.
fn has_suspect(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | is_suspect(*byte))
}

/// A quick look at bytes: what may be the beginning of something unwanted.
fn is_suspect(byte: u8) -> bool {
    // In UTF-8, these begin the C1 controls, and whatever else can be hidden.
    matches!(byte, 0x00..=0x08 | 0x0b..=0x1f | 0x7f | 0xc2 | 0xcd | 0xd8 | 0xe1..=0xe3 | 0xef | 0xf0 | 0xf3)
}

fn is_clean(text: &str) -> bool {
    let mut previous = None;
    text.chars().all(|it| !is_unwanted(previous.replace(it), it))
}

fn is_unwanted(previous: Option<char>, character: char) -> bool {
    !matches!(character, '\n' | '\t') && is_hidden(previous, character)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(clean_text(text), expected, "{text:?}");
    }

    #[test]
    fn lines_stay_and_commands_go() {
        check("one\n\ttwo\n", "one\n\ttwo\n");
        check("dos\r\nmac\rend", "dos\nmac\nend");
        check("\u{1b}[31mred\u{1b}[0m\nnext", "red\nnext");
        check("\u{1b}]0;title\u{7}after", "after");
        check("\u{1b}]8;;http://x\u{1b}\\link", "link");
        check("\u{1b}]never ends\nbut this is text", "\nbut this is text");
        check("\u{1b}[31\nstill text", "\nstill text");
        check("a\u{9b}31mb\u{7}\u{8}c\u{7f}", "a31mbc");
        check("hidden\u{e0041}\u{e0042}\u{202e}\u{200b}", "hidden");
        check("in\u{ad}vis\u{61c}ible\u{3164}\u{ffa0}\u{115f}\u{180e}", "invisible");
        check("\u{2764}\u{fe0f}\u{fe0f}\u{fe0e} a\u{fe01}\u{fe0f}b", "\u{2764}\u{fe0f} ab");
        check("äöü 漢字 — “quoted” é", "äöü 漢字 — “quoted” é");
        // A family and a heart: joiners and selectors are part of them.
        check(
            "\u{1f468}\u{200d}\u{1f469} \u{2764}\u{fe0f}",
            "\u{1f468}\u{200d}\u{1f469} \u{2764}\u{fe0f}",
        );
    }

    proptest! {
        #[test]
        fn nothing_unwanted_survives_and_clean_text_is_left_alone(text in any::<String>()) {
            let once = clean_text(&text).into_owned();
            prop_assert!(is_clean(&once));
            prop_assert_eq!(clean_text(&once), Cow::Borrowed(once.as_str()));
        }
    }

    /// The quick look must not miss what the careful one finds.
    #[test]
    fn the_quick_look_misses_nothing() {
        for character in '\0'..=char::MAX {
            let mut buffer = [0; 4];
            let first = character.encode_utf8(&mut buffer).as_bytes()[0];
            assert!(is_suspect(first) || !is_unwanted(None, character), "{character:?}");
        }
    }
}
