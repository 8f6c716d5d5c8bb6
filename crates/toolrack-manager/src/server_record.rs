//! One server as the actor keeps it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolrack_config::{McpServerConfig, fingerprint};
use toolrack_transport::after;

use crate::connection_state::{ConnectPhase, ConnectionState};
use crate::events::{Bulletin, RackEvent};
use crate::lifecycle::Life;
use crate::lifecycle::event::{Allowed, Event, Policy, Tools};
use crate::retry_policy::Standing;
use crate::server_snapshot::{Link, McpConnection};
use crate::server_tools::Toolset;
use crate::tool_cache::Memory;
use crate::tool_filter::Filter;

/// How often a server that is in use is looked at, at most, to see whether it still is.
const GLANCE: Duration = Duration::from_millis(100);

/// One server: its config, its life, and what is known of its tools.
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<McpServerConfig>,
    pub(crate) life: Life,
    pub(crate) filter: Filter,
    pub(crate) memory: Memory,
    pub(crate) toolset: Arc<Toolset>,
    pub(crate) link: Option<Arc<Link>>,
    /// Ends the present launch.
    pub(crate) stop: CancellationToken,
    /// Told when nothing is left of the present launch.
    pub(crate) farewells: Vec<oneshot::Sender<()>>,
    /// It is to be forgotten as soon as nothing is left of it.
    pub(crate) is_removed: bool,
    /// What was published last, if nothing has changed since.
    pub(crate) shown: Option<Arc<McpConnection>>,
    /// The state that was told last.
    pub(crate) told: ConnectionState,
    /// How far the present launch has come.
    pub(crate) phase: ConnectPhase,
    /// The phase that was told last, if it still holds.
    pub(crate) told_phase: Option<ConnectPhase>,
}

impl Entry {
    pub(crate) fn new(config: Arc<McpServerConfig>, memory: Memory) -> Self {
        let filter = Filter::new(&config.allow, &config.deny);
        Self {
            name: config.name.as_str().into(),
            life: Life::new(policy(&config)),
            toolset: Arc::new(Toolset::new(memory.listing.clone(), &filter)),
            filter,
            memory,
            config,
            link: None,
            stop: CancellationToken::new(),
            farewells: Vec::new(),
            is_removed: false,
            shown: None,
            told: ConnectionState::Disconnected,
            phase: ConnectPhase::default(),
            told_phase: None,
        }
    }

    /// Takes a new config over, and says what that means for the server's life.
    pub(crate) fn configure(&mut self, config: Arc<McpServerConfig>, memory: Memory) -> Event {
        let is_same_server = fingerprint(&self.config) == fingerprint(&config);
        self.filter = self.filter.heir(&config.allow, &config.deny);
        let policy = policy(&config);
        self.config = config;
        self.is_removed = false;
        if is_same_server {
            self.refilter();
            return Event::Adjust(policy);
        }
        self.memory = memory;
        self.refilter();
        Event::Replace(policy)
    }

    /// Judges the tools anew, after the rules or the list have changed.
    pub(crate) fn refilter(&mut self) {
        self.toolset = Arc::new(Toolset::new(self.memory.listing.clone(), &self.filter));
        self.shown = None;
    }

    /// Takes over what the connection says of its tools.
    pub(crate) fn learn(&mut self) {
        let Some(link) = &self.link else { return };
        let (listing, verdict) = (Some(link.client.tools()), Some(link.client.verdict()));
        self.memory = Memory { listing, verdict };
        self.refilter();
    }

    /// Tells which rules match nothing, because they are most likely misspelled.
    pub(crate) fn warn_of_unused(&self, bulletin: &Bulletin) {
        for pattern in self.toolset.unused_patterns() {
            let message = format!("the pattern `{pattern}` matches no tool of `{}`", self.name);
            tracing::warn!(server = &*self.name, "{message}");
            let server = Some(Arc::clone(&self.name));
            bulletin.tell(|| RackEvent::Warning { server, message });
        }
    }

    pub(crate) fn tools(&self) -> Tools {
        if self.memory.listing.is_some() { Tools::Known } else { Tools::Unknown }
    }

    /// When the connection has to be looked at, because it may have been unused for long enough.
    pub(crate) fn idle_at(&self, now: Instant) -> Option<Instant> {
        let (link, idle) = (self.link.as_ref()?, self.config.idle?);
        Some(match link.usage.unused_since() {
            Some(since) => after(since, idle),
            None => after(now, idle.max(GLANCE)),
        })
    }

    /// When something has to happen although nothing does.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let moments = [self.life.wake_at(), self.life.heals_at(), self.idle_at(now)];
        moments.into_iter().flatten().min()
    }

    /// The picture of the server as it stands.
    pub(crate) fn picture(&mut self, now: Instant) -> Arc<McpConnection> {
        if let Some(shown) = &self.shown {
            return Arc::clone(shown);
        }
        let state = ConnectionState::of(&self.life);
        let picture = Arc::new(McpConnection {
            name: Arc::clone(&self.name),
            config: Arc::clone(&self.config),
            phase: (state == ConnectionState::Connecting).then_some(self.phase),
            state,
            standing: Standing::of(&self.life),
            retry_at: self.life.wake_at(),
            is_crash_looping: self.life.is_crash_looping(now),
            launch: self.life.launch(),
            link: self.link.clone(),
            toolset: Arc::clone(&self.toolset),
            filter: Arc::new(self.filter.clone()),
        });
        self.shown = Some(Arc::clone(&picture));
        picture
    }
}

fn policy(config: &McpServerConfig) -> Policy {
    let allowed = if config.enabled { Allowed::Yes } else { Allowed::No };
    Policy { allowed, start: config.start }
}
