//! Requests that a server works on, passed on with everything that is said and asked meanwhile.
//!
//! Four ways, by the eras of client and server. A modern server asks in its result: a modern client gets that
//! result as it is, and for a legacy client the questions are asked here and the request is repeated. A legacy
//! server asks while it works: a legacy client is asked at once, and for a modern client the request is parked.
//!
//! **Invariant:** arguments, answers and results pass as they are written.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::oneshot;
use tokio::time::sleep;
use toolrack_client::Behalf;
use toolrack_mcp::{InputResponse, InputResponses, Method, ResultType};
use toolrack_transport::{JsonRpcError, RawJson};

use crate::active_request::{Asked, Seat};
use crate::client_session::Conversation;
use crate::encode::{Outcome, internal, result};
use crate::errand::begin;
use crate::params::Params;
use crate::request::Exchange;
use crate::result_compat::{reshape, top_level};
use crate::suspended::{Parked, Waiting};

/// How often a server may ask before it answers.
const MAX_ROUNDS: u32 = 10;

/// How long after a question of a legacy server the next one still goes along with it. A modern client is asked
/// in rounds, so what a server asks together has to reach it together.
const SETTLE: Duration = Duration::from_millis(30);

/// Questions of one round. What a server asks beyond them waits for the next.
const MAX_TOGETHER: usize = 8;

impl Exchange {
    /// Passes a request on, and gives the result as the client's era has it.
    pub(crate) async fn relay(&self, method: Method, params: &Params<'_>) -> Outcome {
        let outcome = match &self.home {
            Some(home) => self.relay_asking(home, method, params).await,
            None => self.relay_parking(method, params).await,
        };
        outcome.map(|raw| reshape(raw, self.era(), method))
    }

    /// For a legacy client, which can be asked at any time.
    async fn relay_asking(
        &self,
        home: &Arc<Conversation>,
        method: Method,
        params: &Params<'_>,
    ) -> Outcome {
        let target = Arc::new(self.target(method, params).await?);
        let behalf = self.behalf(params)?;
        let (seat, _none) = self.seat(params)?;
        let begin = |behalf: Behalf| begin(&self.shared, &target, &seat, (behalf, self.patience));
        let mut work = begin(behalf.clone());
        let mut n_rounds = 0;
        loop {
            let raw = work.await?;
            if ResultType::read(raw.as_bytes()) != ResultType::InputRequired {
                return Ok(raw);
            }
            if n_rounds >= MAX_ROUNDS {
                return Err(internal("the server keeps asking"));
            }
            n_rounds += 1;
            let (answers, state) = self.answers(home, &raw).await?;
            work = begin(behalf.clone().answering(answers, state));
        }
    }

