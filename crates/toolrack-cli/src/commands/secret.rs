//! `toolrack secret`: tokens and passwords that do not stand in the config file.
//!
//! **Invariant:** a value comes from a person or from the standard input, never from the command line, where other
//! users of the machine and the history of the shell would see it.

use serde_json::json;
use toolrack_service::{LocalService, McpConfig, McpService as _};

use crate::args::config::{SecretAction, SecretSetOptions};
use crate::config_service::with_service;
use crate::context::Surroundings;
use crate::error::Failure;
use crate::output::List;
use crate::secret_input;
use crate::suggest::{meant, near};

/// Stores, lists or forgets secrets.
pub(crate) async fn secret(
    action: SecretAction,
    surroundings: &Surroundings,
) -> Result<(), Failure> {
    match action {
        SecretAction::Set(options) => set(options, surroundings).await,
        SecretAction::List => list(surroundings).await,
        SecretAction::Remove(options) => remove(&options.name, surroundings).await,
    }
}

async fn set(options: SecretSetOptions, surroundings: &Surroundings) -> Result<(), Failure> {
    let name = &options.name;
    if options.value.is_some() || name.contains('=') {
        return Err(Failure::usage(
            "a secret is not given on the command line, where other users and the history of the shell see it",
            "give its name only, and type the value when it is asked for, or pipe it in; change the one that was \
             typed now",
        ));
    }
    with_service(surroundings, None, async |service: &LocalService| {
        // A name that is none is refused before somebody types the value.
        let present = service.secrets().get(name);
        let is_new = present
            .map_err(|error| Failure::of(error, "choose a name such as `github-token`"))?
            .is_none();
        let value = secret_input::read(name, surroundings).await?;
        service.set_secret(name, value).await?;
        let users = users(&service.list(), name);
        let text = match (is_new, users.as_slice()) {
            (true, []) => format!(
                "`{name}` is stored; a server gets it with `--env-secret VARIABLE={name}` or \
                 `${{secret:{name}}}`"
            ),
            (true, users) => format!("`{name}` is stored; it is used by {}", users.join(", ")),
            (false, _) => format!("`{name}` has a new value"),
        };
        surroundings.printer.done(text, &json!({ "name": name, "used_by": users }));
        Ok(())
    })
    .await
}

async fn list(surroundings: &Surroundings) -> Result<(), Failure> {
    with_service(surroundings, None, async |service: &LocalService| {
        let names = service.secrets().list()?;
        let configs = service.list();
        if names.is_empty() {
            surroundings
                .printer
                .note("note: there are no secrets; `toolrack secret set NAME` stores one");
        }
        let used: Vec<(String, Vec<String>)> =
            names.into_iter().map(|name| (name.clone(), users(&configs, &name))).collect();
        surroundings.printer.list(&List {
            columns: &["NAME", "USED BY"],
            rows: used.iter().map(|(name, users)| vec![name.clone(), users.join(", ")]).collect(),
            items: used
                .iter()
                .map(|(name, users)| json!({ "name": name, "used_by": users }).to_string())
                .collect(),
        });
        Ok(())
    })
    .await
}

async fn remove(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    with_service(surroundings, None, async |service: &LocalService| {
        let names = service.secrets().list()?;
        if !names.iter().any(|it| it == name) {
            let meant = meant(&near(name, names.iter().map(String::as_str)));
            let hint = "run `toolrack secret list` to see which there are";
            return Err(Failure::unknown(format!("there is no secret of this name{meant}"), hint));
        }
        let users = users(&service.list(), name);
        service.remove_secret(name).await?;
        let besides = match users.as_slice() {
            [] => String::new(),
            users => format!("; still wanted by {}", users.join(", ")),
        };
        let text = format!("`{name}` is forgotten{besides}");
        surroundings.printer.done(text, &json!({ "name": name, "used_by": users }));
        Ok(())
    })
    .await
}

/// The servers that use a secret.
fn users(configs: &[McpConfig], secret: &str) -> Vec<String> {
    let reference = format!("${{secret:{secret}}}");
    let refers = |config: &&McpConfig| {
        let variables = || config.env_vars.values();
        variables().any(|it| it.secret_ref.as_deref() == Some(secret))
            || variables().any(|it| it.value.as_deref().is_some_and(|it| it.contains(&reference)))
            || config.config.to_string().contains(&reference)
            || config.package.identifier.contains(&reference)
    };
    configs.iter().filter(refers).map(|it| it.name.clone()).collect()
}
