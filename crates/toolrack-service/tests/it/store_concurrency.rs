//! Gate G08: many processes edit one file at once, and no change is lost.

use toolrack_service::{ConfigScope, ConfigStore, ETag, ErrorCode};

use crate::store_fixture::{
    TIMEOUT, child_path, count, counted, names, server, spawn_self, store, temp_dir,
};

const N_PROGRAMS: u64 = 8;
const N_CHANGES: u64 = 100;

/// Not a test: run in several processes, it increments a counter, every other time with an expected `ETag`.
#[test]
fn concurrent_writer() {
    let Some(path) = child_path() else { return };
    let store = ConfigStore::new(path).lock_timeout(TIMEOUT);
    let count_on = |expected: Option<ETag>| {
        store.edit(expected, |document| {
            let config = document.find(&ConfigScope::Defaults, "counter").unwrap().config;
            document.replace(&counted(&config, count(&config) + 1))
        })
    };
    for n in 0..N_CHANGES {
        if n % 2 == 0 {
            count_on(None).unwrap();
            continue;
        }
        while let Err(error) = count_on(Some(store.read().unwrap().etag)) {
            assert_eq!(error.code(), ErrorCode::Conflict, "{error}");
        }
    }
}

#[test]
fn concurrent_processes_lose_no_change() {
    let dir = temp_dir();
    let store = store(&dir);
    store
        .edit(None, |document| {
            document.add(&ConfigScope::Defaults, &counted(&server("counter"), 0))
        })
        .unwrap();
    let start = |_| spawn_self(&[], "store_concurrency::concurrent_writer", store.path());
    let programs: Vec<_> = (0..N_PROGRAMS).map(start).collect();
    for mut program in programs {
        let (status, _, complained) = program.wait_with_output(TIMEOUT).unwrap();
        assert!(status.success(), "{complained}");
    }
    let counter = store.read().unwrap().document().unwrap().entries().remove(0).config;
    assert_eq!(count(&counter), N_PROGRAMS * N_CHANGES);
    assert_eq!(names(dir.path()), ["toolrack.toml"]);
}
