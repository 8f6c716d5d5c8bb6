//! Questions of servers to the person or model of a client (elicitation and sampling), checked before a client sees
//! them.
//!
//! Every way to a client passes here: requests of legacy servers, `input_required` results of modern ones, and URL
//! elicitation errors (-32042). What the ways have in common is decided by pure functions; [`refused_questions`] counts.
//!
//! **Invariant:** no client sees an address that is not a web address or that contains a user name. The server is
//! answered as if the user had declined; an error with such an address loses its data.
//! **Invariant:** a question has no hidden text. It is removed before anything is decided, because without it a member
//! can have another name and a text another meaning.
//! **Invariant:** a question names the server that asks it, by its configured name. A gateway behind this one has named
//! its servers already.
//! **Invariant:** a server asks at most [`BURST`] questions at once, [`PER_MINUTE`] in the long run, and
//! [`MAX_PER_CALL`] for one request of a client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use toolrack_mcp::{ElicitationResult, object_members};
use toolrack_mcp::{ErrorCode, Method, ResultType, WebUrl, WebUrlError};
use toolrack_transport::{JsonRpcError, RawJson, sanitize_line};

use crate::encode::{
    error_without_hidden_text, internal_error, invalid_params, without_hidden_text,
};
use crate::result_compat::write_object;

/// Questions that a server may ask at once. Many clients share a server, so this is more than one person can answer.
pub(crate) const BURST: u32 = 120;
/// Questions per minute that a server may ask in the long run.
pub(crate) const PER_MINUTE: u32 = 60;
/// Questions that a server may ask because of one request of a client.
pub(crate) const MAX_PER_CALL: u32 = 64;
/// Members of an `input_required` result.
const INPUT_REQUESTS: &str = "inputRequests";
const REQUEST_STATE: &str = "requestState";
/// Characters of a server's name in a question. Config files allow 128 bytes.
const MAX_NAME_CHARS: usize = 128;

static N_URLS: AtomicU64 = AtomicU64::new(0);
static N_OVER_BUDGET: AtomicU64 = AtomicU64::new(0);

/// Questions of servers that no client was asked, since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RefusedQuestions {
    /// Because of an address that no person should open.
    pub urls: u64,
    /// Because the server asked too often.
    pub over_budget: u64,
}

/// Counts the questions that no client was asked.
pub fn refused_questions() -> RefusedQuestions {
    RefusedQuestions {
        urls: N_URLS.load(Ordering::Relaxed),
        over_budget: N_OVER_BUDGET.load(Ordering::Relaxed),
    }
}

/// Decision about a question.
#[derive(Debug)]
pub(crate) enum Review {
    /// The client gets the question with these parameters.
    Forward(Option<RawJson>),
    /// The server is answered as if the user had declined.
    Decline(WebUrlError),
}

/// Whether the method asks a person or a model.
pub(crate) fn is_question(method: &str) -> bool {
    matches!(Method::parse(method), Some(Method::Elicit | Method::CreateMessage))
}

/// Checks a server request. `server` is the name to show; `None` if the parameters name the server already.
pub(crate) fn review(
    method: &str,
    params: Option<&RawJson>,
    server: Option<&str>,
) -> Result<Review, JsonRpcError> {
    let params = params.cloned().map(without_hidden_text);
    if !is_question(method) {
        return Ok(Review::Forward(params));
    }
    let unreadable = || invalid_params("the parameters are not an object");
    let members = params.as_ref().and_then(|raw| object_members(raw.as_raw_value().ok()?));
    let members = members.ok_or_else(unreadable)?;
    let text = |name: &str| -> Option<String> {
        members.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok())
    };
    // Members are read as they are written below: of a repeated one the last counts. A client may read it otherwise.
    let mut changed: Vec<(&str, String)> = Vec::new();
    let mut note = None;
    if method == Method::Elicit.as_str() {
        // Also in a mode that we do not know: a client may show the address all the same.
        if members.contains_key("url") || text("mode").as_deref() == Some("url") {
            let url = match WebUrl::parse(&text("url").unwrap_or_default()) {
                Ok(url) => url,
                Err(problem) => return Ok(Review::Decline(problem)),
            };
            note = url.host_note();
            changed.push(("url", json!(url.as_str()).to_string()));
        }
        if let Some(server) = server {
            let message = named_message(server, text("message").as_deref(), note.as_deref());
            changed.push(("message", json!(message).to_string()));
        }
    } else if let Some(server) = server {
        let prompt = named_prompt(server, text("systemPrompt").as_deref());
        changed.push(("systemPrompt", json!(prompt).to_string()));
    }
    let kept = members.iter().map(|(key, raw)| {
        let new = changed.iter().find(|(name, _)| name == key).map(|(_, json)| json.as_str());
        (key.as_str(), new.unwrap_or(raw.get()))
    });
    let added = changed.iter().filter(|(name, _)| !members.contains_key(*name));
    let added = added.map(|(name, json)| (*name, json.as_str()));
    let written = write_object(kept.chain(added)).ok_or_else(unreadable)?;
    Ok(Review::Forward(Some(written)))
}

