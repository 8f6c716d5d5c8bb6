//! The demo server: a small, friendly and correct MCP server of both eras, for first steps and for tests.
//!
//! **Invariant:** slow tools run on a timer, so a slow call never delays a fast one; a cancelled call is never
//! answered.

mod catalog;
mod tools;

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error_code;
use crate::jsonrpc::{self, Answer, Incoming, Params, Refusal};
use crate::message_sink::{Outlet, Pipe};
use crate::revision::{Era, Revision, Speaks};
use crate::timer::Timer;
use tools::Done;

/// The `_meta` of every modern result.
const SERVER_META: &str = concat!(
    r#","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"toolrack-demo","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

/// Serves one client until its input ends.
///
/// Fails only if the input cannot be read; an output that nobody reads any more is not a failure.
pub fn serve(mut input: impl BufRead, output: impl Write + Send + 'static) -> io::Result<()> {
    let demo = Arc::new(Demo {
        outlet: Pipe::new(output),
        open: Mutex::default(),
        agreed: Mutex::new(None),
    });
    // Dropped with this function, and every call that still waits with it.
    let timer = Timer::start();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        demo.take(&timer, &line);
        demo.outlet.flush();
        line.clear();
    }
    Ok(())
}

#[derive(Debug)]
struct Demo {
    outlet: Pipe,
    /// The slow calls that still run, by their ids as the client wrote them.
    open: Mutex<HashSet<String>>,
    agreed: Mutex<Option<Revision>>,
}

impl Demo {
    fn take(self: &Arc<Self>, timer: &Timer, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        match serde_json::from_slice::<Incoming<'_>>(line) {
            Ok(Incoming { method: Some(method), id: Some(id), params, .. }) => {
                self.request(timer, id, &method, params);
            }
            Ok(Incoming { method: Some(method), id: None, params, .. }) => {
                self.notified(&method, params);
            }
            Ok(_) => (),
            Err(_) => {
                let refusal =
                    Refusal::new(error_code::PARSE_ERROR, "the line is no message").to_json();
                let line = json!({ "jsonrpc": "2.0", "error": refusal }).to_string();
                self.outlet.put(line.as_bytes());
            }
        }
    }

    fn request(
        self: &Arc<Self>,
        timer: &Timer,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) {
        let id = id.get();
        let read = Params::read(params)
            .and_then(|params| Ok((self.revision_of(method, &params)?, params)));
        let (revision, params) = match read {
            Ok(read) => read,
            // An answer to a request that is of no era looks the same in both.
            Err(refusal) => return self.settle(id, Era::Legacy, &Answer::Refused(refusal)),
        };
        let era = revision.era();
        let answer = match (method, era) {
            ("tools/call", _) => match tools::call(&params, revision) {
                Ok(Done::Now(answer)) => Ok(answer),
                Ok(Done::Counting(countdown)) => {
                    lock(&self.open).insert(id.to_owned());
                    let token = params.meta.progress_token.map(ToOwned::to_owned);
                    let call = Slow { id: id.to_owned(), revision, token };
                    return self.count_down(timer, call, countdown);
                }
                Err(refusal) => Err(refusal),
            },
            ("initialize", Era::Legacy) => {
                *lock(&self.agreed) = Some(revision);
                Ok(catalog::initialize(revision))
            }
            ("server/discover", Era::Modern) => Ok(catalog::discover()),
            ("ping", Era::Legacy) => Ok(Answer::empty()),
            _ => catalog::read(method, &params, revision),
        };
        self.settle(id, era, &answer.into());
    }

    /// All steps are given to the timer at once; those after a cancellation find the call gone.
    fn count_down(self: &Arc<Self>, timer: &Timer, call: Slow, countdown: tools::Countdown) {
        let call = Arc::new(call);
        for step in 1..=countdown.from {
            let (demo, call) = (Arc::clone(self), Arc::clone(&call));
            timer.after(countdown.every * step, move || {
                if lock(&demo.open).contains(&call.id) {
                    demo.tell_progress(&call, step, countdown.from);
                }
            });
        }
        let (demo, end) = (Arc::clone(self), countdown.every * countdown.from);
        timer.after(end.max(Duration::from_millis(1)), move || {
            if lock(&demo.open).remove(&call.id) {
                demo.settle(&call.id, call.revision.era(), &Answer::text("Lift-off!"));
                demo.outlet.flush();
            }
        });
    }

    fn tell_progress(&self, call: &Slow, step: u32, from: u32) {
        let Some(token) = &call.token else { return };
        let mut params = json!({ "progressToken": token, "progress": step, "total": from });
        if let (true, Some(members)) =
            (call.revision >= Revision::R2025_03_26, params.as_object_mut())
        {
            members.insert("message".to_owned(), json!(format!("{}…", from - step)));
        }
        self.outlet.put(&jsonrpc::notification("notifications/progress", Some(&params)));
        self.outlet.flush();
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        if method != "notifications/cancelled" {
            return;
        }
        if let Some(id) = Params::read(params).ok().and_then(|value| value.request_id) {
            lock(&self.open).remove(id.get());
        }
    }

    fn settle(&self, id: &str, era: Era, answer: &Answer) {
        self.outlet.put(&jsonrpc::response(id, &answer.body(era, SERVER_META)));
    }

    /// A request belongs to the modern era if it says so, else to the revision of the handshake.
    fn revision_of(&self, method: &str, params: &Params<'_>) -> Result<Revision, Refusal> {
        let requested = params.protocol_version.as_deref().unwrap_or_default();
        match (method, *lock(&self.agreed)) {
            ("initialize", _) => Ok(Speaks::Dual.agree(requested).unwrap_or(Revision::R2025_11_25)),
            ("ping", None) => Ok(Revision::R2025_11_25),
            (_, Some(revision)) if params.meta.protocol_version.is_none() => Ok(revision),
            _ => {
                params.meta.check(&Speaks::Dual.supported())?;
                Ok(Revision::R2026_07_28)
            }
        }
    }
}

/// A call that takes its time.
#[derive(Debug)]
struct Slow {
    id: String,
    revision: Revision,
    token: Option<Box<RawValue>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result object that these members make.
fn complete(members: &Value) -> Answer {
    Answer::Complete(Answer::members_of(members))
}
