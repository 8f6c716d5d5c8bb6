//! Scripted servers and what tests of several crates share.
