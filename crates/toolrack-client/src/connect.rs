//! Connecting as a whole: the handshake, the first list of tools, and cleaning up after a failure.
//!
//! **Invariant:** by the time a failure is given, the line has ended and nothing is left running.
//!
//! How far an attempt to connect has come, for whoever shows it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolrack_mcp::{Era, Method, Revision, SubscriptionFilter, Tool};
use toolrack_transport::{Diagnosis, Ending, Exit, ServerExit, TransportError};

use crate::builder::{Changes, Plan};
use crate::client::McpClient;
use crate::connector::Connector;
use crate::error::{CallError, ConnectError, NotMcp};
use crate::handshake::{Agreed, Handshake, Link, Stopped, noise};
use crate::pagination::Shelf;
use crate::request_meta::Mirrors;
use crate::server_requests::Respondent;
use crate::session::{Session, attend, lock};
use crate::subscriptions::Subscription;
use crate::timeouts::deadline;

#[tracing::instrument(name = "mcp.connect", skip_all, fields(server = &*plan.name))]
pub(crate) async fn connect(
    plan: Plan,
    connector: Arc<dyn Connector>,
) -> Result<McpClient, ConnectError> {
    let waited = plan.timeouts.start(connector.launcher());
    let deadline = deadline(waited);
    let mut handshake = Handshake::new(&plan, &*connector, deadline);
    let outcome = timeout_at(deadline, handshake.run()).await.unwrap_or(Err(Stopped::Late));
    let (asking, link) = (handshake.asking, handshake.link);
    let loss = Loss { connector: &*connector, asking, waited };
    let (agreed, link) = match (outcome, link) {
        (Ok(agreed), Some(link)) => (agreed, link),
        (Err(stopped), Some(Link { line, .. })) => {
            let seen = line.diagnosis();
            return Err(loss.report(stopped, seen, line.close().await));
        }
        (outcome, None) => {
            let stopped = outcome.err().unwrap_or(Stopped::Late);
            return Err(loss.report(stopped, Diagnosis::default(), Ending::Closed));
        }
    };
    let changes = plan.changes;
    plan.tell(ConnectStep::Listing);
    let client = McpClient::new(begin(plan, agreed, link));
    let Err(stopped) = prepare(&client, changes, deadline).await else { return Ok(client) };
    let loss = Loss { asking: Method::ListTools, ..loss };
    let seen = client.diagnosis();
    Err(loss.report(stopped, seen, client.close().await))
}

/// Puts the session together and starts the task behind it.
fn begin(plan: Plan, agreed: Agreed, link: Link) -> Arc<Session> {
    let Agreed { revision, card, envelope } = agreed;
    let session = Arc::new(Session {
        line: link.line,
        mailbox: link.mailbox,
        envelope,
        respondent: Respondent {
            server: plan.name,
            handler: plan.handler,
            capabilities: plan.capabilities,
            revision,
            patience: plan.timeouts.question,
        },
        timeouts: plan.timeouts,
        limits: plan.limits,
        card,
        shelf: Shelf::default(),
        mirrors: Mirrors::default(),
        has_task_tools: AtomicBool::new(false),
        log_level: Mutex::default(),
        lists: Mutex::default(),
        resources: Mutex::default(),
        subscribed: Mutex::default(),
        tracker: TaskTracker::new(),
        farewells: TaskTracker::new(),
        stop: CancellationToken::new(),
    });
    session.tracker.spawn(attend(Arc::clone(&session)));
    session
}

/// Follows changes first, so that none falls between the first list and the subscription.
async fn prepare(client: &McpClient, changes: Changes, deadline: Instant) -> Result<(), Stopped> {
    let session = client.session();
    let work = async {
        let filter = followed(session, changes);
        if filter != SubscriptionFilter::default() {
            let mut subscription = Subscription::open(session, filter);
            subscription.begun(session.line.medium()).await;
            *lock(&session.lists) = Some(subscription);
        }
        first_tools(session).await
    };
    match timeout_at(deadline, work).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(stopped_by(error)),
        Err(_elapsed) => Err(Stopped::Late),
    }
}

