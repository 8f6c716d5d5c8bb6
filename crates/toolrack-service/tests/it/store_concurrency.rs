//! Gate G08: many programs change one file at once, and no change is lost.

use toolrack_service::{ConfigScope, ConfigStore, ETag, ErrorCode};

use crate::store_fixture::{
    PATIENCE, again, count, counted, folder, given_path, names, server, store,
};

const N_PROGRAMS: u64 = 8;
const N_CHANGES: u64 = 100;

/// Not a test of its own: a program that counts on, every other time only from what it has seen.
#[test]
fn member() {
    let Some(path) = given_path() else { return };
    let store = ConfigStore::new(path).lock_timeout(PATIENCE);
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
fn changes_of_many_programs_at_once_are_all_made() {
    let dir = folder();
    let store = store(&dir);
    store.edit(None, |it| it.add(&ConfigScope::Defaults, &counted(&server("counter"), 0))).unwrap();
    let start = |_| again(&[], "store_concurrency::member", store.path());
    let programs: Vec<_> = (0..N_PROGRAMS).map(start).collect();
    for mut program in programs {
        let (status, _, complained) = program.output(PATIENCE).unwrap();
        assert!(status.success(), "{complained}");
    }
    let counter = store.read().unwrap().document().unwrap().entries().remove(0).config;
    assert_eq!(count(&counter), N_PROGRAMS * N_CHANGES);
    assert_eq!(names(dir.path()), ["toolrack.toml"]);
}
