//! Text from a server, made safe to show.
//!
//! Servers are not trusted with a terminal: escape sequences, control characters and characters that
//! cannot be seen are taken out before anybody prints what they wrote.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// Cleans `text` and cuts it to at most `max_chars` characters, with `…` where it was cut.
pub fn plain_text(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    let mut characters = text.chars().peekable();
    let mut n_shown = 0;
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            skip_escape(&mut characters);
            continue;
        }
        let Some(character) = visible(character) else { continue };
        if n_shown == max_chars {
            shown.push('…');
            break;
        }
        shown.push(character);
        n_shown += 1;
    }
    shown
}

/// What stands for a character on the screen, if it may stand there at all.
fn visible(character: char) -> Option<char> {
    match character {
        '\t' | '\n' | '\r' => Some(' '),
        // Not even joiners and selectors: what is cut anywhere ends anywhere.
        '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' => None,
        hidden if is_invisible(hidden) => None,
        control if control.is_control() => None,
        plain => Some(plain),
    }
}

// FOLDED sanitize_text.rs
// Text of a tool, made safe to show and still text: lines and tabs stay, commands to a terminal go.
//
// Unlike [`plain_text`](crate::plain_text) this keeps what people write: line breaks, joiners within
// words and emoji. What cannot be seen and only serves to hide something goes.

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

// FOLDED invisible.rs
// Which characters nobody can see.
//
// Text hides orders to a model, or makes one name look like another, by characters that a screen does not show.
// Joiners and selectors are parts of words and emoji, so one of them is no secret where it belongs.

/// Whether a character is hidden behind `previous`, the one that is shown before it.
pub fn is_hidden(previous: Option<char>, character: char) -> bool {
    match character {
        '\u{200c}' | '\u{200d}' => !previous.is_some_and(takes_joiner),
        '\u{fe0e}' | '\u{fe0f}' => !previous.is_some_and(is_emoji_like),
        '\u{fe00}'..='\u{fe0d}' => true,
        other => is_invisible(other) || other.is_control(),
    }
}

/// What is never seen, wherever it stands.
pub(crate) fn is_invisible(character: char) -> bool {
    matches!(
        character,
        // Soft hyphen and grapheme joiner.
        '\u{ad}'
        | '\u{34f}'
        // Marks and overrides of the direction.
        | '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        // Fillers and separators of scripts.
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180e}'
        | '\u{3164}'
        | '\u{ffa0}'
        // Zero-width space, separators of lines, invisible operators, the byte order mark, annotations.
        | '\u{200b}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}'
        // Controls of shorthand and of music, then tags and further selectors.
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Scripts that join their letters have no ASCII in them.
fn takes_joiner(character: char) -> bool {
    !character.is_ascii() && !matches!(character, '\u{200c}' | '\u{200d}')
}

/// What can be drawn as a picture or as a sign, which a selector tells.
fn is_emoji_like(character: char) -> bool {
    matches!(
        character,
        '#' | '*'
            | '0'..='9'
            | '\u{a9}'
            | '\u{ae}'
            | '\u{203c}'
            | '\u{2049}'
            | '\u{2122}'
            | '\u{2139}'
            | '\u{2190}'..='\u{21ff}'
            | '\u{2300}'..='\u{23ff}'
            | '\u{24c2}'
            | '\u{25a0}'..='\u{27bf}'
            | '\u{2900}'..='\u{297f}'
            | '\u{2b00}'..='\u{2bff}'
            | '\u{3030}'
            | '\u{303d}'
            | '\u{3297}'
            | '\u{3299}'
            | '\u{1f000}'..='\u{1faff}'
    )
}

// FOLDED ansi.rs
// Commands to a terminal within text: where each ends.

/// Skips what follows an ESC: a sequence to its final letter, a string to its end, or one character.
pub(crate) fn skip_escape(characters: &mut Peekable<Chars<'_>>) {
    match characters.next() {
        Some('[') => {
            while characters.next_if(|it| ('\u{20}'..='\u{3f}').contains(it)).is_some() {}
            characters.next_if(|it| ('\u{40}'..='\u{7e}').contains(it));
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            // Without an end it is no string, and the rest of the line is text after all.
            while let Some(character) = characters.next_if(|it| *it != '\n') {
                if character == '\u{7}' {
                    return;
                }
                if character == '\u{1b}' {
                    characters.next_if_eq(&'\\');
                    return;
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