/// What a modern server can tell about its lists.
fn followed(session: &Session, changes: Changes) -> SubscriptionFilter {
    if session.era() == Era::Legacy || changes == Changes::Ignore {
        return SubscriptionFilter::default();
    }
    let offered = &session.card.capabilities;
    SubscriptionFilter {
        tools_list_changed: offered.tools.is_some_and(|it| it.list_changed),
        prompts_list_changed: offered.prompts.is_some_and(|it| it.list_changed),
        resources_list_changed: offered.resources.is_some_and(|it| it.list_changed),
        resource_subscriptions: Vec::new(),
    }
}

/// Old servers often declare nothing and have tools all the same; asking them may fail.
async fn first_tools(session: &Session) -> Result<(), CallError> {
    let declared = session.card.capabilities.tools.is_some();
    let maybe = session.revision() < Revision::R2025_06_18;
    if !declared && !maybe {
        return Ok(());
    }
    match session.fetch::<Tool>().await {
        Err(CallError::Refused(_)) if !declared => Ok(()),
        outcome => outcome.map(drop),
    }
}

fn stopped_by(error: CallError) -> Stopped {
    let method = Method::ListTools;
    Stopped::Because(match error {
        CallError::Refused(source) => ConnectError::Refused { method, source },
        CallError::Undecodable { method, source } => ConnectError::Undecodable { method, source },
        CallError::TimedOut { .. } => return Stopped::Late,
        CallError::Line(failure) => return Stopped::Gone(failure.error),
        other => ConnectError::Transport(TransportError::Parse(other.to_string())),
    })
}

/// A failed attempt.
struct Loss<'a> {
    connector: &'a dyn Connector,
    asking: Method,
    waited: Duration,
}

impl Loss<'_> {
    /// Says what went wrong, after the line has ended.
    fn report(&self, stopped: Stopped, seen: Diagnosis, ending: Ending) -> ConnectError {
        match stopped {
            Stopped::Because(error) => error,
            Stopped::Late => noise(&seen, 1).unwrap_or_else(|| self.late(seen)),
            Stopped::Gone(error) => match (error, ending) {
                (TransportError::ProcessExited(exit), _) | (_, Ending::Exited(exit)) => {
                    exited(exit, seen)
                }
                (TransportError::Unauthorized(error), _) => ConnectError::NeedsAuth(error),
                (error, _) => noise(&seen, 1).unwrap_or(ConnectError::Transport(error)),
            },
        }
    }

    fn late(&self, seen: Diagnosis) -> ConnectError {
        // A server that has said anything at all is past its installation.
        let nothing = seen.messages == 0 && seen.unreadable == 0;
        let launcher = self.connector.launcher().filter(|_| nothing);
        ConnectError::TimedOut {
            method: self.asking,
            waited: self.waited,
            still_installing: launcher.map(str::to_owned),
            diagnosis: Box::new(seen),
        }
    }
}

/// A program that wrote text, no message, and then said that all is well was never a server.
fn exited(exit: ServerExit, seen: Diagnosis) -> ConnectError {
    match seen.sample {
        Some(sample) if exit.exit == Exit::Code(0) && seen.messages == 0 => {
            ConnectError::NotMcp(NotMcp::Noise { sample })
        }
        sample => ConnectError::Exited { exit, sample },
    }
}

/// What an attempt to connect does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectStep {
    /// The line is opened: a process is started, or an address is reached.
    Opening,
    /// A revision is agreed on.
    Greeting,
    /// The tools are fetched.
    Listing,
}

/// Whoever wants to know. Called in the middle of connecting, so it must be quick.
pub type StepWatcher = Arc<dyn Fn(ConnectStep) + Send + Sync>;
