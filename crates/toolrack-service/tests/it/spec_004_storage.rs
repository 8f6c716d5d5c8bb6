//! What founding document 004 says about storage, through `McpService`: free-form config, file names on disk, and an
//! application that brings its own secrets manager.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};
use toolrack_auth::SystemBrowser;
use toolrack_service::{
    EnvVarConfig, LocalService, McpConfig, McpService as _, Secret, SecretStore, ServiceError,
    ServiceOptions,
};
use toolrack_testkit::oauth::{OAuthPlan, OAuthServer, follow_redirects};
use url::Url;
use uuid::Uuid;

use crate::fixture::{Fixture, describe, http, options, pid, plain, process_env, secret};
use crate::store_fixture::names;

/// A server with a value that is marked secret.
fn with_key(fixture: &Fixture) -> McpConfig {
    let mut config = fixture.scripted("one", &[]);
    let key = EnvVarConfig { is_secret: true, ..plain("API_KEY", "typed-secret-value") };
    config.env_vars.insert("API_KEY".to_owned(), key);
    config
}

#[tokio::test]
async fn free_form_config_is_given_back() {
    let fixture = Fixture::new();
    let service = fixture.open().await;
    let values = [
        Value::Null,
        json!({}),
        json!({ "theme": "dark", "nested": { "list": [1, 2.5, null, "x"] }, "url": "mine" }),
        json!({ "timeout": "7s", "big": u64::MAX, "package": { "note": true } }),
        json!(["no", "object"]),
        json!("text"),
    ];
    for (n, value) in values.iter().enumerate() {
        let config = McpConfig { config: value.clone(), ..fixture.scripted(&format!("s{n}"), &[]) };
        let id = service.create(config.clone()).unwrap();
        let config = McpConfig { id, ..config };
        assert_eq!(service.get(id), Some(config.clone()), "{value}");
        let changed = McpConfig { enabled: false, ..config };
        service.update(changed.clone()).unwrap();
        assert_eq!(service.get(id), Some(changed), "{value}");
    }
    // Another process reads the same, and a free-form member does not act.
    let again = fixture.open().await;
    let configs: Vec<Value> = again.list().into_iter().map(|config| config.config).collect();
    assert_eq!(configs, values);
    let id = again.id_for_name("s3").unwrap();
    assert_eq!(again.manager().server("s3").unwrap().config().timeout.as_secs(), 7);
    assert!(again.get(id).is_some());
    let wrong = McpConfig { config: json!({ "timeout": 7 }), ..again.get(id).unwrap() };
    let error = describe(&again.update(wrong).unwrap_err());
    assert!(error.starts_with("VALIDATION_ERROR must be a duration"), "{error}");
    fixture.end(&again).await;
    fixture.end(&service).await;
}

#[tokio::test]
async fn credentials_have_the_file_names_of_the_document() {
    let fixture = Fixture::new();
    let opener = |url: &Url| {
        let url = url.to_string();
        thread::spawn(move || follow_redirects(&url));
        Ok(())
    };
    let browser = Arc::new(SystemBrowser::new(Arc::new(opener)));
    let options = ServiceOptions { browser: Some(browser), ..options() };
    let service = LocalService::open(fixture.home(), options).await.unwrap();
    let one = service.create(with_key(&fixture)).unwrap();
    let secrets = fixture.path().join("secrets");
    assert_eq!(names(&secrets), [format!("mcp_{one}.key")]);

    let remote = OAuthServer::start(OAuthPlan::default()).unwrap();
    let two = service.create(http("two", &remote.url())).unwrap();
    service.authorizer(two).unwrap().login().await.unwrap();
    let mut expected = [format!("mcp_{one}.key"), format!("mcp_{two}.oauth")];
    expected.sort();
    assert_eq!(names(&secrets), expected);
    let token = fs::read_to_string(secrets.join(format!("mcp_{two}.oauth"))).unwrap();
    assert!(token.contains("access_token") && !fixture.path().join("tokens").exists(), "{token}");

    // With the server, everything that belongs to it goes.
    service.delete(one).unwrap();
    service.delete(two).unwrap();
    assert_eq!(names(&secrets), [""; 0]);
    fixture.end(&service).await;
}

/// The secrets manager of an application, in memory.
#[derive(Debug, Default)]
struct HostSecrets(Mutex<BTreeMap<String, Secret>>);

impl SecretStore for HostSecrets {
    fn get(&self, name: &str) -> Result<Option<Secret>, ServiceError> {
        Ok(self.0.lock().get(name).cloned())
    }

    fn set(&self, name: &str, secret: &Secret) -> Result<(), ServiceError> {
        self.0.lock().insert(name.to_owned(), secret.clone());
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<bool, ServiceError> {
        Ok(self.0.lock().remove(name).is_some())
    }

    fn list(&self) -> Result<Vec<String>, ServiceError> {
        Ok(self.0.lock().keys().cloned().collect())
    }
}

/// Every file below a directory that contains the text.
fn files_with(dir: &Path, text: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_with(&path, text, found);
        } else if fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
        {
            found.push(path.display().to_string());
        }
    }
}

#[tokio::test]
async fn application_brings_its_own_secrets_manager() {
    let fixture = Fixture::new();
    let host = Arc::new(HostSecrets::default());
    host.set("vault/api key", &Secret::from("host-secret-value")).unwrap();
    let options =
        ServiceOptions { secrets: Some(Arc::clone(&host) as Arc<dyn SecretStore>), ..options() };
    let service = LocalService::open(fixture.home(), options).await.unwrap();
    let mut config = with_key(&fixture);
    config.env_vars.insert("TOKEN".to_owned(), secret("TOKEN", "vault/api key"));
    let id = service.create(config).unwrap();
    assert_eq!(host.list().unwrap(), [format!("{id}.API_KEY"), "vault/api key".to_owned()]);
    service.start(id).await.unwrap();
    let process = pid(&fixture.marker);
    assert_eq!(process_env(process, "TOKEN").as_deref(), Some("host-secret-value"));
    assert_eq!(process_env(process, "API_KEY").as_deref(), Some("typed-secret-value"));
    assert!(!fixture.path().join("secrets").exists());
    let mut found = Vec::new();
    files_with(fixture.path(), "secret-value", &mut found);
    assert_eq!(found, [""; 0], "nothing is written to disk");

    // A secret that the application does not have blocks the save, as in the files.
    let mut missing = fixture.scripted("two", &[]);
    missing.env_vars.insert("TOKEN".to_owned(), secret("TOKEN", "elsewhere"));
    let error = service.create(McpConfig { id: Uuid::nil(), ..missing }).unwrap_err();
    let expected = "VALIDATION_ERROR Missing required credentials (env_vars.TOKEN.secret_ref)";
    assert_eq!(describe(&error), expected);
    service.delete(id).unwrap();
    assert_eq!(host.list().unwrap(), ["vault/api key"]);
    fixture.end(&service).await;
}
