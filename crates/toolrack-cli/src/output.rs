//! The forms that data can have, and what a list looks like in each of them.

use clap::ValueEnum;

use crate::json_format;
use crate::table;
use crate::yaml;

/// The form of data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Text and tables for people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// One JSON document on each line
    Ndjson,
    /// What the server wrote, untouched
    Raw,
}

/// Several things of one kind: as a table, and each as the JSON that it is.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) items: Vec<String>,
}

impl Output {
    pub(crate) const ALL: [Self; 5] =
        [Self::Table, Self::Json, Self::Yaml, Self::Ndjson, Self::Raw];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Ndjson => "ndjson",
            Self::Raw => "raw",
        }
    }

    /// Writes a document. A table of a document is its JSON.
    pub(crate) fn document(self, json: &str) -> String {
        match self {
            Self::Table | Self::Json => json_format::pretty(json),
            Self::Yaml => yaml::write(json),
            Self::Ndjson => json_format::line(json),
            Self::Raw => json.to_owned(),
        }
    }

    /// Writes a list, with the table no wider than `columns`.
    pub(crate) fn list(self, list: &List, columns: Option<usize>) -> String {
        match self {
            Self::Table => table::draw(list.columns, &list.rows, columns),
            Self::Json | Self::Yaml => self.document(&format!("[{}]", list.items.join(","))),
            Self::Ndjson | Self::Raw => {
                let lines: Vec<String> = list.items.iter().map(|it| self.document(it)).collect();
                lines.join("\n")
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn a_list_has_every_form() {
        check(Output::Table, "NAME  SIZE\na     1\nbb    2");
        let json = "[\n  {\n    \"name\": \"a\"\n  },\n  {\n    \"name\": \"bb\"\n  }\n]";
        check(Output::Json, json);
        check(Output::Yaml, "- name: a\n- name: bb");
        check(Output::Ndjson, "{\"name\":\"a\"}\n{\"name\":\"bb\"}");
        check(Output::Raw, "{\"name\": \"a\"}\n{\"name\": \"bb\"}");
    }

    #[test]
    fn every_form_is_typed_as_it_is_called() {
        for output in Output::ALL {
            assert_eq!(Output::from_str(output.word(), false), Ok(output));
        }
    }
}