    /// Asks the client what a modern server asks in its result.
    async fn answers(
        &self,
        home: &Conversation,
        raw: &RawJson,
    ) -> Result<(Option<InputResponses>, Option<String>), JsonRpcError> {
        #[derive(Deserialize)]
        struct Question<'a> {
            method: String,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let unfit = || internal("the server asks in a way that does not fit the protocol");
        let members = top_level(raw).ok_or_else(unfit)?;
        let member = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, it)| *it);
        let state = member("requestState").map(|it| serde_json::from_str::<String>(it.get()));
        let state = state.transpose().map_err(|_fault| unfit())?;
        let Some(asked) = member("inputRequests") else { return Ok((None, state)) };
        let asked = RawJson::from(asked.to_owned());
        let mut answers = InputResponses::default();
        for (key, question) in top_level(&asked).ok_or_else(unfit)? {
            let question: Question<'_> =
                serde_json::from_str(question.get()).map_err(|_fault| unfit())?;
            let params = question.params.map(|it| RawJson::from(it.to_owned()));
            if !self.caller.can(&question.method, params.as_ref()) {
                return Err(internal(&format!("the client does not offer `{}`", question.method)));
            }
            let answer = home.ask(&self.out, &question.method, params.as_ref()).await?;
            let answer = answer.checked().map_err(|_fault| internal("the answer is no JSON"))?;
            answers.push(key, InputResponse::Raw(answer.to_owned()));
        }
        Ok((Some(answers), state))
    }

    /// For a modern client, which is asked in a result and repeats its request.
    async fn relay_parking(&self, method: Method, params: &Params<'_>) -> Outcome {
        let subject = params.name.as_ref().or(params.uri.as_ref()).cloned().unwrap_or_default();
        let about = (method.as_str().to_owned(), subject);
        let parked = &self.shared.parked;
        let ours = params.request_state.as_deref().filter(|it| parked.is_ours(it));
        let mut waiting = match ours {
            Some(state) => self.resume(parked.take(state, &about)?, params)?,
            None => {
                let target = Arc::new(self.target(method, params).await?);
                if params.request_state.is_some() && target.is_legacy(&self.shared) {
                    return Err(Parked::lost());
                }
                let behalf = self.behalf(params)?;
                let behalf = behalf.answering(params.answers(), params.request_state.clone());
                let client = (Arc::clone(&self.caller), self.owner.clone());
                let (spot, naming) = (self.spot(params)?, self.shared.scope.naming());
                let (seat, questions) = Seat::new(client, spot, naming);
                let work = begin(&self.shared, &target, &seat, (behalf, self.patience));
                Waiting { work, seat, questions, asked: Vec::new(), n_asked: 0, about }
            }
        };
        while waiting.asked.len() < MAX_TOGETHER {
            let is_first = waiting.asked.is_empty();
            let asked = tokio::select! {
                biased;
                outcome = &mut waiting.work => return self.with_pages(outcome, params),
                Some(asked) = waiting.questions.recv() => asked,
                () = sleep(SETTLE), if !is_first => break,
            };
            waiting.n_asked += 1;
            waiting.asked.push((format!("q{}", waiting.n_asked), asked));
        }
        self.park(waiting)
    }

    /// Hands the client's answers over. What it did not answer is asked again.
    fn resume(&self, mut waiting: Waiting, params: &Params<'_>) -> Result<Waiting, JsonRpcError> {
        waiting.seat.move_to(self.spot(params)?);
        let mut answers = params.input_responses.clone().unwrap_or_default();
        for (key, asked) in std::mem::take(&mut waiting.asked) {
            match answers.remove(&key) {
                Some(answer) => hand(asked.answer, Ok(RawJson::from(answer.to_owned()))),
                None => waiting.asked.push((key, asked)),
            }
        }
        Ok(waiting)
    }

    fn park(&self, waiting: Waiting) -> Outcome {
        // Written before it is parked, and as the server wrote it: the order of its fields is that of a form.
        let questions = to_raw_value(&Questions(&waiting.asked));
        let questions = questions.map_err(|fault| internal(&fault.to_string()))?;
        let state = self.shared.parked.keep(waiting)?;
        result(&Asking {
            result_type: "input_required",
            input_requests: &questions,
            request_state: &state,
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asking<'a> {
    result_type: &'static str,
    input_requests: &'a RawValue,
    request_state: &'a str,
}

struct Questions<'a>(&'a [(String, Asked)]);

impl Serialize for Questions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Question<'a> {
            method: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            params: Option<&'a RawValue>,
        }
        serializer.collect_map(self.0.iter().map(|(key, asked)| {
            let params = asked.params.as_ref().and_then(|it| it.checked().ok());
            (key, Question { method: &asked.method, params })
        }))
    }
}

/// Gives an answer to whoever asked, who may have gone meanwhile.
fn hand(answer: oneshot::Sender<Outcome>, outcome: Outcome) {
    if answer.send(outcome).is_err() {
        tracing::debug!("nobody waits for an answer of a client any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_keeps_its_order() {
        let asked = |params: Option<&str>| {
            let params = params.map(|it| RawJson::new(it.to_owned()));
            Asked { method: "m".to_owned(), params, answer: oneshot::channel().0 }
        };
        let asked = [
            ("q9".to_owned(), asked(Some(r#"{"z":1,"a":{ "y":2.0,"b":3}}"#))),
            ("q10".to_owned(), asked(None)),
        ];
        let written = serde_json::to_string(&Questions(&asked)).unwrap();
        let expected =
            r#"{"q9":{"method":"m","params":{"z":1,"a":{ "y":2.0,"b":3}}},"q10":{"method":"m"}}"#;
        assert_eq!(written, expected);
    }
}
