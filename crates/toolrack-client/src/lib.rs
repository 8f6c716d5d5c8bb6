//! One server, typed.
