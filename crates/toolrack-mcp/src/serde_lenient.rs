//! Reading members that real servers get wrong, and strings that need not be copied.
//!
//! **Invariant:** nothing here fails on well-formed JSON except the functions that say so.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::error::DecodeError;

/// A string that borrows from the input unless it has escapes. `Option<Cow<str>>` would copy.
#[derive(Debug, Clone)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A map that keeps the order of the wire. A key that comes twice keeps its first place and its
/// last value.
#[derive(Debug)]
pub(crate) struct Ordered<V>(pub(crate) Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Ordered<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrderedVisitor<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for OrderedVisitor<V> {
            type Value = Ordered<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Vec<(String, V)> = Vec::new();
                let mut places: BTreeMap<String, usize> = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, V>()? {
                    match places.get(&key).and_then(|&place| entries.get_mut(place)) {
                        Some(entry) => entry.1 = value,
                        None => {
                            places.insert(key.clone(), entries.len());
                            entries.push((key, value));
                        }
                    }
                }
                Ok(Ordered(entries))
            }
        }
        deserializer.deserialize_map(OrderedVisitor(PhantomData))
    }
}

/// Tells a member that is `null` from one that is missing, which serde's `Option` folds together.
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// Reads a member that is only decoration: of the wrong type, it counts as absent.
pub(crate) fn or_absent<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Like [`or_absent`], with the default for anything unreadable, `null` included.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    or_absent(deserializer).map(Option::unwrap_or_default)
}

/// Reads a flag that is an object when set: `{}` and anything but `null` and `false` count.
pub(crate) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(!matches!(raw.get(), "null" | "false"))
}

/// Keeps an object as it is written. Fails on anything else.
pub(crate) fn object<'de, D>(deserializer: D) -> Result<Box<RawValue>, D::Error>
where
    D: Deserializer<'de>,
{
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    if raw.get().starts_with('{') { Ok(raw) } else { Err(D::Error::custom("not an object")) }
}

/// Reads a payload, which is always an object. Derived readers would also take an array.
pub(crate) fn decode<'a, T: Deserialize<'a>>(raw: &'a [u8]) -> Result<T, DecodeError> {
    if raw.trim_ascii_start().first() != Some(&b'{') {
        return Err(DecodeError::Shape(serde_json::Error::custom("not an object")));
    }
    Ok(serde_json::from_slice(raw)?)
}

/// Reads parameters. Those that were left out, an empty slice here, are the same as `{}`.
pub(crate) fn decode_params<'a, T: Deserialize<'a>>(params: &'a [u8]) -> Result<T, DecodeError> {
    decode(if params.is_empty() { b"{}" } else { params })
}
