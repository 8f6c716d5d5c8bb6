//! Pages of list results, list parameters, and the JSON depth limit of entries.
//!
//! **Invariant:** a malformed entry never fails the list and never disappears silently: it is skipped,
//! counted and described.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::error::DecodeError;
use crate::json_scan::depth;
use crate::method::Method;
use crate::request::{Request, RequestResult};
use crate::serde_lenient::{Text, or_absent};

/// An entry of a paged list.
pub trait ListEntry: DeserializeOwned {
    /// Method that lists the entries.
    const METHOD: Method;
    /// Member of the result that holds the entries.
    const MEMBER: &'static str;
    /// An entry whose members all have the right type: read in one pass, and borrowed from the page.
    type Sound<'a>: Deserialize<'a>;

    /// The same entry, or `None` if it needs a closer look, or may be nested too deep: `serde_json` skips raw values at any
    /// depth, so a deep one would pass here and break a client.
    fn from_sound(sound: Self::Sound<'_>) -> Option<Self>;
}

/// One page of a list.
#[derive(Debug, Clone)]
pub struct ListPage<T> {
    /// Valid entries in the server's order.
    pub items: Vec<T>,
    /// Cursor of the next page. Only `None` means the end: an empty string is a cursor.
    pub next_cursor: Option<String>,
    /// Skipped entries.
    pub skipped: Vec<SkippedEntry>,
    /// How long the list is fresh after receipt (`ttlMs`). Zero, also if absent or malformed, means stale at once.
    pub ttl: Duration,
    /// Size of the result in bytes, as received.
    pub n_bytes: usize,
}

/// A skipped part of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedEntry {
    /// Index among the entries. The index after the last entry stands for the cursor.
    pub index: usize,
    /// `name` of the entry, if readable.
    pub name: Option<String>,
    /// Reason.
    pub reason: String,
    /// Number of parts that this stands for. More than one only in the last of many, which stands for the rest.
    pub n_entries: usize,
}

impl<T: ListEntry> RequestResult for ListPage<T> {
    /// Reads a list result. Fails if it has no list.
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        if let Ok(sheet) = serde_json::from_slice::<Sheet<'_, T, SoundEntries<T>>>(raw) {
            return sheet.finish(raw.len(), |items| (items.0, Vec::new()));
        }
        // Something is malformed. The second pass finds it and keeps the rest.
        let sheet: Sheet<'_, T, Vec<&RawValue>> = serde_json::from_slice(raw)?;
        sheet.finish(raw.len(), |entries| read_lenient(&entries))
    }
}

/// Malformed entries of one list that are described. A description is larger than a short entry, so that a page full of
/// malformed entries would take many times its own size.
const MAX_DESCRIBED: usize = 100;

/// Reads entry by entry and describes the malformed ones, up to [`MAX_DESCRIBED`]; the rest is counted.
pub(crate) fn read_lenient<'a, T: Deserialize<'a>>(
    entries: &[&'a RawValue],
) -> (Vec<T>, Vec<SkippedEntry>) {
    let mut items = Vec::new();
    let mut skipped = Vec::new();
    let mut n_undescribed = 0_usize;
    for (index, entry) in entries.iter().enumerate() {
        let read = if depth(entry.get().as_bytes()) <= DEEPEST {
            serde_json::from_str(entry.get()).map_err(|fault| fault.to_string())
        } else {
            Err(format!("nested deeper than {DEEPEST} levels"))
        };
        match read {
            Ok(item) => items.push(item),
            Err(_) if skipped.len() >= MAX_DESCRIBED => n_undescribed += 1,
            Err(reason) => {
                skipped.push(SkippedEntry { index, name: name(entry), reason, n_entries: 1 });
            }
        }
    }
    if n_undescribed > 0 {
        let reason = format!("{n_undescribed} more entries are malformed");
        let index = entries.len();
        skipped.push(SkippedEntry { index, name: None, reason, n_entries: n_undescribed });
    }
    (items, skipped)
}

/// Number of parts that these stand for.
pub fn n_skipped(skipped: &[SkippedEntry]) -> usize {
    skipped.iter().map(|entry| entry.n_entries).sum()
}

fn name(entry: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default, deserialize_with = "or_absent")]
        name: Option<String>,
    }
    serde_json::from_str(entry.get()).ok().and_then(|entry: Named| entry.name)
}

/// Members of a page, with entries of type `I`.
struct Sheet<'a, T, I> {
    entries: Option<Option<I>>,
    next_cursor: Option<&'a RawValue>,
    ttl_millis: u64,
    of: PhantomData<T>,
}

