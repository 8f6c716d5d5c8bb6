//! Every type in a public signature is exported by the facade.

use std::sync::Arc;

use toolrack::Toolrack;
use toolrack::http::{HttpOptions, HttpServerDef};
use toolrack::transport::{
    AuthChallenge, AuthError, Authorization, BoxFuture, CachedCredential, Credentials,
};

/// Fails to compile if a type is missing.
mod exported {
    #[expect(unused_imports, reason = "importing them is the test")]
    use toolrack::{
        client::{
            CallError, CallOptions, ConnectStep, Connector, EraChoice, Event, Events, Limits, List,
            OnConnectStep, StdioConnector, Timeouts,
        },
        config::{DiagnosticKind, Package, PackageKind, Pin, Position, Sandbox, SourceLocation},
        manager::{ClientGuard, ConnectPhase, ManagerBuilder},
        mcp::{
            Content, DecodeError, GetPromptResult, LogLevel, Prompt, ReadResourceResult, Resource,
            ResourceContents, ResourceTemplate, ServerCapabilities, ToolAnnotations,
        },
        stdio::{CleanupCommand, EnvInheritance, ShutdownTimeouts},
        transport::{
            CloseReason, JsonRpcError, Redactor, RequestError, TransportError, TransportStats,
        },
    };
}

/// Custom credentials.
#[derive(Debug)]
struct CustomCredentials;

impl Credentials for CustomCredentials {
    fn cached(&self) -> CachedCredential {
        CachedCredential::Ready(Authorization::bearer("t0ken"))
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        Box::pin(async { Ok(None) })
    }

    fn on_challenge<'a>(
        &'a self,
        rebuff: AuthChallenge<'a>,
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        let reason = format!("status {}", rebuff.status);
        Box::pin(async { Err(AuthError::LoginRequired { reason }) })
    }
}

#[test]
fn credentials_can_be_implemented_with_the_facade_alone() {
    let options =
        HttpOptions { credentials: Some(Arc::new(CustomCredentials)), ..HttpOptions::default() };
    let builder = Toolrack::builder().http(options);
    let debug = format!("{builder:?} {:?}", HttpServerDef::new("https://example.com/mcp"));
    assert!(!debug.contains("t0ken"), "{debug}");
}
