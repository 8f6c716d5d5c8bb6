//! One page of a list, read in one pass if it is sound and entry by entry if it is not.
//!
//! **Invariant:** a malformed entry never fails the list and never disappears: it is skipped,
//! counted and described.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::cache_hint::{CacheHint, Hints};
use crate::error::DecodeError;
use crate::serde_lenient::{Text, or_absent};

/// Something that servers list page by page.
pub trait Listed: DeserializeOwned {
    /// The member of the result that holds the entries.
    const MEMBER: &'static str;
}

/// One page of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The entries that could be read, in the server's order.
    pub items: Vec<T>,
    /// Where the next page begins. Only `None` is the end: an empty string is a cursor.
    pub next_cursor: Option<String>,
    /// What could not be read.
    pub skipped: Vec<Skipped>,
    /// How long this page may be kept.
    pub cache: CacheHint,
}

/// A part of a result that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its place among the entries, from zero. The place after the last is the cursor's.
    pub index: usize,
    /// Its `name`, if at least that could be read.
    pub name: Option<String>,
    /// What is wrong with it.
    pub reason: String,
}

impl<T: Listed> Page<T> {
    /// Reads the result of a list request. Fails if it has no list at all.
    pub fn parse(raw: &[u8]) -> Result<Self, DecodeError> {
        if depth(raw) <= DEEPEST
            && let Ok(sheet) = serde_json::from_slice::<Sheet<'_, T, Vec<T>>>(raw)
        {
            return sheet.finish(|items| (items, Vec::new()));
        }
        // Something in it is unsound. A second look finds out what, and keeps the rest.
        let sheet: Sheet<'_, T, Vec<&RawValue>> = serde_json::from_slice(raw)?;
        sheet.finish(|entries| salvage(&entries))
    }
}

/// Reads entry by entry and describes those that cannot be read.
pub(crate) fn salvage<'a, T: Deserialize<'a>>(entries: &[&'a RawValue]) -> (Vec<T>, Vec<Skipped>) {
    let mut items = Vec::with_capacity(entries.len());
    let mut skipped = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let read = if depth(entry.get().as_bytes()) <= DEEPEST {
            serde_json::from_str(entry.get()).map_err(|fault| fault.to_string())
        } else {
            Err(format!("nested deeper than {DEEPEST} levels"))
        };
        match read {
            Ok(item) => items.push(item),
            Err(reason) => skipped.push(Skipped { index, name: name(entry), reason }),
        }
    }
    (items, skipped)
}

fn name(entry: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default, deserialize_with = "or_absent")]
        name: Option<String>,
    }
    serde_json::from_str(entry.get()).ok().and_then(|it: Named| it.name)
}

/// The members of a page, with the entries still in the form `I`.
struct Sheet<'a, T, I> {
    entries: Option<Option<I>>,
    next_cursor: Option<&'a RawValue>,
    hints: Hints<'a>,
    of: PhantomData<T>,
}

impl<T: Listed, I: Default> Sheet<'_, T, I> {
    fn finish(
        self,
        read: impl FnOnce(I) -> (Vec<T>, Vec<Skipped>),
    ) -> Result<Page<T>, DecodeError> {
        let Some(entries) = self.entries else {
            return Err(DecodeError::Missing { member: T::MEMBER });
        };
        // Servers in languages where an empty list is nil write it as `null`.
        let (items, mut skipped) = read(entries.unwrap_or_default());
        let next_cursor = match self.next_cursor.map(|it| serde_json::from_str(it.get())) {
            None => None,
            Some(Ok(cursor)) => cursor,
            Some(Err(fault)) => {
                let index = items.len() + skipped.len();
                let reason = format!("the list ends here, nextCursor is unreadable: {fault}");
                skipped.push(Skipped { index, name: None, reason });
                None
            }
        };
        Ok(Page { items, next_cursor, skipped, cache: self.hints.read() })
    }
}

impl<'de: 'a, 'a, T: Listed, I: Deserialize<'de>> Deserialize<'de> for Sheet<'a, T, I> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SheetVisitor<T, I>(PhantomData<(T, I)>);
        impl<'de, T: Listed, I: Deserialize<'de>> Visitor<'de> for SheetVisitor<T, I> {
            type Value = Sheet<'de, T, I>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object with `{}`", T::MEMBER)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut sheet = Sheet {
                    entries: None,
                    next_cursor: None,
                    hints: Hints::default(),
                    of: PhantomData,
                };
                while let Some(Text(key)) = map.next_key()? {
                    match &*key {
                        member if member == T::MEMBER => sheet.entries = Some(map.next_value()?),
                        "nextCursor" => sheet.next_cursor = Some(map.next_value()?),
                        "ttlMs" => sheet.hints.ttl = Some(map.next_value()?),
                        "cacheScope" => sheet.hints.scope = Some(map.next_value()?),
                        _ => {
                            let IgnoredAny = map.next_value()?;
                        }
                    }
                }
                Ok(sheet)
            }
        }
        deserializer.deserialize_map(SheetVisitor(PhantomData))
    }
}

macro_rules! list_params {
    ($($name:ident $what:literal;)*) => {
        $(
            #[doc = concat!("Asks for a page of ", $what, ".")]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
            pub struct $name<'a> {
                /// Where to go on: the `next_cursor` of the page before, and nothing for the first
                /// page. An empty string is a cursor like any other.
                #[serde(skip_serializing_if = "Option::is_none")]
                pub cursor: Option<&'a str>,
            }
        )*
    };
}

list_params! {
    ListToolsParams "tools";
    ListResourcesParams "resources";
    ListResourceTemplatesParams "resource templates";
    ListPromptsParams "prompts";
}

/// How deep an entry of a list may be. A whole message with it stays below 128, which most readers of JSON take at
/// most.
pub(crate) const DEEPEST: usize = 120;

/// How many brackets are open at most. What is no JSON has some depth too.
pub(crate) fn depth(json: &[u8]) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    let (mut is_within, mut is_escaped) = (false, false);
    for byte in json {
        if is_within {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => is_within = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => is_within = true,
            b'{' | b'[' => {
                open += 1;
                most = most.max(open);
            }
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod list_tests {
    use super::*;

    #[track_caller]
    fn check(cursor: Option<&str>, expected: &str) {
        let params = ListToolsParams { cursor };
        assert_eq!(serde_json::to_string(&params).unwrap(), expected);
    }

    #[test]
    fn an_empty_cursor_is_sent() {
        check(None, "{}");
        check(Some(""), r#"{"cursor":""}"#);
        check(Some("a\n"), r#"{"cursor":"a\n"}"#);
    }
}

#[cfg(test)]
mod json_depth_tests {
    use super::*;

    #[test]
    fn brackets_are_counted_and_those_in_texts_are_not() {
        let check =
            |json: &str, expected: usize| assert_eq!(depth(json.as_bytes()), expected, "{json}");
        check("", 0);
        check("5", 0);
        check(r#"{"a":[1,{}],"b":[]}"#, 3);
        check(r#"["[[[", "\"[[[", "\\", []]"#, 2);
        check("]]]][", 1);
        assert_eq!(depth("[".repeat(1_000_000).as_bytes()), 1_000_000);
    }
}
