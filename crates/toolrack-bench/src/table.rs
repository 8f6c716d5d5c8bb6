//! Markdown tables with aligned columns, readable in a terminal too.

/// A table with a title. Every row has as many cells as there are headings.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) headings: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// The first column is left-aligned text; the others are right-aligned numbers.
    pub(crate) fn render(&self) -> String {
        let widths = self.widths();
        let rule: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(column, width)| match column {
                0 => "-".repeat(width + 2),
                _ => format!("{}:", "-".repeat(width + 1)),
            })
            .collect();
        let mut text = format!("## {}\n\n", self.title);
        push_row(&mut text, &self.headings, &widths);
        text.extend(["|", &rule.join("|"), "|\n"]);
        for row in &self.rows {
            push_row(&mut text, row, &widths);
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let columns = 0..self.headings.len();
        let cells = |column: usize| {
            let rows = std::iter::once(&self.headings).chain(&self.rows);
            rows.filter_map(move |row| row.get(column))
        };
        columns
            .map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0))
            .collect()
    }
}

fn push_row(text: &mut String, cells: &[String], widths: &[usize]) {
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        match column {
            0 => text.extend(["| ", cell, &padding, " "]),
            _ => text.extend(["| ", &padding, cell, " "]),
        }
    }
    text.push_str("|\n");
}

/// Cell without a value.
pub(crate) const NO_VALUE: &str = "–";

/// Formats a finite number, or the lack of one.
pub(crate) fn optional(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| NO_VALUE.to_owned(), number)
}

/// Formats a number with digit groups and few decimals: 1,234,567 · 123.4 · 12.34.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        _ => 2,
    };
    let rounded = format!("{value:.decimals$}");
    let (whole, fraction) = match rounded.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (rounded.as_str(), String::new()),
    };
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_aligned_markdown() {
        let table = Table {
            title: "Calls".to_owned(),
            headings: vec!["client".to_owned(), "p50 µs".to_owned()],
            rows: vec![
                vec!["rmcp".to_owned(), "15.70".to_owned()],
                vec!["a longer name".to_owned(), "never finishes".to_owned()],
            ],
        };
        let expected = "\
## Calls

| client        |         p50 µs |
|---------------|---------------:|
| rmcp          |          15.70 |
| a longer name | never finishes |
";
        assert_eq!(table.render(), expected);
    }

    #[track_caller]
    fn check(value: f64, expected: &str) {
        assert_eq!(number(value), expected);
    }

    #[test]
    fn numbers_are_grouped_and_rounded() {
        check(0.0, "0.00");
        check(4.456, "4.46");
        check(99.999, "100.00");
        check(123.44, "123.4");
        check(1_000.4, "1,000");
        check(1_234_567.8, "1,234,568");
        check(-12_345.6, "-12,346");
    }
}
