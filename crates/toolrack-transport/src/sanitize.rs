//! Sanitizes text from servers for display: strips ANSI escapes, control characters and invisible characters.
//!
//! [`sanitize_line`] makes one short line for logs and messages. [`sanitize_text`] keeps text as people write it:
//! line breaks, tabs, joiners within words and emoji.
//!
//! Invisible characters are a risk for more than terminals: they hide instructions to a model, or make one name look
//! like another.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// Sanitizes `text` to a single line of at most `max_chars` characters, and marks a cut with `…`.
pub fn sanitize_line(text: &str, max_chars: usize) -> String {
    let mut sanitized = String::new();
    let mut characters = text.chars().peekable();
    let mut n_chars = 0;
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            skip_escape(&mut characters);
            continue;
        }
        let Some(character) = sanitize_char(character) else { continue };
        if n_chars == max_chars {
            sanitized.push('…');
            break;
        }
        sanitized.push(character);
        n_chars += 1;
    }
    sanitized
}

/// The character to display, or `None` to drop it.
fn sanitize_char(character: char) -> Option<char> {
    match character {
        // Most text: none of the tables below is searched.
        plain @ ' '..='~' => Some(plain),
        '\t' | '\n' | '\r' => Some(' '),
        // Joiners and selectors go too: a cut could leave one behind without the character that it joins.
        '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' => None,
        invisible if is_always_invisible(invisible) => None,
        control if control.is_control() => None,
        visible => Some(visible),
    }
}

/// Strips ANSI escapes, control characters and invisible characters. Borrows the text if there are none.
pub fn sanitize_text(text: &str) -> Cow<'_, str> {
    strip(text, CarriageReturns::BecomeLineBreaks)
}

/// Like [`sanitize_text`], but keeps carriage returns: for text that programs compare, such as the content of a file.
pub fn strip_hidden(text: &str) -> Cow<'_, str> {
    strip(text, CarriageReturns::Stay)
}

/// Replaces each character that [`strip_hidden`] would remove, for text that must not become equal to another one.
pub(crate) fn replace_hidden(text: &str) -> Cow<'_, str> {
    if is_clean(text, CarriageReturns::Stay) {
        return Cow::Borrowed(text);
    }
    let mut previous = None;
    let replaced = text.chars().map(|character| {
        let is_hidden = character != '\r' && is_unwanted(previous, character);
        let visible = if is_hidden { char::REPLACEMENT_CHARACTER } else { character };
        previous = Some(visible);
        visible
    });
    Cow::Owned(replaced.collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CarriageReturns {
    BecomeLineBreaks,
    Stay,
}

fn strip(text: &str, returns: CarriageReturns) -> Cow<'_, str> {
    // Most text has no suspect byte. In other scripts suspect bytes are common, and then `is_clean`
    // decides, still without a copy.
    if !text.as_bytes().chunks(CHUNK_BYTES).any(has_suspect) || is_clean(text, returns) {
        return Cow::Borrowed(text);
    }
    let mut previous = None;
    let mut sanitized = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_escape(&mut characters),
            '\r' if returns == CarriageReturns::BecomeLineBreaks => {
                characters.next_if_eq(&'\n');
                previous = Some('\n');
                sanitized.push('\n');
            }
            unwanted if unwanted != '\r' && is_unwanted(previous, unwanted) => {}
            visible => {
                previous = Some(visible);
                sanitized.push(visible);
            }
        }
    }
    Cow::Owned(sanitized)
}

/// The bytes that one vectorized pass of [`has_suspect`] covers before the next check for an early exit.
const CHUNK_BYTES: usize = 64;

/// Checks all bytes without an early exit, so that the compiler can vectorize the loop.
pub(crate) fn has_suspect(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | is_suspect(*byte))
}

/// A cheap prefilter: whether the byte can begin an unwanted character.
fn is_suspect(byte: u8) -> bool {
    // In UTF-8, the bytes from 0xc2 on begin the C1 controls and all invisible characters.
    matches!(byte, 0x00..=0x08 | 0x0b..=0x1f | 0x7f | 0xc2 | 0xcd | 0xd8 | 0xe1..=0xe3 | 0xef | 0xf0 | 0xf3)
}

fn is_clean(text: &str, returns: CarriageReturns) -> bool {
    let mut previous = None;
    text.chars().all(|character| {
        let stays = character == '\r' && returns == CarriageReturns::Stay;
        !is_unwanted(previous.replace(character), character) || stays
    })
}

fn is_unwanted(previous: Option<char>, character: char) -> bool {
    !matches!(character, '\n' | '\t') && is_invisible(previous, character)
}

/// Whether a character is invisible after `previous`, the last visible character. Joiners and selectors belong to
/// words and emoji, so they are allowed after a character that takes them.
pub fn is_invisible(previous: Option<char>, character: char) -> bool {
    match character {
        '\u{200c}' | '\u{200d}' => !previous.is_some_and(takes_joiner),
        '\u{fe0e}' | '\u{fe0f}' => !previous.is_some_and(is_emoji_like),
        '\u{fe00}'..='\u{fe0d}' => true,
        other => is_always_invisible(other) || other.is_control(),
    }
}

/// Whether a character is invisible in every context.
fn is_always_invisible(character: char) -> bool {
    matches!(
        character,
        // Soft hyphen and grapheme joiner.
        '\u{ad}'
        | '\u{34f}'
        // Direction marks and overrides.
        | '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        // Script fillers and separators.
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180e}'
        | '\u{3164}'
        | '\u{ffa0}'
        // Zero-width space, line separators, invisible operators, byte order mark, annotations.
        | '\u{200b}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}'
        // Shorthand and music controls, then tags and further selectors.
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Scripts that join their letters contain no ASCII.
fn takes_joiner(character: char) -> bool {
    // A joiner after a joiner joins nothing, and runs of them can hide data.
    !character.is_ascii() && !matches!(character, '\u{200c}' | '\u{200d}')
}

/// Whether a variation selector chooses between text and emoji for this character.
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

/// Skips the rest of an ANSI escape after ESC: a CSI sequence to its final byte, a string (OSC, DCS) to its
/// terminator, or one character.
fn skip_escape(characters: &mut Peekable<Chars<'_>>) {
    match characters.next() {
        Some('[') => {
            let is_parameter = |character: &char| ('\u{20}'..='\u{3f}').contains(character);
            while characters.next_if(is_parameter).is_some() {}
            characters.next_if(|character| ('\u{40}'..='\u{7e}').contains(character));
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            // A missing terminator must not swallow the rest of the text, so a string ends with its line.
            while let Some(character) = characters.next_if(|character| *character != '\n') {
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
