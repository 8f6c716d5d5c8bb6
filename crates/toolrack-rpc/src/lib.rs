//! JSON-RPC 2.0: messages kept raw, and the table of open requests.
