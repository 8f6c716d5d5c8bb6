//! Text from a server, made safe to show.
//!
//! Servers are not trusted with a terminal: escape sequences, control characters and characters that
//! cannot be seen are taken out before anybody prints what they wrote.

use crate::ansi::skip_escape;
use crate::invisible::is_invisible;

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(plain_text(text, 20), expected, "{text:?}");
    }

    #[test]
    fn nothing_a_server_writes_reaches_the_terminal_as_a_command() {
        check("plain text", "plain text");
        check("\u{1b}[31mred\u{1b}[0m", "red");
        check("\u{1b}]0;title\u{7}after", "after");
        check("\u{1b}]8;;http://x\u{1b}\\link", "link");
        check("\u{1b}Pdcs\u{1b}\\x", "x");
        check("a\u{9b}31mb", "a31mb");
        check("tab\tand\nbreak", "tab and break");
        check("bell\u{7}\u{8}", "bell");
        check("\u{202e}abc\u{e0041}\u{200b}", "abc");
        check("\u{ad}\u{61c}\u{180e}a\u{115f}\u{3164}\u{ffa0}\u{fe0f}", "a");
        check("äöü 漢字", "äöü 漢字");
        check("123456789012345678901234", "12345678901234567890…");
        check("unfinished\u{1b}[31", "unfinished");
    }

    proptest! {
        #[test]
        fn no_control_character_survives(text in any::<String>()) {
            prop_assert!(!plain_text(&text, 1000).chars().any(char::is_control));
        }
    }
}