impl<T: ListEntry, I: Default> Sheet<'_, T, I> {
    fn finish(
        self,
        n_bytes: usize,
        read: impl FnOnce(I) -> (Vec<T>, Vec<SkippedEntry>),
    ) -> Result<ListPage<T>, DecodeError> {
        let Some(entries) = self.entries else {
            return Err(DecodeError::Missing { member: T::MEMBER });
        };
        // Servers in languages with nil lists write an empty list as `null`.
        let (items, mut skipped) = read(entries.unwrap_or_default());
        let next_cursor = match self.next_cursor.map(|cursor| serde_json::from_str(cursor.get())) {
            None => None,
            Some(Ok(cursor)) => cursor,
            Some(Err(fault)) => {
                let index = items.len() + n_skipped(&skipped);
                let reason = format!("the list ends here, nextCursor is unreadable: {fault}");
                skipped.push(SkippedEntry { index, name: None, reason, n_entries: 1 });
                None
            }
        };
        let ttl = Duration::from_millis(self.ttl_millis);
        Ok(ListPage { items, next_cursor, skipped, ttl, n_bytes })
    }
}

impl<'de: 'a, 'a, T: ListEntry, I: Deserialize<'de>> Deserialize<'de> for Sheet<'a, T, I> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SheetVisitor<T, I>(PhantomData<(T, I)>);
        impl<'de, T: ListEntry, I: Deserialize<'de>> Visitor<'de> for SheetVisitor<T, I> {
            type Value = Sheet<'de, T, I>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object with `{}`", T::MEMBER)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut sheet =
                    Sheet { entries: None, next_cursor: None, ttl_millis: 0, of: PhantomData };
                while let Some(Text(key)) = map.next_key()? {
                    match &*key {
                        member if member == T::MEMBER => sheet.entries = Some(map.next_value()?),
                        "nextCursor" => sheet.next_cursor = Some(map.next_value()?),
                        "ttlMs" => {
                            // Negative, fractional or malformed: not cacheable.
                            let millis: &RawValue = map.next_value()?;
                            sheet.ttl_millis = millis.get().parse().unwrap_or_default();
                        }
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

/// All entries of a page, which are sound; otherwise reading fails.
struct SoundEntries<T>(Vec<T>);

impl<T> Default for SoundEntries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: ListEntry> Deserialize<'de> for SoundEntries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<T>(PhantomData<T>);
        impl<'de, T: ListEntry> Visitor<'de> for EntriesVisitor<T> {
            type Value = SoundEntries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(sound) = entries.next_element::<T::Sound<'de>>()? {
                    items.push(T::from_sound(sound).ok_or_else(|| A::Error::custom("unsound"))?);
                }
                Ok(SoundEntries(items))
            }
        }
        deserializer.deserialize_seq(EntriesVisitor(PhantomData))
    }
}

/// Parameters of a list request: asks for a page of `T`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ListParams<'a, T> {
    /// Cursor: `next_cursor` of the previous page, absent for the first
    /// page. An empty string is a valid cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<&'a str>,
    #[serde(skip)]
    entry: PhantomData<fn() -> T>,
}

impl<'a, T> ListParams<'a, T> {
    /// Asks for the page at `cursor`, or for the first page.
    pub fn new(cursor: Option<&'a str>) -> Self {
        Self { cursor, entry: PhantomData }
    }
}

impl<T: ListEntry> Request for ListParams<'_, T> {
    const METHOD: Method = T::METHOD;
    type Result = ListPage<T>;
}

/// Maximum nesting of a list entry. A message that contains it stays below 128 levels, the limit of
/// most JSON parsers.
pub(crate) const DEEPEST: usize = 120;

/// Whether members of an entry, kept as written, are not nested too deep.
pub(crate) fn are_shallow<'a>(members: impl IntoIterator<Item = Option<&'a RawValue>>) -> bool {
    members.into_iter().flatten().all(|raw| depth(raw.get().as_bytes()) < DEEPEST)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod list_tests {
    use super::*;
    use crate::tool::Tool;

    #[track_caller]
    fn check(cursor: Option<&str>, expected: &str) {
        let params = ListParams::<Tool>::new(cursor);
        assert_eq!(serde_json::to_string(&params).unwrap(), expected);
    }

    #[test]
    fn empty_cursor_is_sent() {
        check(None, "{}");
        check(Some(""), r#"{"cursor":""}"#);
        check(Some("a\n"), r#"{"cursor":"a\n"}"#);
    }
}
