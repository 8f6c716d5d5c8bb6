//! Output formats: tables, JSON, YAML and raw; formatting of times.
//!
//! Times are in UTC, which needs no time zone tables.
//!
//! **Invariant:** tables never cut what the user types again. No line exceeds the width limit,
//! unless such a cell does.

use clap::ValueEnum;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::{json_format, yaml};

/// Output format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Human-readable text and tables
    #[default]
    Table,
    /// A JSON document
    Json,
    /// A YAML document
    Yaml,
    /// One JSON document per line
    Ndjson,
    /// The server's output, unchanged
    Raw,
}

/// A list as table rows and as JSON items.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) items: Vec<String>,
}

impl Output {
    /// Formats a document. As a table it is pretty-printed JSON.
    pub(crate) fn document(self, json: &str) -> String {
        match self {
            Self::Table | Self::Json => json_format::pretty(json),
            Self::Yaml => yaml::write(json),
            Self::Ndjson => json_format::compact(json),
            Self::Raw => json.to_owned(),
        }
    }

    /// Formats a list; a table is at most `columns` wide.
    pub(crate) fn list(self, list: &List, columns: Option<usize>) -> String {
        match self {
            Self::Table => render_table(list.columns, &list.rows, columns),
            Self::Json | Self::Yaml => self.document(&format!("[{}]", list.items.join(","))),
            Self::Ndjson | Self::Raw => {
                let lines: Vec<String> =
                    list.items.iter().map(|item| self.document(item)).collect();
                lines.join("\n")
            }
        }
    }
}

/// Between two columns.
const GAP: &str = "  ";
/// Columns are not shrunk below this width.
const MIN_WIDTH: usize = 6;
/// Columns whose cells the user types again.
const NEVER_CUT: [&str; 7] = ["ID", "NAME", "NEXT", "PROMPT", "SERVER", "TOOL", "URI"];

/// A column and its width.
#[derive(Debug, Clone, Copy)]
struct Column {
    width: usize,
    never_cut: bool,
}

/// Renders a table. Without a limit, nothing is cut.
pub(crate) fn render_table(columns: &[&str], rows: &[Vec<String>], limit: Option<usize>) -> String {
    let headings: Vec<String> = columns.iter().map(|&heading| heading.to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&headings).chain(rows).collect();
    let mut fitted = natural_columns(columns, &lines);
    if let Some(limit) = limit {
        fit_columns(&mut fitted, limit);
    }
    let drawn: Vec<String> = lines.iter().map(|cells| render_row(cells, &fitted)).collect();
    drawn.join("\n")
}

fn natural_columns(columns: &[&str], lines: &[&Vec<String>]) -> Vec<Column> {
    let widest = |index: usize| {
        lines.iter().filter_map(|cells| cells.get(index)).map(|cell| cell.width()).max()
    };
    // Resources are addressed by URI, so their names may be cut.
    let never_cut = |heading: &str| {
        NEVER_CUT.contains(&heading) && (heading != "NAME" || !columns.contains(&"URI"))
    };
    let column = |(index, heading): (usize, &&str)| Column {
        width: widest(index).unwrap_or_default(),
        never_cut: never_cut(heading),
    };
    columns.iter().enumerate().map(column).collect()
}

/// Shrinks the widest columns until all fit, beginning with those that may be cut.
fn fit_columns(columns: &mut [Column], limit: usize) {
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    while columns.iter().map(|column| column.width).sum::<usize>() + gaps > limit {
        let wide = columns.iter_mut().filter(|column| column.width > MIN_WIDTH);
        // Columns that are typed again shrink last; `row_widths` then gives their cells
        // the room back.
        match wide.max_by_key(|column| (!column.never_cut, column.width)) {
            Some(widest) => widest.width -= 1,
            None => break,
        }
    }
}

/// Cells that are never cut take room from the other cells of their row, the last one first.
fn row_widths(cells: &[String], columns: &[Column]) -> Vec<usize> {
    let width = |(cell, column): (&String, &Column)| {
        if column.never_cut { column.width.max(cell.width()) } else { column.width }
    };
    let mut widths: Vec<usize> = cells.iter().zip(columns).map(width).collect();
    let room: usize = columns.iter().map(|column| column.width).sum();
    let mut surplus = widths.iter().sum::<usize>().saturating_sub(room);
    for (width, _) in widths.iter_mut().zip(columns).rev().filter(|(_, column)| !column.never_cut) {
        let taken = surplus.min(*width);
        *width -= taken;
        surplus -= taken;
    }
    widths
}

fn render_row(cells: &[String], columns: &[Column]) -> String {
    let mut line = String::new();
    for (index, (cell, width)) in cells.iter().zip(row_widths(cells, columns)).enumerate() {
        if index > 0 {
            line.push_str(GAP);
        }
        let shown = truncate(cell, width);
        let missing = width.saturating_sub(shown.width());
        line.push_str(&shown);
        line.extend(std::iter::repeat_n(' ', missing));
    }
    line.truncate(line.trim_end().len());
    line
}

