//! Config store: create, read, edit, reject.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use toolrack_config::{Dialect, Severity};
use toolrack_service::{
    ConfigScope, ConfigStore, ETag, Enabled, ErrorCode, LoadError, ServiceError,
};

use crate::store_fixture::{add, names, server, servers, store, temp_dir, write};

const VALID: &str = "# mine\n[[defaults.mcp]]\nname = 'a'\ncommand = 'x'\n";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[track_caller]
fn check<T>(result: Result<T, ServiceError>, code: ErrorCode, message: &str) {
    let Err(error) = result else { panic!("no error") };
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn missing_file_is_created_by_the_first_change() {
    let dir = temp_dir();
    let store = ConfigStore::new(dir.path().join("new/folder/toolrack.toml"));
    let stored = store.read().unwrap();
    assert_eq!((&*stored.text, stored.etag), ("", ETag::from_text("")));
    store.edit(None, |_| Ok(())).unwrap();
    assert!(!store.path().exists(), "nothing was changed, so there is nothing to save");
    let id = add(&store, "a");
    let stored = store.read().unwrap();
    assert!(stored.text.starts_with("# MCP servers of toolrack."), "{}", stored.text);
    assert!(stored.warnings.is_empty());
    assert_eq!(stored.document().unwrap().get(id).unwrap().config.name, "a");
    assert_eq!(mode(store.path()), 0o600);
    assert_eq!(mode(store.path().parent().unwrap()), 0o700);
    assert_eq!(names(store.path().parent().unwrap()), ["toolrack.toml"]);
}

#[test]
fn edit_keeps_the_mode_and_follows_symlinks() {
    let dir = temp_dir();
    let (home, dotfiles) = (dir.path().join("home"), dir.path().join("dotfiles"));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&dotfiles).unwrap();
    let real = dotfiles.join("rack.toml");
    write(&real, VALID);
    fs::set_permissions(&real, fs::Permissions::from_mode(0o644)).unwrap();
    let link = home.join("toolrack.toml");
    symlink("../dotfiles/rack.toml", &link).unwrap();
    add(&ConfigStore::new(&link), "b");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(mode(&real), 0o644);
    assert_eq!(servers(&ConfigStore::new(&real)), ["a", "b"]);
    assert_eq!(names(&dotfiles), ["rack.toml"]);
    assert_eq!(names(&home), ["toolrack.toml"]);

    fs::remove_file(&real).unwrap();
    add(&ConfigStore::new(&link), "c");
    assert_eq!(servers(&ConfigStore::new(&real)), ["c"], "a link to nothing leads to the new file");

    let circle = home.join("circle");
    symlink("circle", &circle).unwrap();
    check(ConfigStore::new(&circle).read(), ErrorCode::ValidationError, "links");
}

#[test]
fn only_the_expected_version_is_changed() {
    let dir = temp_dir();
    let store = store(&dir);
    write(store.path(), VALID);
    let etag = store.read().unwrap().etag;
    let ((), now) = store
        .edit(Some(etag), |document| {
            document.set_enabled(document.entries()[0].config.id, Enabled::No)
        })
        .unwrap();
    assert_eq!(store.read().unwrap().etag, now.etag);
    let again =
        || store.edit(Some(etag), |document| document.add(&ConfigScope::Defaults, &server("b")));
    check(again(), ErrorCode::Conflict, "changed by another program");
    check(store.replace_text(Some(etag), VALID), ErrorCode::Conflict, "changed by another program");
    let written = fs::metadata(store.path()).unwrap().modified().unwrap();
    store.edit(Some(now.etag), |_| Ok(())).unwrap();
    assert_eq!(fs::metadata(store.path()).unwrap().modified().unwrap(), written);
    assert_eq!(store.replace_text(Some(now.etag), VALID).unwrap().text, VALID);
}

#[test]
fn invalid_file_is_never_overwritten() {
    let dir = temp_dir();
    let store = store(&dir);
    let broken = format!("{VALID}[[defaults.mcp]]\nname = 1\ntimeout = '5'\nname =\n");
    write(store.path(), &broken);
    let error = store
        .edit(None, |document| document.add(&ConfigScope::Defaults, &server("b")))
        .unwrap_err();
    assert!(error.details().len() >= 2, "{error}");
    assert!(error.to_string().contains("toolrack.toml:6:8: "), "{error}");
    assert_eq!(store.read().unwrap_err(), error);
    check(store.replace_text(None, VALID), ErrorCode::ValidationError, "toolrack.toml:");
    assert_eq!(fs::read_to_string(store.path()).unwrap(), broken);

    let (text, etag) = store.read_text().unwrap();
    assert_eq!(text, broken, "readable for an editor");
    check(store.replace_text(Some(etag), "x ="), ErrorCode::ValidationError, "toolrack.toml:1:");
    store.replace_text(Some(etag), VALID).unwrap();
    assert_eq!(servers(&store), ["a"], "an expected invalid file can be fixed");
}

