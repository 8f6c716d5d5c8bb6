//! Look-alike names: tools of different servers whose names a person can mistake for each other.
//!
//! Names are compared by their skeleton, in which letters that look alike are the same. The tables are short: the letters
//! of Cyrillic and Greek that look like Latin ones, full-width forms, case, and the usual digits and separators.
//!
//! **Invariant:** the work grows with the number of tools, not with the number of their pairs.

use std::collections::HashMap;

use toolrack_transport::is_invisible;

use crate::server_tools::ToolWithServer;

/// Names that each skeleton is compared with. Two per server are enough to find one of another server.
const MAX_COMPARED: usize = 64;
/// Names of one server that each skeleton is compared with.
const MAX_PER_SERVER: usize = 2;

/// For each tool, the place of a tool of another server whose name looks the same, and is not.
pub fn look_alikes(tools: &[ToolWithServer]) -> Vec<Option<usize>> {
    let names = |name: fn(&ToolWithServer) -> &str| {
        let named = tools.iter().map(|tool| (&**tool.server(), name(tool)));
        find_look_alikes(&named.collect::<Vec<_>>())
    };
    let by_raw_name = names(|tool| &tool.tool().name);
    // Also names that clients see: those of servers with similar names begin alike.
    let by_public_name = names(|tool| tool.name());
    by_raw_name.into_iter().zip(by_public_name).map(|(raw, public)| raw.or(public)).collect()
}

/// The same for pairs of server and name.
fn find_look_alikes(names: &[(&str, &str)]) -> Vec<Option<usize>> {
    let skeletons: Vec<String> = names.iter().map(|(_, name)| skeleton(name)).collect();
    let mut compared: HashMap<&str, Vec<usize>> = HashMap::with_capacity(names.len());
    for (place, ((server, name), skeleton)) in names.iter().zip(&skeletons).enumerate() {
        let group = compared.entry(skeleton.as_str()).or_default();
        let known = group.iter().filter_map(|place| names.get(*place));
        let of_server = known.filter(|(other, _)| other == server);
        let is_new = of_server.clone().all(|(_, other)| other != name);
        if is_new && of_server.count() < MAX_PER_SERVER && group.len() < MAX_COMPARED {
            group.push(place);
        }
    }
    let partner = |((server, name), skeleton): (&(&str, &str), &String)| {
        let mut group = compared.get(skeleton.as_str())?.iter();
        let is_other = |place: &&usize| {
            names.get(**place).is_some_and(|(other, text)| other != server && text != name)
        };
        group.find(is_other).copied()
    };
    names.iter().zip(&skeletons).map(partner).collect()
}

/// A name in which characters that look alike are the same.
fn skeleton(name: &str) -> String {
    let visible = name.chars().filter(|character| !is_invisible(None, *character));
    visible.flat_map(|character| fold_width(character).to_lowercase()).map(fold).collect()
}

/// Full-width forms as ASCII.
fn fold_width(character: char) -> char {
    match character {
        '\u{ff01}'..='\u{ff5e}' => {
            let ascii = u32::from(character) - 0xff01 + 0x21;
            char::from_u32(ascii).unwrap_or(character)
        }
        other => other,
    }
}

/// A lower-case character as the Latin one that looks like it.
fn fold(character: char) -> char {
    match character {
        '0' | 'о' | 'ο' => 'o',
        '1' | '|' | 'i' | 'і' | 'ι' | 'ı' | 'ӏ' => 'l',
        '-' | '.' | ' ' | '/' | '\u{2010}'..='\u{2015}' | '\u{2212}' => '_',
        'а' | 'α' => 'a',
        'в' | 'β' => 'b',
        'с' | 'ϲ' => 'c',
        'ԁ' => 'd',
        'е' | 'ε' => 'e',
        'һ' | 'н' => 'h',
        'ј' => 'j',
        'к' | 'κ' => 'k',
        'м' | 'μ' => 'm',
        'η' | 'п' => 'n',
        'р' | 'ρ' => 'p',
        'ԛ' => 'q',
        'ѕ' => 's',
        'т' | 'τ' => 't',
        'υ' => 'u',
        'ν' => 'v',
        'ԝ' => 'w',
        'х' | 'χ' => 'x',
        'у' | 'γ' => 'y',
        'ζ' => 'z',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_alike_have_one_skeleton() {
        let check = |one: &str, two: &str, is_alike: bool| {
            assert_eq!(skeleton(one) == skeleton(two), is_alike, "{one} {two}");
        };
        check("read_file", "rеаd_filе", true);
        check("read_file", "read-file", true);
        check("read_file", "Read_FILE", true);
        check("read_file", "re\u{200b}ad_f\u{e0041}ile", true);
        check("list", "1ist", true);
        check("scope", "ѕсоре", true);
        check("go", "g0", true);
        check("open", "\u{ff4f}pen", true);
        check("τοpic", "topic", true);
        check("read_file", "read_files", false);
        check("write", "read", false);
        check("", "a", false);
    }

    #[test]
    fn only_different_names_of_different_servers_look_alike() {
        let check = |names: &[(&str, &str)], expected: &[Option<usize>]| {
            assert_eq!(find_look_alikes(names), expected, "{names:?}");
        };
        check(&[("a", "search"), ("b", "search")], &[None, None]);
        check(&[("a", "search"), ("a", "Search")], &[None, None]);
        check(&[("a", "search"), ("b", "Search")], &[Some(1), Some(0)]);
        check(&[("a", "search"), ("b", "other"), ("c", "sеarch")], &[Some(2), None, Some(0)]);
        check(
            &[("a", "x-y"), ("a", "x_y"), ("b", "x_y"), ("b", "x_y")],
            &[Some(2), None, Some(0), Some(0)],
        );
        check(&[], &[]);
    }

    /// Comparing all pairs of so many names would take minutes.
    #[test]
    fn many_look_alikes_cost_little() {
        let names: Vec<String> = (0..20_000_u32)
            .map(|n| (0..15).map(|bit| if n >> bit & 1 == 0 { 'o' } else { 'О' }).collect())
            .collect();
        let names: Vec<(&str, &str)> = names.iter().map(|name| ("a", name.as_str())).collect();
        let mut all = names.clone();
        all.push(("b", "ooooooooooooooo"));
        let found = find_look_alikes(&all);
        assert_eq!(found.iter().filter(|partner| partner.is_some()).count(), 20_000);
        assert_eq!(found.last(), Some(&Some(1)));
    }
}
