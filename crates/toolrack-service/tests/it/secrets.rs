//! Secret store: files are private, replaced atomically, and never shown.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use toolrack_service::{
    ErrorCode, FileSecretStore, Home, LocalService, Secret, SecretStore, ServiceOptions,
};

use crate::store_fixture::{TIMEOUT, child_path, names, spawn_self, temp_dir, write};

const CANARY: &str = "canary-5f3a9";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn reveal(store: &dyn SecretStore, name: &str) -> Option<String> {
    store.get(name).unwrap().map(|secret| secret.reveal().to_owned())
}

#[test]
fn secret_is_set_read_changed_listed_and_removed() {
    let dir = temp_dir();
    let store = FileSecretStore::new(dir.path().join("a/secrets"));
    assert_eq!((reveal(&store, "b"), store.list().unwrap()), (None, Vec::new()));
    assert!(!store.remove("b").unwrap());
    store.set("b", &Secret::new("one")).unwrap();
    store.set("a.B-c_1", &Secret::new("zwei\nlines")).unwrap();
    store.set("b", &Secret::new("two")).unwrap();
    assert_eq!(reveal(&store, "b").as_deref(), Some("two"));
    assert_eq!(store.list().unwrap(), ["a.B-c_1", "b"]);
    assert_eq!(names(store.dir()), ["mcp_a.B-c_1.key", "mcp_b.key"]);
    assert_eq!(reveal(&store, "a.B-c_1").as_deref(), Some("zwei\nlines"));
    assert!(store.remove("b").unwrap());
    assert_eq!((reveal(&store, "b"), store.list().unwrap()), (None, vec!["a.B-c_1".to_owned()]));
}

#[test]
fn one_trailing_line_break_is_not_part_of_a_secret() {
    let dir = temp_dir();
    let store = FileSecretStore::new(dir.path());
    for (set, kept) in [("x\n", "x"), ("x\r\n", "x"), ("x\n\n", "x\n"), (" x ", " x ")] {
        store.set("a", &Secret::new(set)).unwrap();
        assert_eq!(reveal(&store, "a").as_deref(), Some(kept.strip_suffix('\n').unwrap_or(kept)));
    }
    write(&dir.path().join("mcp_b.key"), "by hand\n");
    assert_eq!(reveal(&store, "b").as_deref(), Some("by hand"));
}

/// Not a test: run in a process without a umask, it sets a secret.
#[test]
fn secret_writer() {
    let Some(dir) = child_path() else { return };
    FileSecretStore::new(dir).set("a", &Secret::new(CANARY)).unwrap();
}

#[test]
fn secret_is_private_regardless_of_umask() {
    let dir = temp_dir();
    let secrets = dir.path().join("secrets");
    let wrapper = ["sh", "-c", r#"umask 000; exec "$@""#, "sh"].map(str::to_owned);
    let (status, _, complained) =
        spawn_self(&wrapper, "secrets::secret_writer", &secrets).wait_with_output(TIMEOUT).unwrap();
    assert!(status.success(), "{complained}");
    assert!(!complained.contains(CANARY));
    assert_eq!((mode(&secrets), mode(&secrets.join("mcp_a.key"))), (0o700, 0o600));
}

#[test]
fn access_for_other_users_is_removed() {
    let dir = temp_dir();
    let store = FileSecretStore::new(dir.path());
    store.set("a", &Secret::new(CANARY)).unwrap();
    let file = dir.path().join("mcp_a.key");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(reveal(&store, "a").as_deref(), Some(CANARY));
    assert_eq!((mode(dir.path()), mode(&file)), (0o700, 0o600));
}

#[tokio::test]
async fn data_dir_is_closed_to_other_users() {
    let dir = temp_dir();
    let (data, config) = (dir.path().join("data"), dir.path().join("config/toolrack.toml"));
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let service = LocalService::open(Home::new(&config, &data), ServiceOptions::default());
    service.await.unwrap().close().await;
    assert_eq!(mode(&data), 0o700);
}

#[test]
fn invalid_names_are_rejected_and_not_repeated() {
    let dir = temp_dir();
    let store = FileSecretStore::new(dir.path().join("secrets"));
    let long = "x".repeat(129);
    let hostile = [
        "",
        ".",
        "..",
        ".hidden",
        "../a",
        "a/b",
        "/etc/passwd",
        "a\\b",
        "a\0b",
        "a b",
        "a\nb",
        "ä",
        "%2e%2e",
        "~",
        "$HOME",
        "a:b",
        "*",
        "\u{202e}a",
        long.as_str(),
    ];
    for name in hostile {
        let value = Secret::new(CANARY);
        let errors = [
            store.get(name).unwrap_err(),
            store.set(name, &value).unwrap_err(),
            store.remove(name).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.code(), ErrorCode::ValidationError, "{name:?}");
            assert_eq!(error.details()[0].field.as_deref(), Some("name"));
        }
    }
    let typed_in_the_wrong_place = format!("{CANARY} {CANARY}");
    let error = store.get(&typed_in_the_wrong_place).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(CANARY));
    assert!(!store.dir().exists());
    store.set("x".repeat(128).as_str(), &Secret::new("y")).unwrap();
}

