//! Every type in a public signature is exported by the facade.

use std::sync::Arc;

use toolrack::{
    AtHand, AuthError, Authorization, BoxFuture, Credentials, HttpOptions, HttpServerDef, Rebuff,
    Toolrack,
};

/// Fails to compile if a type is missing.
mod exported {
    #[expect(unused_imports, reason = "importing them is the test")]
    use toolrack::{
        Borrowed, CallError, ConnectPhase, ConnectStep, Connector, DecodeError, DetectedVersion,
        Diagnosis, Ending, EraChoice, Event, Events, FailureKind, Farewell, FaultKind,
        GetPromptResult, Inheritance, JsonRpcError, Ladder, Limits, LineError, List, LogLevel,
        Mask, OnConnectStep, Origin, Package, PackageKind, Pin, Position, Prompt, RackBuilder,
        ReadResourceResult, Resource, ResourceContents, ResourceTemplate, Sandbox,
        ServerCapabilities, StdioConnector, Timeouts, ToolAnnotations, TransportError, Url,
    };
}

/// Custom credentials.
#[derive(Debug)]
struct CustomCredentials;

impl Credentials for CustomCredentials {
    fn at_hand(&self) -> AtHand {
        AtHand::Ready(Authorization::bearer("t0ken"))
    }

    fn obtain(&self) -> BoxFuture<'_, Result<Option<Authorization>, AuthError>> {
        Box::pin(async { Ok(None) })
    }

    fn rebuffed<'a>(&'a self, rebuff: Rebuff<'a>) -> BoxFuture<'a, Result<(), AuthError>> {
        let reason = format!("status {}", rebuff.status);
        Box::pin(async { Err(AuthError::LoginNeeded { reason }) })
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