/// The message of an elicitation as the person sees it.
fn named_message(server: &str, message: Option<&str>, note: Option<&str>) -> String {
    let server = sanitize_line(server, MAX_NAME_CHARS);
    let message = message.map_or("it needs input", |message| message);
    let note = note.map(|note| format!("\n(Note: {note}.)")).unwrap_or_default();
    format!("Server \"{server}\" asks: {message}{note}")
}

/// The system prompt of a sampling request. Clients show it to the person who approves the request, and it is the only
/// text that is not part of the conversation.
fn named_prompt(server: &str, prompt: Option<&str>) -> String {
    let server = sanitize_line(server, MAX_NAME_CHARS);
    let named = format!("This request comes from the MCP server \"{server}\".");
    prompt.map_or_else(|| named.clone(), |prompt| format!("{named}\n\n{prompt}"))
}

/// The response of a user who declines.
pub(crate) fn declined() -> Box<RawValue> {
    let raw = serde_json::value::to_raw_value(&ElicitationResult::Decline);
    raw.unwrap_or_default()
}

/// An `input_required` result, with its requests in the order of the server.
#[derive(Debug)]
pub(crate) struct InputRequired {
    /// The result without hidden text.
    shown: RawJson,
    /// Key, method and parameters of each request.
    pub(crate) requests: Vec<(String, String, Option<RawJson>)>,
    pub(crate) state: Option<String>,
    /// The state as the server wrote it: the client returns it unread.
    raw_state: Option<Box<RawValue>>,
    pub(crate) has_requests: bool,
}

/// Why no client gets an `input_required` result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputProblem {
    Malformed,
    /// More than [`MAX_PER_CALL`].
    TooManyRequests,
}

/// Decision about an `input_required` result.
#[derive(Debug)]
pub(crate) enum InputReview {
    /// The client gets this result, with so many questions.
    Forward(RawJson, u32),
    /// The server is answered as if the user had declined these requests; it asks again for what is missing.
    Decline(Vec<(String, WebUrlError)>, Option<String>),
}

impl InputRequired {
    /// Reads a result, of which `shown` is the form without hidden text. `None` if no client can take it for
    /// `input_required`.
    pub(crate) fn read(raw: &RawJson, shown: &RawJson) -> Result<Option<Self>, InputProblem> {
        if !may_have_type(shown.as_bytes()) {
            return Ok(None);
        }
        let result_type = ResultType::read(shown.as_bytes());
        if matches!(result_type, ResultType::Complete | ResultType::Task) {
            return Ok(None);
        }
        let members = match shown.as_raw_value() {
            Ok(raw) if raw.get().starts_with('{') => object_members(raw),
            // Invalid JSON reaches no client.
            _ => return Ok(None),
        };
        // Clients may read members that we cannot, such as one with half of a surrogate pair in its name.
        let members = members.ok_or(InputProblem::Malformed)?;
        // The type is repeated or unknown: clients may read it as `input_required`.
        if result_type == ResultType::Other && !members.contains_key(INPUT_REQUESTS) {
            return Ok(None);
        }
        let (requests, has_requests) = match members.get(INPUT_REQUESTS) {
            Some(requests) => (read_requests(requests)?, true),
            None => (Vec::new(), false),
        };
        let original = raw.as_raw_value().ok().and_then(object_members).unwrap_or_default();
        let raw_state = original.get(REQUEST_STATE).or(members.get(REQUEST_STATE));
        let state = raw_state.map(|raw| serde_json::from_str(raw.get())).transpose();
        let state = state.map_err(|_error| InputProblem::Malformed)?;
        let raw_state = raw_state.map(|raw| (*raw).to_owned());
        Ok(Some(Self { shown: shown.clone(), requests, state, raw_state, has_requests }))
    }

