//! Table of all protocol methods: name, kind, sender and revisions.

use std::fmt;

use crate::revision::Revision;
use crate::revision::Revision::{R2024_11_05, R2025_03_26, R2025_06_18, R2025_11_25, R2026_07_28};

/// Request or notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodKind {
    /// Has an id and gets a response.
    Request,
    /// Has no id and gets no response.
    Notification,
}

/// Sender of a method. In the modern era, requests of a server are part of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The client.
    Client,
    /// The server.
    Server,
    /// Either side, in at least one revision.
    Either,
}

const ALL: &[Revision] = Revision::ALL;
const LEGACY: &[Revision] = &[R2024_11_05, R2025_03_26, R2025_06_18, R2025_11_25];
const MODERN: &[Revision] = &[R2026_07_28];
const FROM_THIRD: &[Revision] = &[R2025_06_18, R2025_11_25, R2026_07_28];
const FOURTH: &[Revision] = &[R2025_11_25];
// Part of no revision: only servers that declare the tasks extension have these methods.
const EXTENSION: &[Revision] = &[];

macro_rules! methods {
    ($($name:ident $wire:literal $kind:ident $sender:ident $revisions:ident;)*) => {
        /// A method of the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Method {
            $(#[doc = concat!("`", $wire, "`")] $name,)*
        }

        impl Method {
            /// Every known method.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $wire,)* }
            }

            /// Parses the name on the wire.
            pub fn parse(name: &str) -> Option<Self> {
                match name { $($wire => Some(Self::$name),)* _ => None }
            }

            /// Request or notification.
            pub const fn kind(self) -> MethodKind {
                match self { $(Self::$name => MethodKind::$kind,)* }
            }

            /// Who may send it.
            pub const fn sender(self) -> Sender {
                match self { $(Self::$name => Sender::$sender,)* }
            }

            /// Revisions that define it. Empty means that only an extension does.
            pub const fn revisions(self) -> &'static [Revision] {
                match self { $(Self::$name => $revisions,)* }
            }
        }
    };
}

methods! {
    Initialize "initialize" Request Client LEGACY;
    Discover "server/discover" Request Client MODERN;
    Ping "ping" Request Either LEGACY;
    ListTools "tools/list" Request Client ALL;
    CallTool "tools/call" Request Client ALL;
    ListResources "resources/list" Request Client ALL;
    ListResourceTemplates "resources/templates/list" Request Client ALL;
    ReadResource "resources/read" Request Client ALL;
    Subscribe "resources/subscribe" Request Client LEGACY;
    Unsubscribe "resources/unsubscribe" Request Client LEGACY;
    ListPrompts "prompts/list" Request Client ALL;
    GetPrompt "prompts/get" Request Client ALL;
    Complete "completion/complete" Request Client ALL;
    SetLevel "logging/setLevel" Request Client LEGACY;
    Listen "subscriptions/listen" Request Client MODERN;
    GetTask "tasks/get" Request Either FOURTH;
    GetTaskPayload "tasks/result" Request Either FOURTH;
    ListTasks "tasks/list" Request Either FOURTH;
    CancelTask "tasks/cancel" Request Either FOURTH;
    UpdateTask "tasks/update" Request Client EXTENSION;
    ListRoots "roots/list" Request Server ALL;
    CreateMessage "sampling/createMessage" Request Server ALL;
    Elicit "elicitation/create" Request Server FROM_THIRD;
    Initialized "notifications/initialized" Notification Client LEGACY;
    Cancelled "notifications/cancelled" Notification Either ALL;
    Progress "notifications/progress" Notification Either ALL;
    LogMessage "notifications/message" Notification Server ALL;
    ToolListChanged "notifications/tools/list_changed" Notification Server ALL;
    PromptListChanged "notifications/prompts/list_changed" Notification Server ALL;
    ResourceListChanged "notifications/resources/list_changed" Notification Server ALL;
    ResourceUpdated "notifications/resources/updated" Notification Server ALL;
    RootsListChanged "notifications/roots/list_changed" Notification Client LEGACY;
    ElicitationComplete "notifications/elicitation/complete" Notification Server FOURTH;
    TaskStatus "notifications/tasks/status" Notification Either FOURTH;
    SubscriptionAcknowledged "notifications/subscriptions/acknowledged" Notification Server MODERN;
    TaskUpdated "notifications/tasks" Notification Server EXTENSION;
}

impl Method {
    /// Whether `revision` defines it.
    pub fn is_in(self, revision: Revision) -> bool {
        self.revisions().contains(&revision)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_names_round_trip() {
        for &method in Method::ALL {
            assert_eq!(Method::parse(method.as_str()), Some(method));
        }
        assert_eq!(Method::parse("tools/List"), None);
    }

    #[test]
    fn notification_methods_start_with_notifications() {
        for &method in Method::ALL {
            let named = method.as_str().starts_with("notifications/");
            assert_eq!(named, method.kind() == MethodKind::Notification, "{method}");
        }
    }
}
