//! An implementation of `McpService` with the methods that founding document 004 names, and no others.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::Value;
use toolrack_mcp::Tool;
use toolrack_service::{Enabled, ErrorCode, McpConfig, McpService, McpStatus, ServiceError};
use toolrack_transport::BoxFuture;
use uuid::Uuid;

use crate::fixture::Fixture;

/// Servers in memory. One with the name `broken` does not start.
#[derive(Default)]
struct InMemoryService(Mutex<BTreeMap<Uuid, (McpConfig, McpStatus)>>);

impl InMemoryService {
    fn set(&self, id: Uuid, status: McpStatus) {
        if let Some(server) = self.0.lock().get_mut(&id) {
            server.1 = status;
        }
    }
}

impl McpService for InMemoryService {
    fn list(&self) -> Vec<McpConfig> {
        self.0.lock().values().map(|(config, _)| config.clone()).collect()
    }

    fn get(&self, id: Uuid) -> Option<McpConfig> {
        self.0.lock().get(&id).map(|(config, _)| config.clone())
    }

    fn status(&self, id: Uuid) -> McpStatus {
        self.0.lock().get(&id).map_or(McpStatus::Stopped, |(_, status)| status.clone())
    }

    fn start(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            if self.get(id).is_some_and(|config| config.name == "broken") {
                return Err(ServiceError::new(ErrorCode::Internal, "broken"));
            }
            self.set(id, McpStatus::Running { tools: Vec::new() });
            Ok(())
        })
    }

    fn stop(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            self.set(id, McpStatus::Stopped);
            Ok(())
        })
    }

    fn available_tools(&self) -> Vec<Tool> {
        Vec::new()
    }

    fn find_tool_provider(&self, _tool_name: &str) -> Option<Uuid> {
        None
    }

    fn call_tool<'a>(
        &'a self,
        _mcp_id: Uuid,
        _tool_name: &'a str,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<String, ServiceError>> {
        Box::pin(async move { Ok(arguments.to_string()) })
    }

    fn create(&self, config: McpConfig) -> Result<Uuid, ServiceError> {
        let id = Uuid::new_v4();
        self.0.lock().insert(id, (McpConfig { id, ..config }, McpStatus::Stopped));
        Ok(id)
    }

    fn update(&self, config: McpConfig) -> Result<(), ServiceError> {
        if let Some(server) = self.0.lock().get_mut(&config.id) {
            server.0 = config;
        }
        Ok(())
    }

    fn delete(&self, id: Uuid) -> Result<(), ServiceError> {
        self.0.lock().remove(&id);
        Ok(())
    }

    fn shutdown_all(&self) -> BoxFuture<'_, Result<(), ServiceError>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn twelve_methods_are_enough() {
    let service: Box<dyn McpService> = Box::new(InMemoryService::default());
    let disabled = |name: &str| McpConfig { enabled: false, ..Fixture::new().scripted(name, &[]) };
    let (sound, broken) =
        (service.create(disabled("sound")).unwrap(), service.create(disabled("broken")).unwrap());
    let is_enabled = |id| service.get(id).unwrap().enabled;

    service.set_enabled(sound, Enabled::Yes).await.unwrap();
    assert!(is_enabled(sound) && matches!(service.status(sound), McpStatus::Running { .. }));
    service.restart(sound).await.unwrap();
    assert!(matches!(service.status(sound), McpStatus::Running { .. }));
    service.set_enabled(sound, Enabled::No).await.unwrap();
    assert!(!is_enabled(sound) && service.status(sound) == McpStatus::Stopped);

    service.set_enabled(broken, Enabled::Yes).await.unwrap_err();
    assert!(!is_enabled(broken));
    service.set_enabled(Uuid::nil(), Enabled::Yes).await.unwrap_err();
}
