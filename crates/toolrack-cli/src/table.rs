//! Tables that fit their terminal: one row to a line, cells cut where there is no room.
//!
//! **Invariant:** no line is wider than the limit, unless there are more columns than it has places.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Between two columns.
const GAP: &str = "  ";
/// A column is not made narrower than this for the sake of others.
const LEAST: usize = 6;

/// Draws rows below their headings. Without a limit nothing is cut.
pub(crate) fn draw(columns: &[&str], rows: &[Vec<String>], limit: Option<usize>) -> String {
    let headings: Vec<String> = columns.iter().map(|&it| it.to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&headings).chain(rows).collect();
    let widths = fit(natural(columns.len(), &lines), limit);
    let drawn: Vec<String> = lines.iter().map(|cells| row(cells, &widths)).collect();
    drawn.join("\n")
}

fn natural(n_columns: usize, lines: &[&Vec<String>]) -> Vec<usize> {
    let widest = |at: usize| lines.iter().filter_map(|it| it.get(at)).map(|it| it.width()).max();
    (0..n_columns).map(|at| widest(at).unwrap_or_default()).collect()
}

/// Takes from the widest column until all of them fit.
fn fit(mut widths: Vec<usize>, limit: Option<usize>) -> Vec<usize> {
    let Some(limit) = limit else { return widths };
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > limit {
        match widths.iter_mut().max() {
            Some(widest) if *widest > LEAST => *widest -= 1,
            _ => break,
        }
    }
    widths
}

fn row(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if at > 0 {
            line.push_str(GAP);
        }
        let shown = cut(cell, *width);
        let missing = width.saturating_sub(shown.width());
        line.push_str(&shown);
        line.extend(std::iter::repeat_n(' ', missing));
    }
    line.truncate(line.trim_end().len());
    line
}

/// As much of a text as has room, with an ellipsis in place of the rest.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut room = width.saturating_sub(1);
    for character in text.chars() {
        let needs = character.width().unwrap_or_default();
        if needs > room {
            break;
        }
        room -= needs;
        shown.push(character);
    }
    shown.truncate(shown.trim_end().len());
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(rows: &[&[&str]], limit: Option<usize>, expected: &str) {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|&it| it.to_owned()).collect()).collect();
        assert_eq!(draw(&["NAME", "DESCRIPTION"], &rows, limit), expected);
    }

    #[test]
    fn cells_are_cut_where_there_is_no_room() {
        let long = "Adds two numbers and returns their sum";
        check(&[], None, "NAME  DESCRIPTION");
        check(&[&["add", long]], None, &format!("NAME  DESCRIPTION\nadd   {long}"));
        check(&[&["add", long]], Some(26), "NAME  DESCRIPTION\nadd   Adds two numbers an…");
        check(&[&["漢字", "x"]], Some(26), "NAME  DESCRIPTION\n漢字  x");
        check(&[&["a_very_long_name_indeed", "x"]], Some(20), "NAME       DESCRIPT…\na_very_l…  x");
    }

    proptest! {
        #[test]
        fn a_table_is_no_wider_than_its_limit(
            rows in prop::collection::vec(("[a-z漢ü ]{0,40}", "[a-z漢ü ]{0,90}"), 0..6),
            limit in 20_usize..120,
        ) {
            let rows: Vec<Vec<String>> = rows.into_iter().map(|(a, b)| vec![a, b]).collect();
            let drawn = draw(&["NAME", "DESCRIPTION"], &rows, Some(limit));
            prop_assert_eq!(drawn.split('\n').count(), rows.len() + 1);
            prop_assert!(drawn.lines().all(|it| it.width() <= limit), "{}", drawn);
        }
    }
}
