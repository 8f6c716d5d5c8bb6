//! Which characters nobody can see.
//!
//! Text hides orders to a model, or makes one name look like another, by characters that a screen does not show.
//! Joiners and selectors are parts of words and emoji, so one of them is no secret where it belongs.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[bool]) {
        let mut previous = None;
        let found: Vec<bool> = text
            .chars()
            .map(|it| {
                let is_hidden = is_hidden(previous, it);
                previous = Some(it);
                is_hidden
            })
            .collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn what_belongs_to_a_word_or_an_emoji_is_seen() {
        check("a\u{ad}\u{61c}", &[false, true, true]);
        check("\u{180e}\u{115f}\u{3164}\u{ffa0}", &[true; 4]);
        check("\u{2764}\u{fe0f}\u{200d}\u{1f525}", &[false; 4]);
        check("1\u{fe0f}\u{20e3}", &[false; 3]);
        check("\u{2764}\u{fe0f}\u{fe0f}", &[false, false, true]);
        check("a\u{fe0f}\u{fe01}\u{e0101}", &[false, true, true, true]);
        check("می\u{200c}خواهم", &[false; 8]);
        check("\u{200d}ü\u{200c}\u{200d}a\u{200d}", &[true, false, false, true, false, true]);
    }
}