#[test]
fn links_are_not_followed() {
    let dir = temp_dir();
    let secrets = dir.path().join("secrets");
    let store = FileSecretStore::new(&secrets);
    store.set("a", &Secret::new("mine")).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    write(&elsewhere, "theirs");
    symlink(&elsewhere, secrets.join("mcp_b.key")).unwrap();
    fs::hard_link(&elsewhere, secrets.join("mcp_c.key")).unwrap();
    fs::create_dir(secrets.join("mcp_d.key")).unwrap();
    for name in ["b", "c", "d"] {
        let error = store.get(name).unwrap_err();
        assert!(!error.to_string().contains("theirs") && error.hint().is_some(), "{error}");
    }
    assert!(store.set("b", &Secret::new("new")).is_err());
    assert!(store.set("d", &Secret::new("new")).is_err());
    store.set("c", &Secret::new("new")).unwrap();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "theirs");
    assert!(store.remove("b").unwrap());
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "theirs");
    store.set("b", &Secret::new("new")).unwrap();
    assert_eq!(reveal(&store, "b").as_deref(), Some("new"));
}

#[test]
fn invalid_values_are_rejected_and_not_shown() {
    let dir = temp_dir();
    let store = FileSecretStore::new(dir.path());
    for value in [String::new(), "\n".into(), format!("{CANARY}\0"), CANARY.repeat(6000)] {
        let error = store.set("a", &Secret::new(value)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ValidationError);
        assert!(!format!("{error} {error:?}").contains(CANARY));
    }
    write(&dir.path().join("mcp_a.key"), CANARY.repeat(6000));
    write(&dir.path().join("mcp_b.key"), [b"canary-5f3a9".as_slice(), &[0xff]].concat());
    for name in ["a", "b"] {
        let error = store.get(name).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(CANARY));
    }
    store.set("c", &Secret::new(CANARY)).unwrap();
    let shown = format!("{store:?} {:?}", store.get("c"));
    assert!(!shown.contains(CANARY), "{shown}");
}

const SERVER: &str = "6f2c1e9a-8a1b-4c3d-9e4f-0123456789ab";

/// Spec 004: the API keys of a server are in `mcp_{uuid}.key`; a secret with a name of its own has a file of its own.
#[test]
fn secrets_of_a_server_share_a_file() {
    let dir = temp_dir();
    let store = FileSecretStore::new(dir.path());
    let (one, two) = (format!("{SERVER}.ONE"), format!("{SERVER}.TWO"));
    store.set(&one, &Secret::new("1st\n\"line\"")).unwrap();
    store.set(&two, &Secret::new("second")).unwrap();
    store.set("own", &Secret::new("third")).unwrap();
    let file = format!("mcp_{SERVER}.key");
    assert_eq!(names(dir.path()), [file.as_str(), "mcp_own.key"]);
    assert_eq!(mode(&dir.path().join(&file)), 0o600);
    assert_eq!(reveal(&store, &one).as_deref(), Some("1st\n\"line\""));
    assert_eq!(reveal(&store, &two).as_deref(), Some("second"));
    assert_eq!((reveal(&store, SERVER), reveal(&store, &format!("{SERVER}.THREE"))), (None, None));
    assert_eq!(store.list().unwrap(), [one.as_str(), two.as_str(), "own"]);
    // A key that was written by hand, as it is in the document, has the id as its name, and stays.
    store.remove(&one).unwrap();
    assert!(store.remove(&two).unwrap() && !store.remove(&two).unwrap());
    assert_eq!(names(dir.path()), ["mcp_own.key"]);
    write(&dir.path().join(&file), "by hand\n");
    store.set(&two, &Secret::new("second")).unwrap();
    assert_eq!(store.list().unwrap(), [SERVER, two.as_str(), "own"]);
    assert_eq!(reveal(&store, SERVER).as_deref(), Some("by hand"));
    assert!(store.remove(SERVER).unwrap());
    // A file that cannot be read is not replaced, and its content not shown.
    write(&dir.path().join(&file), [CANARY.as_bytes(), &[0xff]].concat());
    for error in [store.set(&one, &Secret::new("x")).unwrap_err(), store.get(&one).unwrap_err()] {
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error}");
    }
    assert_eq!(store.list().unwrap(), ["own"]);
    fs::remove_file(dir.path().join(&file)).unwrap();
    let large = Secret::new("x".repeat(64 << 10));
    let name = |n: usize| format!("{SERVER}.V{n}");
    (0..15).for_each(|n| store.set(&name(n), &large).unwrap());
    let error = store.set(&name(15), &large).unwrap_err();
    let message = &error.details()[0].message;
    assert_eq!(message, "the secrets of one server must not be longer than 1 MiB");
    assert_eq!(store.list().unwrap().len(), 16, "the others are not lost");
}

