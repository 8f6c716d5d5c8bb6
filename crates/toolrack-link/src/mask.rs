//! Values that must not be seen, taken out of whatever a server writes for people.
//!
//! A server knows its own secrets and may print them, most of all when it fails. Whoever hands it a secret lets
//! the mask learn it, and what the server then writes to its error output, or instead of a message, is cleaned
//! before anybody keeps or logs it.
//!
//! **Invariant:** `Debug` shows how many values there are and none of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A shorter value is left alone: it would be found in words that have nothing to do with it.
const SHORTEST: usize = 6;

/// Values that must not be seen. All clones know the same ones.
#[derive(Clone, Default)]
pub struct Mask {
    /// Values by name.
    values: Arc<RwLock<BTreeMap<String, String>>>,
}

impl Mask {
    /// Remembers the value that stands under `name`, and forgets the one that stood there before.
    pub fn learn(&self, name: &str, value: &str) {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.insert(name.to_owned(), value.trim().to_owned());
    }

    /// The text with the name of each value in place of the value.
    pub fn clean<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let mut cleaned = Cow::Borrowed(text);
        // The longest first, because one value may be a part of another.
        let mut known: Vec<(&String, &String)> = values.iter().collect();
        known.retain(|(_, value)| value.len() >= SHORTEST && text.contains(value.as_str()));
        known.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        for (name, value) in known {
            cleaned = Cow::Owned(cleaned.replace(value.as_str(), &format!("[secret {name}]")));
        }
        cleaned
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_values = self.values.read().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Mask").field("n_values", &n_values).finish()
    }
}

/// Two masks are the same if what one learns the other knows.
impl PartialEq for Mask {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.values, &other.values)
    }
}

impl Eq for Mask {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mask = Mask::default();
        mask.learn("short", "abc");
        mask.learn("token", "s3cr3t");
        mask.learn("longer", "s3cr3t-and-more\n");
        assert_eq!(mask.clean(text), expected);
        assert_eq!(format!("{mask:?}"), "Mask { n_values: 3 }");
    }

    #[test]
    fn values_give_way_to_their_names() {
        check("nothing here", "nothing here");
        check("abc stays", "abc stays");
        check("key=s3cr3t; s3cr3t!", "key=[secret token]; [secret token]!");
        check("s3cr3t-and-more s3cr3t", "[secret longer] [secret token]");
    }

    #[test]
    fn a_new_value_takes_the_place_of_the_old_one() {
        let mask = Mask::default();
        let clone = mask.clone();
        mask.learn("token", "first-value");
        mask.learn("token", "second-value");
        assert_eq!(clone.clean("first-value second-value"), "first-value [secret token]");
        assert_eq!(mask, clone);
        assert_ne!(mask, Mask::default());
    }
}
