//! What is edited is edited, and nothing else.
