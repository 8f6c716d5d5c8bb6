//! Tables that fit their terminal: one row to a line, cells cut where there is no room.
//!
//! **Invariant:** what a person has to type again is never cut. No line is wider than the limit, unless that alone is.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Between two columns.
const GAP: &str = "  ";
/// A column is not made narrower than this for the sake of others.
const LEAST: usize = 6;
/// The headings above what a person types again.
const TYPED: [&str; 7] = ["ID", "NAME", "NEXT", "PROMPT", "SERVER", "TOOL", "URI"];

/// A column, and how much room it has.
#[derive(Debug, Clone, Copy)]
struct Column {
    width: usize,
    is_typed: bool,
}

/// Draws rows below their headings. Without a limit nothing is cut.
pub(crate) fn draw(columns: &[&str], rows: &[Vec<String>], limit: Option<usize>) -> String {
    let headings: Vec<String> = columns.iter().map(|&it| it.to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&headings).chain(rows).collect();
    let mut fitted = natural(columns, &lines);
    if let Some(limit) = limit {
        fit(&mut fitted, limit);
    }
    let drawn: Vec<String> = lines.iter().map(|cells| row(cells, &fitted)).collect();
    drawn.join("\n")
}

fn natural(columns: &[&str], lines: &[&Vec<String>]) -> Vec<Column> {
    let widest = |at: usize| lines.iter().filter_map(|it| it.get(at)).map(|it| it.width()).max();
    // What has an address is not meant by its name.
    let is_typed = |it: &str| TYPED.contains(&it) && (it != "NAME" || !columns.contains(&"URI"));
    let column = |(at, it): (usize, &&str)| Column {
        width: widest(at).unwrap_or_default(),
        is_typed: is_typed(it),
    };
    columns.iter().enumerate().map(column).collect()
}

/// Takes from the widest column until all of them fit, first from those that nobody types.
fn fit(columns: &mut [Column], limit: usize) {
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    while columns.iter().map(|it| it.width).sum::<usize>() + gaps > limit {
        let wide = columns.iter_mut().filter(|it| it.width > LEAST);
        match wide.max_by_key(|it| (!it.is_typed, it.width)) {
            Some(widest) => widest.width -= 1,
            None => break,
        }
    }
}

/// A cell that is typed again takes what it needs, at the cost of others in its row, the last one first.
fn widths(cells: &[String], columns: &[Column]) -> Vec<usize> {
    let width = |(cell, column): (&String, &Column)| {
        if column.is_typed { column.width.max(cell.width()) } else { column.width }
    };
    let mut widths: Vec<usize> = cells.iter().zip(columns).map(width).collect();
    let room: usize = columns.iter().map(|it| it.width).sum();
    let mut surplus = widths.iter().sum::<usize>().saturating_sub(room);
    for (width, _) in widths.iter_mut().zip(columns).rev().filter(|(_, it)| !it.is_typed) {
        let taken = surplus.min(*width);
        *width -= taken;
        surplus -= taken;
    }
    widths
}

fn row(cells: &[String], columns: &[Column]) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths(cells, columns)).enumerate() {
        if at > 0 {
            line.push_str(GAP);
        }
        let shown = cut(cell, width);
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
    if width == 0 {
        return String::new();
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

    fn drawn(columns: &[&str], rows: &[&[&str]], limit: Option<usize>) -> String {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|&it| it.to_owned()).collect()).collect();
        draw(columns, &rows, limit)
    }

    #[track_caller]
    fn check(rows: &[&[&str]], limit: Option<usize>, expected: &str) {
        assert_eq!(drawn(&["NAME", "DESCRIPTION"], rows, limit), expected);
    }

    #[test]
    fn cells_are_cut_where_there_is_no_room() {
        let long = "Adds two numbers and returns their sum";
        check(&[], None, "NAME  DESCRIPTION");
        check(&[&["add", long]], None, &format!("NAME  DESCRIPTION\nadd   {long}"));
        check(&[&["add", long]], Some(26), "NAME  DESCRIPTION\nadd   Adds two numbers an…");
        check(&[&["漢字", "x"]], Some(26), "NAME  DESCRIPTION\n漢字  x");
    }

    #[test]
    fn what_is_typed_again_is_never_cut() {
        let long = "a_very_long_name_indeed";
        check(&[&[long, "x"]], Some(20), &format!("NAME          DESCR…\n{long}"));
        check(
            &[&["add", "Adds two numbers"], &[long, "x"]],
            Some(28),
            &format!("NAME                  DESCR…\nadd                   Adds…\n{long}  x"),
        );
        let columns = ["NAME", "STATE", "DETAIL", "NEXT"];
        let row = ["it", "failed", "no `npx` in the path", "toolrack doctor it"];
        assert_eq!(
            drawn(&columns, &[&row], Some(44)),
            "NAME  STATE   DETAIL      NEXT\nit    failed  no `npx`…   toolrack doctor it",
        );
        let columns = ["SERVER", "URI", "NAME", "DESCRIPTION"];
        let row = ["web", "demo://resource/static/document/features.md", "features.md", "Text"];
        assert_eq!(
            drawn(&columns, &[&row], Some(64)),
            "SERVER  URI                                       NAME    DESCR…\n\
             web     demo://resource/static/document/features.md  featu…  Te…",
        );
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
            for (line, row) in drawn.split('\n').skip(1).zip(&rows) {
                let name = row[0].trim_end();
                prop_assert!(line.starts_with(name), "{}", drawn);
                prop_assert!(line.width() <= limit.max(name.width()), "{}", drawn);
            }
        }
    }
}