    /// Checks the requests of a result that goes to a modern client. `server` is the name to show, as for [`review`].
    pub(crate) fn review(self, server: Option<&str>) -> Result<InputReview, JsonRpcError> {
        let mut declined = Vec::new();
        let mut reviewed = Vec::new();
        for (key, method, params) in self.requests {
            match review(&method, params.as_ref(), server)? {
                Review::Forward(params) => reviewed.push((key, method, params)),
                Review::Decline(problem) => declined.push((key, problem)),
            }
        }
        if !declined.is_empty() {
            return Ok(InputReview::Decline(declined, self.state));
        }
        let n_questions = reviewed.iter().filter(|(_, method, _)| is_question(method)).count();
        let written = write_requests(&reviewed).and_then(|requests| {
            let members = object_members(self.shown.as_raw_value().ok()?)?;
            let requests = std::str::from_utf8(requests.as_bytes()).ok()?;
            write_object(members.iter().map(|(key, raw)| match (key.as_str(), &self.raw_state) {
                (INPUT_REQUESTS, _) => (INPUT_REQUESTS, requests),
                (REQUEST_STATE, Some(state)) => (REQUEST_STATE, state.get()),
                (key, _) => (key, raw.get()),
            }))
        });
        let written = written.ok_or_else(malformed_input_required)?;
        Ok(InputReview::Forward(written, u32::try_from(n_questions).unwrap_or(u32::MAX)))
    }
}

/// Whether a result can have the member `resultType`. Its letters can be written as `\u` escapes. A search is enough to
/// leave most results unparsed.
fn may_have_type(json: &[u8]) -> bool {
    let contains = |part: &str| memchr::memmem::find(json, part.as_bytes()).is_some();
    contains("resultType") || contains(r"\u")
}

/// Key, method and parameters of each request.
fn read_requests(raw: &RawValue) -> Result<Vec<(String, String, Option<RawJson>)>, InputProblem> {
    #[derive(Deserialize)]
    struct Request<'a> {
        method: String,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let requests = object_members(raw).ok_or(InputProblem::Malformed)?;
    // A message has room for hundreds of thousands, and each would be parsed, written and logged.
    if requests.len() > MAX_PER_CALL as usize {
        return Err(InputProblem::TooManyRequests);
    }
    let requests = requests.into_iter().map(|(key, raw)| {
        let Request { method, params } = serde_json::from_str(raw.get()).ok()?;
        Some((key, method, params.map(|raw| RawJson::from(raw.to_owned()))))
    });
    requests.collect::<Option<_>>().ok_or(InputProblem::Malformed)
}

fn malformed_input_required() -> JsonRpcError {
    internal_error("the server sent a malformed input_required result")
}

fn write_requests(requests: &[(String, String, Option<RawJson>)]) -> Option<RawJson> {
    let requests = requests.iter().map(|(key, method, params)| {
        let method = json!(method).to_string();
        let params = params.as_ref().map(|raw| raw.as_raw_value().map(RawValue::get));
        let params = params.transpose().ok()?;
        let members = [Some(("method", method.as_str())), params.map(|params| ("params", params))];
        let request = write_object(members.into_iter().flatten())?;
        Some((key.as_str(), String::from_utf8(request.as_bytes().to_vec()).ok()?))
    });
    let requests: Vec<(&str, String)> = requests.collect::<Option<_>>()?;
    write_object(requests.iter().map(|(key, request)| (*key, request.as_str())))
}

/// Checks the addresses of a URL elicitation error, and returns it with the number of pages. Other errors pass.
pub(crate) fn review_url_error(
    error: JsonRpcError,
    server: Option<&str>,
) -> Result<(JsonRpcError, u32), WebUrlError> {
    if ErrorCode(error.code) != ErrorCode::URL_ELICITATION_REQUIRED {
        return Ok((error, 0));
    }
    let mut error = error_without_hidden_text(error);
    // Data of another shape cannot be checked, and clients could read addresses out of it.
    let data = error.data.take();
    let pages = data.as_ref().and_then(|data| data.get("elicitations")?.as_array());
    let pages = pages.and_then(|pages| pages.iter().map(Value::as_object).collect());
    let pages: Vec<&Map<String, Value>> = match pages {
        Some(pages) => pages,
        None => return Ok((error, 0)),
    };
    let mut reviewed = Vec::new();
    for page in pages {
        let mut page = page.clone();
        let url = WebUrl::parse(page.get("url").and_then(Value::as_str).unwrap_or_default())?;
        if let Some(server) = server {
            let message = page.get("message").and_then(Value::as_str);
            let message = named_message(server, message, url.host_note().as_deref());
            page.insert("message".to_owned(), message.into());
        }
        page.insert("url".to_owned(), url.as_str().into());
        reviewed.push(page);
    }
    let n_pages = u32::try_from(reviewed.len()).unwrap_or(u32::MAX);
    error.data = Some(json!({ "elicitations": reviewed }));
    Ok((error, n_pages))
}

/// Error that replaces one with an address that no client may see.
pub(crate) fn refused_url_error(problem: WebUrlError) -> JsonRpcError {
    internal_error(&format!("the server asks to open a page that is not shown, because {problem}"))
}

