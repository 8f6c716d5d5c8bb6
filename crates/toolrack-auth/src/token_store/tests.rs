//! File permissions, locking and atomic replacement.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::stored_credentials::tests::grant;

const SERVER: &str = "https://mcp.example:8443/mcp";

fn credentials(token: &str) -> StoredCredentials {
    let mut grant = grant(1, None);
    grant.access_token = Secret::new(token);
    StoredCredentials { grant: Some(grant), ..StoredCredentials::default() }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn saved_credentials_are_private() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("a/secrets");
    let store = FileTokenStore::new(&dir);
    assert_eq!(store.load(SERVER).await.unwrap(), None);
    let lock = store.lock(SERVER).await.unwrap();
    store.save(&lock, Some(&credentials("one"))).await.unwrap();
    store.save(&lock, Some(&credentials("two"))).await.unwrap();
    assert_eq!(store.load(SERVER).await.unwrap(), Some(credentials("two")));
    assert_eq!(store.load("https://mcp.example:8443/").await.unwrap(), None);
    assert_eq!(mode(&dir), 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        names.push(path.extension().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["json", "lock"]);
    store.save(&lock, None).await.unwrap();
    assert_eq!(store.load(SERVER).await.unwrap(), None);
}

#[tokio::test]
async fn readable_directory_is_made_private() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let lock = FileTokenStore::new(home.path()).lock(SERVER).await.unwrap();
    assert_eq!(mode(home.path()), 0o700);
    drop(lock);
}

#[tokio::test]
async fn file_lock_is_exclusive_and_times_out() {
    let home = tempfile::tempdir().unwrap();
    let impatient = FileTokenStore {
        lock_timeout: Duration::from_millis(30),
        ..FileTokenStore::new(home.path())
    };
    let lock = impatient.lock(SERVER).await.unwrap();
    assert!(matches!(impatient.lock(SERVER).await, Err(StoreError::Busy)));
    let other = impatient.lock("https://other.example/").await.unwrap();
    drop(other);
    drop(lock);
    let lock = impatient.lock(SERVER).await.unwrap();
    drop(lock);
}

#[tokio::test]
async fn malformed_credentials_can_be_replaced() {
    let home = tempfile::tempdir().unwrap();
    let store = FileTokenStore::new(home.path());
    let lock = store.lock(SERVER).await.unwrap();
    let mut file =
        private_options().write(true).create(true).truncate(true).open(store.path(SERVER)).unwrap();
    file.write_all(b"{\"grant\": 7").unwrap();
    assert_eq!(store.load(SERVER).await.unwrap(), None);
    store.save(&lock, Some(&credentials("new"))).await.unwrap();
    assert_eq!(store.load(SERVER).await.unwrap(), Some(credentials("new")));
}

#[test]
fn file_names_are_safe_and_unique() {
    let store = FileTokenStore::new("/d");
    let name = |server: &str| store.path(server).file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name("https://mcp.example/a").starts_with("mcp.example_"));
    assert_ne!(name("https://mcp.example/a"), name("https://mcp.example/b"));
    assert!(!name("http://[::1]:80/../../x").contains(['/', ':']));
    assert!(!name("../../etc/passwd").contains('/'));
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Spec 004: `mcp_{uuid}.oauth`. A login of an earlier version is read, moved by the next save, and then gone.
#[tokio::test]
async fn login_of_a_server_is_named_by_its_id() {
    let home = tempfile::tempdir().unwrap();
    let (secrets, tokens) = (home.path().join("secrets"), home.path().join("tokens"));
    let old = FileTokenStore::new(&tokens);
    let lock = old.lock(SERVER).await.unwrap();
    old.save(&lock, Some(&credentials("old"))).await.unwrap();
    drop(lock);
    let (one, two) =
        ("6f2c1e9a-8a1b-4c3d-9e4f-0123456789ab", "6f2c1e9a-8a1b-4c3d-9e4f-0123456789ac");
    let store = FileTokenStore::for_server(&secrets, one, &tokens);
    assert_eq!(store.load(SERVER).await.unwrap(), Some(credentials("old")));
    let lock = store.lock(SERVER).await.unwrap();
    let impatient = FileTokenStore { lock_timeout: Duration::from_millis(30), ..old.clone() };
    assert!(matches!(impatient.lock(SERVER).await, Err(StoreError::Busy)), "one refresh at a time");
    store.save(&lock, Some(&credentials("new"))).await.unwrap();
    drop(lock);
    assert_eq!(names(&secrets), [format!("mcp_{one}.lock"), format!("mcp_{one}.oauth")]);
    assert_eq!(mode(&secrets.join(format!("mcp_{one}.oauth"))), 0o600);
    assert!(!old.path(SERVER).exists() && old.load(SERVER).await.unwrap().is_none());
    assert_eq!(store.load(SERVER).await.unwrap(), Some(credentials("new")));
    // Not for another server, and not for another URL of this one.
    let other = FileTokenStore::for_server(&secrets, two, &tokens);
    assert_eq!(other.load(SERVER).await.unwrap(), None);
    assert_eq!(store.load("https://evil.example/mcp").await.unwrap(), None);
    let lock = store.lock(SERVER).await.unwrap();
    store.save(&lock, None).await.unwrap();
    assert_eq!(store.load(SERVER).await.unwrap(), None);
    remove_server_tokens(&secrets, one).unwrap();
    assert_eq!(names(&secrets), [""; 0]);
    remove_server_tokens(&secrets, two).unwrap();
}

#[test]
fn fingerprint_is_short_and_stable() {
    assert_eq!(fingerprint("https://h/mcp"), fingerprint("https://h/mcp"));
    assert_eq!(fingerprint("a").len(), 16);
    assert_ne!(fingerprint("a"), fingerprint("b"));
}
