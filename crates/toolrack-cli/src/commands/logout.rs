//! `toolrack logout`: a login that is forgotten, here and at the server.

use serde_json::json;
use toolrack_auth::Status;
use toolrack_manager::with_causes;
use toolrack_service::{ErrorCode, LocalService};

use crate::config_service::{find, must_exist, with_service};
use crate::context::Surroundings;
use crate::error::Failure;
use crate::exit_code::Verdict;

/// Forgets the login at a server.
pub(crate) async fn logout(name: &str, surroundings: &Surroundings) -> Result<(), Failure> {
    must_exist(name, surroundings)?;
    with_service(surroundings, None, async |service: &LocalService| {
        let authorizer = service.authorizer(find(service, name)?.id)?;
        let refused = |error: toolrack_transport::AuthError| {
            let message =
                format!("the login at `{name}` is not forgotten: {}", with_causes(&error));
            let hint = "look at the rights of the data directory, and try again";
            Failure::new(Verdict::Auth, ErrorCode::Unauthorized, message, hint)
        };
        let was = authorizer.status().await.map_err(refused)?;
        let leaving = async { authorizer.logout().await.map_err(refused) };
        surroundings.unless_stopped(leaving).await?;
        let said = json!({ "name": name, "logged_in": false });
        let text = match was {
            Status::LoggedOut => format!("nobody was logged in at `{name}`"),
            _ => format!("the login at `{name}` is forgotten"),
        };
        surroundings.printer.done(text, &said);
        Ok(())
    })
    .await
}
