//! One launch of a server, from its start until nothing is left of it. Each runs in a task of its own.
//!
//! **Invariant:** the last word of a launch is [`News::Gone`], and nothing of it runs after that.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use toolrack_client::{
    ClientBuilder, ConnectError, Event as ClientEvent, Events, McpClient, Timeouts, Verdict,
};
use toolrack_config::McpServerConfig;

use crate::connection::Link;
use crate::event::Bulletin;
use crate::failure::Failure;
use crate::life::event::Epoch;
use crate::opening::{Custody, connector};
use crate::rack::Equipment;
use crate::usage::{Clock, Usage};

/// How long one start may keep others waiting. A server that hangs holds up nobody for longer.
const TURN: Duration = Duration::from_millis(500);

/// What a launch needs to know.
pub(crate) struct Launch {
    pub(crate) server: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) config: Arc<McpServerConfig>,
    pub(crate) remembered: Option<Verdict>,
    pub(crate) equipment: Arc<Equipment>,
    pub(crate) bulletin: Arc<Bulletin>,
    /// So many servers start at once.
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) stop: CancellationToken,
    /// The actor always reads, so a full channel is emptied soon.
    pub(crate) reports: mpsc::Sender<Report>,
}

/// What the actor is told about a launch.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) server: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) news: News,
}

#[derive(Debug)]
pub(crate) enum News {
    Opened(Arc<Link>),
    OpenFailed(Failure),
    ToolsChanged,
    Lost(Failure),
    Gone,
}

impl Launch {
    pub(crate) async fn run(self) {
        let prepared = tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Failure::new("it was stopped")),
            prepared = timeout(self.config.startup_timeout, connector(&self.config, &self.equipment)) => {
                let late = || Failure::new("the values of the config could not be looked up in time");
                prepared.unwrap_or_else(|_elapsed| Err(late()))
            }
        };
        match prepared {
            Err(failure) => self.report(News::OpenFailed(failure)).await,
            Ok(inner) => {
                let custody = Arc::new(Custody::new(inner, &self.server, &self.bulletin));
                self.hold(&custody).await;
                custody.release().await;
            }
        }
        self.report(News::Gone).await;
    }

    /// Connects, and stays until the connection ends or is to be ended.
    async fn hold(&self, custody: &Arc<Custody>) {
        let outcome = tokio::select! {
            biased;
            () = self.stop.cancelled() => return,
            outcome = self.connect(custody) => outcome,
        };
        let client = match outcome {
            Ok(client) => client,
            Err(error) => {
                return self.report(News::OpenFailed(Failure::of_connecting(&error))).await;
            }
        };
        // Listening begins before anybody knows of the connection, so that no change is missed.
        let events = client.subscribe();
        let clock = if self.config.idle.is_some() { Clock::Needed } else { Clock::Unneeded };
        let link = Arc::new(Link { client, usage: Usage::new(clock), epoch: self.epoch });
        self.report(News::Opened(Arc::clone(&link))).await;
        self.attend(events).await;
        let ending = link.client.close().await;
        tracing::debug!(server = &*self.server, %ending, "connection ended");
    }

    async fn connect(&self, custody: &Arc<Custody>) -> Result<McpClient, ConnectError> {
        let turn = self.turns.acquire().await;
        let connector = Arc::clone(custody) as Arc<dyn toolrack_client::Connector>;
        let mut connecting = pin!(self.builder().connect_with(connector));
        tokio::select! {
            outcome = &mut connecting => return outcome,
            () = sleep(TURN) => drop(turn),
        }
        connecting.await
    }

    fn builder(&self) -> ClientBuilder {
        let timeouts = Timeouts {
            call: self.config.timeout,
            at_most: self.config.max_timeout,
            startup: self.config.startup_timeout,
            ..Timeouts::default()
        };
        let builder =
            McpClient::builder(&self.server).timeouts(timeouts).remembered(self.remembered);
        let builder = match &self.equipment.client {
            Some(client) => builder.client(client.clone()),
            None => builder,
        };
        match &self.equipment.handler {
            Some(handler) => builder.handler(Arc::clone(handler)),
            None => builder,
        }
    }

    /// Passes on what happens on the connection, until it ends or is to be ended.
    async fn attend(&self, mut events: Events) {
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                // Whoever was too slow to hear of a change has to look.
                Some(ClientEvent::ToolsChanged | ClientEvent::Missed(_)) => {
                    self.report(News::ToolsChanged).await;
                }
                Some(ClientEvent::Ended(ending)) => {
                    return self.report(News::Lost(Failure::of_ending(&ending))).await;
                }
                Some(_) => {}
                None => return,
            }
        }
    }

    async fn report(&self, news: News) {
        let report = Report { server: Arc::clone(&self.server), epoch: self.epoch, news };
        if self.reports.send(report).await.is_err() {
            tracing::debug!(server = &*self.server, "the manager is gone; nobody hears of this");
        }
    }
}