#[test]
fn edit_that_would_invalidate_the_file_is_rejected() {
    let dir = temp_dir();
    let store = store(&dir);
    write(store.path(), VALID);
    let mut config = server("b");
    config.config = serde_json::json!({ "timeout": "soon" });
    check(
        store.edit(None, |document| document.add(&ConfigScope::Defaults, &config)),
        ErrorCode::ValidationError,
        "timeout",
    );
    let failed = store.edit(None, |document| {
        document.add(&ConfigScope::Defaults, &server("b"))?;
        Err::<(), _>(ServiceError::new(ErrorCode::Denied, "changed my mind"))
    });
    check(failed, ErrorCode::Denied, "changed my mind");
    assert_eq!(fs::read_to_string(store.path()).unwrap(), VALID);
    assert_eq!(names(dir.path()), ["toolrack.toml"]);
}

#[test]
fn unusable_file_is_rejected() {
    let dir = temp_dir();
    let store = store(&dir);
    write(store.path(), "#".repeat((4 << 20) + 1));
    check(store.read(), ErrorCode::ValidationError, "too large");
    fs::remove_file(store.path()).unwrap();
    fs::create_dir(store.path()).unwrap();
    check(store.read(), ErrorCode::ValidationError, "directory");
    check(store.edit(None, |_| Ok(())), ErrorCode::ValidationError, "directory");
    let file = dir.path().join("file");
    write(&file, "");
    let below = ConfigStore::new(file.join("toolrack.toml"));
    check(below.edit(None, |_| Ok(())), ErrorCode::ServiceUnavailable, "cannot save");
    check(ConfigStore::new("/").read(), ErrorCode::ValidationError, "is not a file path");
}

#[test]
fn load_reports_the_reason_as_data() {
    let dir = temp_dir();
    let store = store(&dir);
    let missing = store.load().unwrap_err();
    let LoadError::Unreadable(error) = missing else { panic!("{missing}") };
    assert_eq!(error.to_string(), "No such file or directory (os error 2)");
    write(store.path(), "[mcp_servers.a]\ncommand = 'x'\n");
    assert!(matches!(store.load(), Err(LoadError::Foreign(Dialect::Codex))));
    check(store.read(), ErrorCode::ValidationError, "another tool");
    write(store.path(), "[[defaults.mcp]]\nname = 'a'\ncommand = 'x'\nx = 1\ntimeout = 1\n");
    let Err(LoadError::Invalid(diagnostics)) = store.load() else { panic!() };
    let severities = [Severity::Warning, Severity::Error];
    assert!(diagnostics.iter().map(|diagnostic| diagnostic.severity).eq(severities));
    write(store.path(), b"a = '\xff'\n");
    let Err(LoadError::Invalid(diagnostics)) = store.load() else { panic!() };
    assert!(diagnostics[0].to_string().ends_with(":1:6: not valid UTF-8"), "{diagnostics:?}");
}

#[test]
fn lock_wait_times_out() {
    let dir = temp_dir();
    let store = store(&dir);
    add(&store, "a");
    let hasty = store.clone().lock_timeout(Duration::from_millis(20));
    let refused = store.edit(None, |_| {
        assert_eq!(servers(&hasty), ["a"], "reading needs no lock");
        Ok(hasty.edit(None, |_| Ok(())).unwrap_err())
    });
    let (error, _) = refused.unwrap();
    check(Err::<(), _>(error.clone()), ErrorCode::ServiceUnavailable, "another program");
    assert!(error.hint().is_some());
    hasty.edit(None, |_| Ok(())).unwrap();
}

#[test]
fn leftovers_of_a_killed_save_are_removed() {
    let dir = temp_dir();
    let store = store(&dir);
    write(&dir.path().join(".toolrack.toml.tmp"), "half a fi");
    add(&store, "a");
    assert_eq!(names(dir.path()), ["toolrack.toml"]);
    symlink("/nowhere", dir.path().join(".toolrack.toml.tmp")).unwrap();
    add(&store, "b");
    assert_eq!(servers(&store), ["a", "b"]);
    assert_eq!(names(dir.path()), ["toolrack.toml"]);
}

#[test]
fn debug_output_shows_no_values() {
    let dir = temp_dir();
    let store = store(&dir);
    let text = "[[defaults.mcp]]\nname = 'a'\nurl = 'https://a.dev?canary'\nheaders = { A = 'canary' }\nx = 'canary'\n\
        [[defaults.mcp]]\nname = 'b'\ncommand = 'x'\nargs = ['canary']\nenv = { A = 'canary' }\n";
    write(store.path(), text);
    let stored = store.read().unwrap();
    let document = stored.document().unwrap();
    let shown = format!("{store:?} {stored:?} {document:?}");
    assert!(!shown.contains("canary"), "{shown}");
    // Diagnostics do not show values either.
    write(store.path(), "[[defaults.mcp]]\nname = 'a'\nurl = 'https://u:canary@a.dev'\n");
    let refused = format!("{:?}", store.read().unwrap_err());
    assert!(refused.contains("credentials") && !refused.contains("canary"), "{refused}");
}
