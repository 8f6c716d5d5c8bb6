//! Gate G08: a file with any one byte changed is read or rejected as it is, and never overwritten.

use std::fs;

use toolrack_service::{ErrorCode, ServiceError};

use crate::store_fixture::{store, temp_dir, write};

const FILE: &str = r#"# Mine.
[defaults]
timeout = "90s" # long
[[defaults.mcp]]
name = "a"
command = "npx"
args = ["-y", 'b\c']
env = { K = "ü-canary", T = { secret_ref = "t" } }
[[agents]]
id = "m"
[[agents.mcp]]
name = "s"
url = "https://a.dev/mcp"
"#;

/// Aborts an edit of a file that could be read.
fn enough() -> ServiceError {
    ServiceError::new(ErrorCode::Internal, "enough")
}

#[test]
fn damaged_file_is_rejected_and_left_alone() {
    let dir = temp_dir();
    let store = store(&dir);
    let prefix = format!("{}:", store.path().display());
    let mut n_refused = 0;
    for position in 0..FILE.len() {
        let byte = FILE.as_bytes()[position];
        let others = [0, b'\n', b'"', b'[', b'=', b' ', b'#', 0xff, byte ^ 1, byte ^ 0x80];
        for other in others.into_iter().filter(|other| *other != byte) {
            let mut damaged = FILE.as_bytes().to_vec();
            damaged[position] = other;
            write(store.path(), &damaged);
            let error = store.edit(None, |_| Err::<(), _>(enough())).unwrap_err();
            assert!(fs::read(store.path()).unwrap() == damaged, "{position}: {other}");
            if error == enough() {
                continue;
            }
            n_refused += 1;
            assert!(!format!("{error:?}").contains("canary"), "{position}: {other}: {error}");
            for fault in error.details() {
                let place = fault.message.strip_prefix(&prefix).unwrap_or_default();
                let numbers: Vec<_> =
                    place.splitn(3, ':').take(2).map(str::parse::<usize>).collect();
                let is_place = numbers.len() == 2 && numbers.iter().all(Result::is_ok);
                assert!(is_place, "{position}: {other}: {fault}");
            }
        }
    }
    assert!(n_refused > FILE.len(), "{n_refused}");
}
