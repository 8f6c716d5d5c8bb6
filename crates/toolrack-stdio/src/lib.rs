//! A line to a child process, and custody of that process and all its descendants.