/// Earlier versions had one file per secret. It is read, moved into the file of the server, and removed.
#[test]
fn secrets_of_earlier_versions_are_moved() {
    let dir = temp_dir();
    let store = FileSecretStore::new(dir.path());
    let name = |variable: &str| format!("{SERVER}.{variable}");
    let old_file = |variable: &str| dir.path().join(format!("mcp_{SERVER}.{variable}.key"));
    for variable in ["READ", "SET", "REMOVED", "KEPT"] {
        write(&old_file(variable), format!("old {variable}\n"));
    }
    let expected = ["KEPT", "READ", "REMOVED", "SET"].map(name);
    assert_eq!(store.list().unwrap(), expected);
    assert_eq!(reveal(&store, &name("READ")).as_deref(), Some("old READ"));
    store.set(&name("SET"), &Secret::new("new")).unwrap();
    assert!(store.remove(&name("REMOVED")).unwrap());
    for variable in ["READ", "SET", "REMOVED"] {
        assert!(!old_file(variable).exists(), "{variable}");
    }
    let file = format!("mcp_{SERVER}.key");
    assert_eq!(names(dir.path()), [format!("mcp_{SERVER}.KEPT.key"), file.clone()]);
    assert_eq!(reveal(&store, &name("READ")).as_deref(), Some("old READ"));
    assert_eq!(reveal(&store, &name("SET")).as_deref(), Some("new"));
    assert_eq!(reveal(&store, &name("REMOVED")), None);
    // A crash between the two steps leaves both files: the new one counts.
    write(&old_file("SET"), "old SET");
    assert_eq!(reveal(&store, &name("SET")).as_deref(), Some("new"));
    assert_eq!(reveal(&store, &name("KEPT")).as_deref(), Some("old KEPT"));
    assert_eq!(store.list().unwrap(), ["KEPT", "READ", "SET"].map(name));
}

/// A server must not start with an empty key because a file was truncated.
#[test]
fn empty_secret_is_an_error_that_names_it() {
    let dir = temp_dir();
    let store = FileSecretStore::new(dir.path());
    let variable = format!("{SERVER}.KEY");
    for content in ["", "\n", "\r\n"] {
        write(&dir.path().join("mcp_own.key"), content);
        assert_eq!(reveal(&store, "own").as_deref(), Some(""));
        let error = store.get_for_server("own").unwrap_err();
        assert_eq!(error.details()[0].message, "secret `own` is empty", "{content:?}");
        assert!(error.hint().is_some());
    }
    write(&dir.path().join(format!("mcp_{SERVER}.key")), "{\"KEY\":\"\"}");
    assert!(store.get_for_server(&variable).unwrap_err().to_string().contains("KEY` is empty"));
    assert_eq!(store.list().unwrap(), [variable.as_str(), "own"]);
    store.set("own", &Secret::new("value")).unwrap();
    assert_eq!(reveal(&store, "own").as_deref(), Some("value"));
    assert!(store.remove(&variable).unwrap());
}
