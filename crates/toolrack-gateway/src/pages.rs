//! Pages that a server wants the user to open before it answers.
//!
//! Spec 2025-11-25, elicitation §URL mode: such a server refuses with the pages. 2026-07-28 has no such refusal, so
//! a modern client is asked in a result, and when it repeats its request, so do we.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolrack_mcp::{ErrorCode, Method};
use toolrack_transport::{JsonRpcError, RawJson};

use crate::encode::{Outcome, result};
use crate::params::Params;
use crate::request::Exchange;

#[derive(Deserialize)]
struct Pages {
    elicitations: Vec<Page>,
}

#[derive(Deserialize)]
struct Page {
    message: String,
    url: String,
}

impl Exchange {
    /// Makes a refusal that names pages into a question, if the client can be asked and has not said no.
    pub(crate) fn with_pages(&self, outcome: Outcome, params: &Params<'_>) -> Outcome {
        let refusal = match outcome {
            Err(error) if ErrorCode(error.code) == ErrorCode::URL_ELICITATION_REQUIRED => error,
            outcome => return outcome,
        };
        let page = RawJson::new(r#"{"mode":"url"}"#);
        let is_asked_before = params.input_responses.is_some();
        if is_asked_before || !self.caller.can(Method::Elicit.as_str(), Some(&page)) {
            return Err(refusal);
        }
        match questions(&refusal) {
            Some(asked) => {
                result(&json!({ "resultType": "input_required", "inputRequests": asked }))
            }
            None => Err(refusal),
        }
    }
}

fn questions(refusal: &JsonRpcError) -> Option<Map<String, Value>> {
    let Pages { elicitations } = Pages::deserialize(refusal.data.as_ref()?).ok()?;
    let asked = elicitations.into_iter().enumerate().map(|(number, page)| {
        let params = json!({ "mode": "url", "message": page.message, "url": page.url });
        let question = json!({ "method": Method::Elicit.as_str(), "params": params });
        (format!("page{}", number + 1), question)
    });
    let asked: Map<String, Value> = asked.collect();
    (!asked.is_empty()).then_some(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: Value, expected: Option<Value>) {
        let refusal = JsonRpcError { data: Some(data), ..JsonRpcError::new(-32042, "open") };
        assert_eq!(questions(&refusal).map(Value::Object), expected);
    }

    #[test]
    fn pages_become_questions() {
        let page =
            json!({ "mode": "url", "elicitationId": "1", "url": "https://e.org", "message": "m" });
        let params = json!({ "mode": "url", "message": "m", "url": "https://e.org" });
        let question = json!({ "page1": { "method": "elicitation/create", "params": params } });
        check(json!({ "elicitations": [page] }), Some(question));
        check(json!({ "elicitations": [] }), None);
        check(json!({}), None);
    }
}
