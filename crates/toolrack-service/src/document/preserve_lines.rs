//! Puts an edited text into its original so that untouched lines keep their bytes.
//!
//! The editor ends every line with `\n` and adds one at the end of the file. Lines that are the same but for
//! their ends are taken from the original, and new ones end as those do if those agree.

/// The edited text, with every line that it shares with the original as it stands there.
pub(super) fn splice(original: &str, edited: &str) -> String {
    let (mark, original) = match original.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", original),
    };
    let old: Vec<&str> = original.split_inclusive('\n').collect();
    let new: Vec<&str> = edited.split_inclusive('\n').collect();
    let alike = |(left, right): &(&&str, &&str)| bare(left) == bare(right);
    let n_first = old.iter().zip(&new).take_while(alike).count();
    let rest = old.len().min(new.len()) - n_first;
    let n_last = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(alike).count();

    let mut ended = old.iter().filter(|it| it.ends_with('\n')).peekable();
    let is_crlf = ended.peek().is_some() && ended.all(|it| it.ends_with("\r\n"));
    let end = if is_crlf { "\r\n" } else { "\n" };
    let first = old.iter().take(n_first);
    let middle = new.iter().skip(n_first).take(new.len() - n_first - n_last);
    let last = old.iter().skip(old.len() - n_last);
    let mut text = String::with_capacity(original.len().max(edited.len()) + mark.len());
    text.push_str(mark);
    let mut add = |line: &str, ending: &str| {
        // Only the last line of a file may lack its end, and this may no longer be the last.
        if !text.is_empty() && text != mark && !text.ends_with('\n') {
            text.push_str(end);
        }
        text.push_str(line);
        text.push_str(ending);
    };
    first.for_each(|line| add(line, ""));
    middle.for_each(|line| match line.strip_suffix('\n') {
        Some(line) if !line.ends_with('\r') => add(line, end),
        _ => add(line, ""),
    });
    last.for_each(|line| add(line, ""));
    text
}

fn bare(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(original: &str, edited: &str, expected: &str) {
        assert_eq!(splice(original, edited), expected);
    }

    #[test]
    fn untouched_lines_keep_their_bytes() {
        check("a\nb\n", "a\nb\n", "a\nb\n");
        check("a\r\nb\r\nc", "a\nb\nc\n", "a\r\nb\r\nc");
        check("a\r\nb\r\nc", "a\nx\nc\n", "a\r\nx\r\nc");
        check("a\r\nb", "a\nb\nc\n", "a\r\nb\r\nc\r\n");
        check("a\nb\r\nc\n", "a\nc\n", "a\nc\n");
        check("a\r\nb\nc\n", "a\nx\ny\r\nc\n", "a\r\nx\ny\r\nc\n");
        check("\u{feff}a", "a\nb\n", "\u{feff}a\nb\n");
        check("", "a\n", "a\n");
        check("\u{feff}", "a\n", "\u{feff}a\n");
        check("a\na\n", "a\na\na\n", "a\na\na\n");
        check("a\n", "", "");
    }
}
