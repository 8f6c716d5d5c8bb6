//! `toolrack remove`: a server that is not wanted any more, with what belonged to it alone.

use std::time::Duration;

use tokio::time::timeout;
use toolrack_auth::Status;
use toolrack_service::{LocalService, McpConfig, McpService as _};

use crate::config_service::{
    Change, changed, file_of, find, must_be_own, must_exist, with_service,
};
use crate::context::Surroundings;
use crate::error::Failure;

/// How long the server may take to hear that nobody is logged in any more. It is forgotten here either way.
const FAREWELL: Duration = Duration::from_secs(5);

/// Removes a server from the config.
pub(crate) async fn remove(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    must_exist(name, surroundings)?;
    with_service(surroundings, None, async |service: &LocalService| {
        let config = find(service, name)?;
        must_be_own(service, &config, Change::Remove)?;
        let had_login = forget_login(service, &config).await;
        service.delete(config.id)?;
        let file = file_of(service);
        let besides = if had_login { ", and its login is forgotten" } else { "" };
        let text = format!("`{name}` is removed from {file}{besides}");
        surroundings.printer.done(text, &changed(service, &config));
        Ok(())
    })
    .await
}

/// Forgets the login at a server, and says whether there was one.
async fn forget_login(service: &LocalService, config: &McpConfig) -> bool {
    let Ok(authorizer) = service.authorizer(config.id) else { return false };
    match authorizer.status().await {
        Ok(Status::LoggedIn { .. }) => timeout(FAREWELL, authorizer.logout()).await.is_ok(),
        _ => false,
    }
}
