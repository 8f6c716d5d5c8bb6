//! A line from which nobody hears what must not be seen, whatever the server says.
//!
//! A server knows the secrets it was given, and may repeat them in results, errors, lists and messages. Here they are
//! taken out below everybody who could show or keep them.
//!
//! **Invariant:** what the mask knows when an answer comes is in nothing that leaves here.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use toolrack_transport::{
    AuthError, BoxFuture, Diagnosis, Dialect, Ending, Line, LineError, Mask, Medium, Outgoing,
    TransportError,
};
use toolrack_transport::{JsonRpcError, Params, RawJson, RequestId};

/// The line, behind a mask if there is or may be something to hide: over HTTP, tokens come later.
pub(crate) fn masked(line: Arc<dyn Line>, mask: &Mask) -> Arc<dyn Line> {
    if line.medium() == Medium::Stream && mask.is_empty() {
        return line;
    }
    Arc::new(Masked { line, mask: mask.clone() })
}

/// JSON without what must not be seen. What is clean is not copied.
pub(crate) fn clean(raw: RawJson, mask: &Mask) -> RawJson {
    RawJson::new(mask.clean_json(raw.into_bytes()))
}

#[derive(Debug)]
struct Masked {
    line: Arc<dyn Line>,
    mask: Mask,
}

impl Line for Masked {
    fn request<'a>(&'a self, request: Outgoing<'a>) -> BoxFuture<'a, Result<RawJson, LineError>> {
        let asked = self.line.request(request);
        Box::pin(async move {
            match asked.await {
                Ok(raw) => Ok(clean(raw, &self.mask)),
                Err(failure) => Err(LineError {
                    error: clean_error(failure.error, &self.mask),
                    delivery: failure.delivery,
                }),
            }
        })
    }

    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), LineError>> {
        self.line.notify(method, params)
    }

    fn answer(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), LineError> {
        self.line.answer(id, outcome)
    }

    fn touch(&self, id: u64) -> bool {
        self.line.touch(id)
    }

    fn speak(&self, dialect: Dialect) {
        self.line.speak(dialect);
    }

    fn medium(&self) -> Medium {
        self.line.medium()
    }

    fn diagnosis(&self) -> Diagnosis {
        self.line.diagnosis()
    }

    fn close(&self) -> BoxFuture<'_, Ending> {
        self.line.close()
    }
}

/// What a server may have put its own words into.
fn clean_error(error: TransportError, mask: &Mask) -> TransportError {
    let text = |it: String| mask.clean(&it).into_owned();
    match error {
        TransportError::JsonRpc(refusal) => TransportError::JsonRpc(clean_refusal(refusal, mask)),
        TransportError::Parse(reason) => TransportError::Parse(text(reason)),
        TransportError::Status { code, text: said } => {
            TransportError::Status { code, text: text(said) }
        }
        TransportError::Unauthorized(AuthError::Refused { reason }) => {
            TransportError::Unauthorized(AuthError::Refused { reason: text(reason) })
        }
        other => other,
    }
}

/// The same for an error that a server answers with.
pub(crate) fn clean_refusal(refusal: JsonRpcError, mask: &Mask) -> JsonRpcError {
    let data = refusal.data.map(|it| {
        let cleaned = mask.clean_json(Bytes::from(it.to_string()));
        serde_json::from_slice(&cleaned).unwrap_or(it)
    });
    let message = mask.clean(&refusal.message).into_owned();
    JsonRpcError { message, data, ..refusal }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mask() -> Mask {
        let mask = Mask::default();
        mask.learn("key", "s3cr3t");
        mask
    }

    #[test]
    fn errors_are_cleaned_and_stay_what_they_are() {
        let check = |error: TransportError, expected: &str| {
            assert_eq!(clean_error(error, &mask()).to_string(), expected);
        };
        let refusal = JsonRpcError {
            data: Some(json!({"s3cr3t": ["s3cr3t"]})),
            ..JsonRpcError::new(-7, "no s3cr3t")
        };
        let cleaned = clean_refusal(refusal.clone(), &mask());
        assert_eq!(cleaned.code, -7);
        assert_eq!(cleaned.data, Some(json!({"[secret key]": ["[secret key]"]})));
        let shown = refusal.to_string().replace("s3cr3t", "[secret key]");
        check(TransportError::JsonRpc(refusal), &shown);
        check(TransportError::Parse("s3cr3t".to_owned()), "malformed answer: [secret key]");
        check(
            TransportError::Status { code: 500, text: "s3cr3t".to_owned() },
            "the server answered with HTTP status 500: [secret key]",
        );
        check(TransportError::Timeout(5), "request timed out after 5ms");
    }
}
