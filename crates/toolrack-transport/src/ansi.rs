//! Commands to a terminal within text: where each ends.

use std::iter::Peekable;
use std::str::Chars;

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