/// Cuts a text to a width, with an ellipsis.
pub(crate) fn truncate(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let mut shown = String::new();
    let mut room = width.saturating_sub(1);
    for character in text.chars() {
        // Columns and not characters: CJK characters take two.
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

const DAY: u64 = 24 * 60 * 60;

/// A timestamp in milliseconds as `2026-07-28T12:00:00Z`.
pub(crate) fn format_utc(time_ms: u64) -> String {
    let seconds = time_ms / 1000;
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Date of a day since the Unix epoch. Years are counted from March, so that leap days come last.
fn date(day: u64) -> (u64, u64, u64) {
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A relative time in one unit.
pub(crate) fn format_ago(time_ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(time_ms) / 1000;
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..DAY => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(output: Output, expected: &str) {
        let list = List {
            columns: &["NAME", "SIZE"],
            rows: vec![vec!["a".to_owned(), "1".to_owned()], vec!["bb".to_owned(), "2".to_owned()]],
            items: vec![r#"{"name": "a"}"#.to_owned(), r#"{"name": "bb"}"#.to_owned()],
        };
        assert_eq!(output.list(&list, None), expected);
    }

    #[test]
    fn lists_render_in_every_format() {
        check(Output::Table, "NAME  SIZE\na     1\nbb    2");
        let json = "[\n  {\n    \"name\": \"a\"\n  },\n  {\n    \"name\": \"bb\"\n  }\n]";
        check(Output::Json, json);
        check(Output::Yaml, "- name: a\n- name: bb");
        check(Output::Ndjson, "{\"name\":\"a\"}\n{\"name\":\"bb\"}");
        check(Output::Raw, "{\"name\": \"a\"}\n{\"name\": \"bb\"}");
    }

    fn drawn(columns: &[&str], rows: &[&[&str]], limit: Option<usize>) -> String {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|&cell| cell.to_owned()).collect()).collect();
        render_table(columns, &rows, limit)
    }

    #[track_caller]
    fn check_table(rows: &[&[&str]], limit: Option<usize>, expected: &str) {
        assert_eq!(drawn(&["NAME", "DESCRIPTION"], rows, limit), expected);
    }

    #[test]
    fn long_cells_are_truncated() {
        let long = "Adds two numbers and returns their sum";
        check_table(&[], None, "NAME  DESCRIPTION");
        check_table(&[&["add", long]], None, &format!("NAME  DESCRIPTION\nadd   {long}"));
        check_table(&[&["add", long]], Some(26), "NAME  DESCRIPTION\nadd   Adds two numbers an…");
        check_table(&[&["漢字", "x"]], Some(26), "NAME  DESCRIPTION\n漢字  x");
    }

    #[test]
    fn typed_columns_are_never_truncated() {
        let long = "a_very_long_name_indeed";
        check_table(&[&[long, "x"]], Some(20), &format!("NAME          DESCR…\n{long}"));
        check_table(
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
        fn table_width_is_limited(
            rows in prop::collection::vec(("[a-z漢ü ]{0,40}", "[a-z漢ü ]{0,90}"), 0..6),
            limit in 20_usize..120,
        ) {
            let rows: Vec<Vec<String>> = rows.into_iter().map(|(a, b)| vec![a, b]).collect();
            let drawn = render_table(&["NAME", "DESCRIPTION"], &rows, Some(limit));
            prop_assert_eq!(drawn.split('\n').count(), rows.len() + 1);
            for (line, row) in drawn.split('\n').skip(1).zip(&rows) {
                let name = row[0].trim_end();
                prop_assert!(line.starts_with(name), "{}", drawn);
                prop_assert!(line.width() <= limit.max(name.width()), "{}", drawn);
            }
        }
    }

    #[track_caller]
    fn check_time_format(time_ms: u64, expected: &str) {
        assert_eq!(format_utc(time_ms), expected);
    }

    #[test]
    fn timestamps_are_utc_dates() {
        check_time_format(0, "1970-01-01T00:00:00Z");
        check_time_format(951_782_400_000, "2000-02-29T00:00:00Z");
        check_time_format(951_868_799_999, "2000-02-29T23:59:59Z");
        check_time_format(1_735_689_600_000, "2025-01-01T00:00:00Z");
        check_time_format(4_107_542_399_000, "2100-02-28T23:59:59Z");
        check_time_format(4_107_542_400_000, "2100-03-01T00:00:00Z");
    }

    #[test]
    fn relative_times_have_one_unit() {
        for (seconds, expected) in
            [(0, "just now"), (61, "1 min ago"), (7300, "2 h ago"), (200_000, "2 days ago")]
        {
            assert_eq!(format_ago(0, seconds * 1000), expected);
        }
        assert_eq!(format_ago(5000, 0), "just now");
    }
}
