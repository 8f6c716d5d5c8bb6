//! What the history of a home holds, read without the daemon.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;

/// The ids of all calls in the history, which has to be sound. Read from a copy, so that the next daemon finds the
/// files as the killed one left them.
pub(crate) fn written(history: &Path) -> anyhow::Result<HashSet<String>> {
    if !history.exists() {
        return Ok(HashSet::new());
    }
    let dir = TempDir::new()?;
    let copy = dir.path().join("history.db");
    fs::copy(history, &copy)?;
    let log = history.with_extension("db-wal");
    if log.exists() {
        fs::copy(log, copy.with_extension("db-wal"))?;
    }
    let connection = Connection::open(&copy)?;
    let verdict: String =
        connection.query_row("pragma integrity_check", [], |connection| connection.get(0))?;
    anyhow::ensure!(verdict == "ok", "integrity_check: {verdict}");
    let tables = "select count(*) from sqlite_schema where name = 'calls'";
    if connection.query_row(tables, [], |connection| connection.get::<_, i64>(0))? == 0 {
        return Ok(HashSet::new());
    }
    let mut statement = connection.prepare("select id from calls")?;
    let ids = statement.query_map([], |statement| statement.get(0))?.collect::<Result<_, _>>()?;
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_that_is_not_there_is_empty_and_a_broken_one_is_told() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("history.db");
        assert_eq!(written(&path).unwrap(), HashSet::new());
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("create table calls (id text); insert into calls values ('a')")
            .unwrap();
        drop(connection);
        assert_eq!(written(&path).unwrap(), HashSet::from(["a".to_owned()]));
        let bytes = vec![7; 4096];
        std::io::Write::write_all(&mut fs::File::create(&path).unwrap(), &bytes).unwrap();
        assert!(written(&path).is_err());
    }
}
