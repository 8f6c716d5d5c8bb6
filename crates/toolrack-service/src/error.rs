//! What is told to a caller when something cannot be done: a code, a message and the field it is about.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why something could not be done, with every fault that was found.
///
/// **Invariant:** there is at least one fault, and no text of one holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", summary(faults))]
pub struct ServiceError {
    faults: Vec<ServiceFault>,
}

/// One fault, in the shape in which it leaves the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFault {
    /// What kind of fault it is.
    pub code: ErrorCode,
    /// One clause for a person.
    pub message: String,
    /// Where it is in the document that the caller gave, such as `package.identifier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What happened in detail, where the contract gives `message` its words. `hint` begins with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The kinds of fault. Each asks for its own reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The input has to be changed.
    ValidationError,
    /// There is no such thing.
    NotFound,
    /// It does not fit to how things are now.
    Conflict,
    /// Something that is needed does not run.
    ServiceUnavailable,
    /// Somebody did not answer, or not in time.
    NetworkError,
    /// A login is needed.
    Unauthorized,
    /// A rule forbids it.
    Denied,
    /// A fault of our own.
    Internal,
}

impl ErrorCode {
    /// As it is written outside of this program.
    pub fn word(self) -> &'static str {
        match self {
            Self::ValidationError => "VALIDATION_ERROR",
            Self::NotFound => "NOT_FOUND",
            Self::Conflict => "CONFLICT",
            Self::ServiceUnavailable => "SERVICE_UNAVAILABLE",
            Self::NetworkError => "NETWORK_ERROR",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::Denied => "DENIED",
            Self::Internal => "INTERNAL",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl ServiceFault {
    /// A fault of no particular field.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None, hint: None, reason: None }
    }

    /// Says which field it is about.
    #[must_use]
    pub fn at(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// In words of the contract, with what happened in detail and what to do next.
    pub(crate) fn in_words(code: ErrorCode, words: &str, reason: &str, hint: Option<&str>) -> Self {
        // Whoever knows the contract alone finds the reason in the hint.
        let whole = hint.map_or_else(|| reason.to_owned(), |hint| format!("{reason}; {hint}"));
        Self { reason: Some(reason.to_owned()), ..Self::new(code, words).hint(whole) }
    }

    /// The same in its own words: the reason is the message, and the hint says what to do and nothing else.
    #[must_use]
    pub fn in_detail(self) -> Self {
        let Some(reason) = self.reason else { return self };
        let rest = self.hint.as_deref().and_then(|it| it.strip_prefix(reason.as_str()));
        let hint = rest.and_then(|it| it.strip_prefix("; ")).map(str::to_owned);
        Self { message: reason, hint, reason: None, ..self }
    }
}

impl ServiceError {
    /// An error with one fault and no field.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ServiceFault::new(code, message).into()
    }

    /// All faults at once, or `Ok` if there are none.
    ///
    /// # Errors
    ///
    /// When there is a fault.
    pub fn unless_empty(faults: Vec<ServiceFault>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self { faults }) }
    }

    /// The same faults, all of one field.
    #[must_use]
    pub fn at(self, field: &str) -> Self {
        Self { faults: self.faults.into_iter().map(|it| it.at(field)).collect() }
    }

    /// Everything that was found.
    pub fn faults(&self) -> &[ServiceFault] {
        &self.faults
    }

    /// The code of the first fault.
    pub fn code(&self) -> ErrorCode {
        self.faults.first().map_or(ErrorCode::Internal, |fault| fault.code)
    }

    /// What to do next, if it is known.
    pub fn hint(&self) -> Option<&str> {
        self.faults.iter().find_map(|fault| fault.hint.as_deref())
    }
}

impl From<ServiceFault> for ServiceError {
    fn from(fault: ServiceFault) -> Self {
        Self { faults: vec![fault] }
    }
}

impl fmt::Display for ServiceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.field.as_ref().map_or(Ok(()), |field| write!(f, " (`{field}`)"))
    }
}

fn summary(faults: &[ServiceFault]) -> String {
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_told_in_the_shape_of_the_contract() {
        let faults = vec![
            ServiceFault::new(ErrorCode::ValidationError, "Name is required").at("name"),
            ServiceFault::new(ErrorCode::NotFound, "Package not found").hint("look it up"),
        ];
        let error = ServiceError::unless_empty(faults).unwrap_err();
        assert_eq!(error.to_string(), "Name is required (`name`); Package not found");
        assert_eq!(error.code(), ErrorCode::ValidationError);
        assert_eq!(error.hint(), Some("look it up"));
        assert_eq!(
            serde_json::to_string(&error.faults()[0]).unwrap(),
            r#"{"code":"VALIDATION_ERROR","message":"Name is required","field":"name"}"#
        );
        assert_eq!(ServiceError::unless_empty(Vec::new()), Ok(()));
    }

    #[track_caller]
    fn check_detail(fault: ServiceFault, expected: (&str, Option<&str>)) {
        let told = fault.in_detail();
        assert_eq!((told.message.as_str(), told.hint.as_deref()), expected);
        assert_eq!(told.reason, None);
    }

    #[test]
    fn what_the_contract_words_can_be_told_in_detail() {
        let fault = |hint| ServiceFault::in_words(ErrorCode::NotFound, "Gone", "no `x`", hint);
        assert_eq!(fault(Some("look")).hint.as_deref(), Some("no `x`; look"));
        check_detail(fault(Some("look")), ("no `x`", Some("look")));
        check_detail(fault(None), ("no `x`", None));
        let plain = ServiceFault::new(ErrorCode::NotFound, "gone").hint("look");
        check_detail(plain, ("gone", Some("look")));
    }
}
