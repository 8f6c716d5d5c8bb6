//! The lasting identity of entries: as the file says, or derived from place and name until it does.
//!
//! **Invariant:** no two entries of a document have the same id, and an id that was told before it was written
//! is the one that is written.

use std::collections::HashSet;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use toml_edit::TableLike;
use uuid::{Builder, Uuid};

use super::entry::Row;
use super::server_tables::Place;
use super::toml_json;

/// The id of each entry, in order. If several claim the same, as after copying an entry by hand, the first
/// has it.
pub(super) fn of_all<'a>(rows: impl Iterator<Item = (&'a Place, &'a Row)> + Clone) -> Vec<Uuid> {
    let mut used = HashSet::new();
    let claimed: Vec<Option<Uuid>> =
        rows.clone().map(|(_, row)| stated(row).filter(|id| used.insert(*id))).collect();
    let each = rows.zip(claimed).map(|((place, row), claimed)| {
        let name = row.get("name").and_then(Value::as_str).unwrap_or_default();
        claimed.unwrap_or_else(|| {
            let mut fresh = (0_u32..).map(|n| derived(place, name, n));
            fresh.find(|id| used.insert(*id)).unwrap_or_else(Uuid::new_v4)
        })
    });
    each.collect()
}

/// Writes an id where the file has another or none, and says whether it did.
pub(super) fn assign(table: &mut dyn TableLike, id: Uuid) -> bool {
    let mut row = toml_json::row(table);
    if stated(&row) == Some(id) {
        return false;
    }
    row.insert("id".to_owned(), Value::from(id.to_string()));
    toml_json::merge(table, &row);
    true
}

fn stated(row: &Row) -> Option<Uuid> {
    let id = Uuid::parse_str(row.get("id")?.as_str()?).ok()?;
    (!id.is_nil()).then_some(id)
}

fn derived(place: &Place, name: &str, n: u32) -> Uuid {
    let mut digest = Sha256::new_with_prefix("toolrack entry\0");
    if let Place::Agent(agent) = place {
        digest.update(agent);
    }
    digest.update([0]);
    digest.update(name);
    digest.update(n.to_be_bytes());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
    Builder::from_random_bytes(bytes).into_uuid()
}