/// Token bucket for the questions of one server. Pure: no clock.
#[derive(Debug)]
pub(crate) struct QuestionBudget {
    tokens: u32,
    refilled: Instant,
    /// Whether a refusal was logged since the last refill.
    has_logged: bool,
}

impl QuestionBudget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { tokens: BURST, refilled: now, has_logged: false }
    }

    /// Takes `n_questions` out of the budget, after `n_in_call` for the same request of a client. `false` if they are
    /// too many: then nothing is taken.
    pub(crate) fn take(&mut self, n_questions: u32, n_in_call: u32, now: Instant) -> bool {
        self.refill(now);
        let left = self.tokens.checked_sub(n_questions);
        let is_within = n_in_call.saturating_add(n_questions) <= MAX_PER_CALL;
        match left.filter(|_| is_within) {
            Some(left) => self.tokens = left,
            None => return false,
        }
        true
    }

    /// Whether a refusal is logged: the first one after each refill.
    fn take_log_line(&mut self, now: Instant) -> bool {
        self.refill(now);
        !std::mem::replace(&mut self.has_logged, true)
    }

    fn refill(&mut self, now: Instant) {
        const INTERVAL: Duration = Duration::from_millis(60_000 / PER_MINUTE as u64);
        let n_new = now.duration_since(self.refilled).as_millis() / INTERVAL.as_millis();
        let n_new = u32::try_from(n_new).unwrap_or(BURST).min(BURST);
        // Only whole tokens move the time, or frequent questions would never refill the bucket.
        if n_new > 0 {
            self.has_logged = false;
            self.tokens = self.tokens.saturating_add(n_new).min(BURST);
            self.refilled =
                if self.tokens == BURST { now } else { self.refilled + INTERVAL * n_new };
        }
    }

    /// Whether the bucket equals a new one and need not be kept.
    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.tokens == BURST && !self.has_logged
    }
}

/// Budgets of the servers that have asked lately.
#[derive(Debug, Default)]
pub(crate) struct QuestionBudgets(Mutex<HashMap<Box<str>, QuestionBudget>>);

impl QuestionBudgets {
    fn with<T>(&self, server: &str, action: impl FnOnce(&mut QuestionBudget, Instant) -> T) -> T {
        let now = Instant::now();
        let mut budgets = self.0.lock();
        // A full budget equals a new one, so the map holds only servers that have asked lately.
        budgets.retain(|name, budget| **name == *server || !budget.is_full(now));
        action(budgets.entry(server.into()).or_insert_with(|| QuestionBudget::new(now)), now)
    }

    /// Takes questions out of the budget of a server, and adds them to `n_in_call`.
    pub(crate) fn take(
        &self,
        server: &str,
        n_questions: u32,
        n_in_call: &AtomicU32,
    ) -> Result<(), JsonRpcError> {
        let is_taken = self.with(server, |budget, now| {
            let is_taken = budget.take(n_questions, n_in_call.load(Ordering::Relaxed), now);
            if is_taken {
                // Under the lock of the budgets, so two questions cannot both be the last one.
                n_in_call.fetch_add(n_questions, Ordering::Relaxed);
            }
            is_taken
        });
        is_taken.then_some(()).ok_or_else(|| self.over_budget(server))
    }

    /// Counts a refused address, and logs the first one after each refill of the budget.
    pub(crate) fn record_refused_url(&self, server: &str, problem: WebUrlError) {
        N_URLS.fetch_add(1, Ordering::Relaxed);
        if self.with(server, QuestionBudget::take_log_line) {
            tracing::warn!(server, %problem, "URL elicitation refused");
        }
    }

    /// Error for a server that asks too often. Also counts it, and logs the first one after each refill.
    pub(crate) fn over_budget(&self, server: &str) -> JsonRpcError {
        N_OVER_BUDGET.fetch_add(1, Ordering::Relaxed);
        if self.with(server, QuestionBudget::take_log_line) {
            tracing::warn!(server, "server asks too often; its question was refused");
        }
        internal_error(&format!(
            "`{server}` asks too often, so no client was asked: a server may ask {BURST} questions \
             at once, {PER_MINUTE} per minute and {MAX_PER_CALL} per request"
        ))
    }

    /// Error for a result whose requests no client gets.
    pub(crate) fn refuse_input(&self, server: &str, problem: InputProblem) -> JsonRpcError {
        match problem {
            InputProblem::Malformed => malformed_input_required(),
            InputProblem::TooManyRequests => self.over_budget(server),
        }
    }
}

#[cfg(test)]
mod tests;
