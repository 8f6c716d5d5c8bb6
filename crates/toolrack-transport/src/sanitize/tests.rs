//! Sanitizing of untrusted text.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check_line(text: &str, expected: &str) {
    assert_eq!(sanitize_line(text, 20), expected, "{text:?}");
}

#[test]
fn terminal_escapes_are_stripped_from_lines() {
    check_line("plain text", "plain text");
    check_line("\u{1b}[31mred\u{1b}[0m", "red");
    check_line("\u{1b}]0;title\u{7}after", "after");
    check_line("\u{1b}]8;;http://x\u{1b}\\link", "link");
    check_line("\u{1b}Pdcs\u{1b}\\x", "x");
    check_line("a\u{9b}31mb", "a31mb");
    check_line("tab\tand\nbreak", "tab and break");
    check_line("bell\u{7}\u{8}", "bell");
    check_line("\u{202e}abc\u{e0041}\u{200b}", "abc");
    check_line("\u{ad}\u{61c}\u{180e}a\u{115f}\u{3164}\u{ffa0}\u{fe0f}", "a");
    check_line("äöü 漢字", "äöü 漢字");
    check_line("123456789012345678901234", "12345678901234567890…");
    check_line("unfinished\u{1b}[31", "unfinished");
}

proptest! {
    #[test]
    fn control_characters_are_stripped(text in any::<String>()) {
        prop_assert!(!sanitize_line(&text, 1000).chars().any(char::is_control));
    }
}

#[track_caller]
fn check_text(text: &str, expected: &str) {
    assert_eq!(sanitize_text(text), expected, "{text:?}");
}

#[test]
fn line_breaks_stay_and_escapes_are_stripped() {
    check_text("one\n\ttwo\n", "one\n\ttwo\n");
    check_text("dos\r\nmac\rend", "dos\nmac\nend");
    check_text("\u{1b}[31mred\u{1b}[0m\nnext", "red\nnext");
    check_text("\u{1b}]0;title\u{7}after", "after");
    check_text("\u{1b}]8;;http://x\u{1b}\\link", "link");
    check_text("\u{1b}]never ends\nbut this is text", "\nbut this is text");
    check_text("\u{1b}[31\nstill text", "\nstill text");
    check_text("a\u{9b}31mb\u{7}\u{8}c\u{7f}", "a31mbc");
    check_text("hidden\u{e0041}\u{e0042}\u{202e}\u{200b}", "hidden");
    check_text("in\u{ad}vis\u{61c}ible\u{3164}\u{ffa0}\u{115f}\u{180e}", "invisible");
    check_text("\u{2764}\u{fe0f}\u{fe0f}\u{fe0e} a\u{fe01}\u{fe0f}b", "\u{2764}\u{fe0f} ab");
    check_text("äöü 漢字 — “quoted” é", "äöü 漢字 — “quoted” é");
    // A family and a heart contain joiners and selectors.
    check_text(
        "\u{1f468}\u{200d}\u{1f469} \u{2764}\u{fe0f}",
        "\u{1f468}\u{200d}\u{1f469} \u{2764}\u{fe0f}",
    );
}

proptest! {
    #[test]
    fn sanitize_text_is_idempotent(text in any::<String>()) {
        let once = sanitize_text(&text).into_owned();
        prop_assert!(is_clean(&once, CarriageReturns::BecomeLineBreaks));
        prop_assert_eq!(sanitize_text(&once), Cow::Borrowed(once.as_str()));
    }
}

/// The prefilter must not miss an unwanted character.
#[test]
fn prefilter_misses_nothing() {
    for character in '\0'..=char::MAX {
        let mut buffer = [0; 4];
        let first = character.encode_utf8(&mut buffer).as_bytes()[0];
        assert!(is_suspect(first) || !is_unwanted(None, character), "{character:?}");
    }
}

#[track_caller]
fn check_invisible(text: &str, expected: &[bool]) {
    let mut previous = None;
    let found: Vec<bool> = text
        .chars()
        .map(|character| {
            let is_invisible = is_invisible(previous, character);
            previous = Some(character);
            is_invisible
        })
        .collect();
    assert_eq!(found, expected, "{text:?}");
}

#[test]
fn joiners_in_words_and_emoji_are_visible() {
    check_invisible("a\u{ad}\u{61c}", &[false, true, true]);
    check_invisible("\u{180e}\u{115f}\u{3164}\u{ffa0}", &[true; 4]);
    check_invisible("\u{2764}\u{fe0f}\u{200d}\u{1f525}", &[false; 4]);
    check_invisible("1\u{fe0f}\u{20e3}", &[false; 3]);
    check_invisible("\u{2764}\u{fe0f}\u{fe0f}", &[false, false, true]);
    check_invisible("a\u{fe0f}\u{fe01}\u{e0101}", &[false, true, true, true]);
    check_invisible("می\u{200c}خواهم", &[false; 8]);
    check_invisible("\u{200d}ü\u{200c}\u{200d}a\u{200d}", &[true, false, false, true, false, true]);
}
