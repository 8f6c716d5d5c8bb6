//! The error codes that the servers of this crate answer with.

pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// Legacy only; 2026-07-28 answers `INVALID_PARAMS` for a resource that is not there.
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
/// The headers of an HTTP request do not say what its body says.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
pub(crate) const MISSING_CLIENT_CAPABILITY: i64 = -32021;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// Codes of the old SDKs for a request without a session, and for a session that is gone.
pub(crate) const NO_SESSION: i64 = -32000;
pub(crate) const SESSION_NOT_FOUND: i64 = -32001;
