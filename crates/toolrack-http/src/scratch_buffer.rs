//! What is written for one exchange. Its memory serves the next one on the same thread.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// What one thread keeps at most.
const MAX_SPARES: usize = 16;
const SPARE_BYTES: usize = 8 << 10;

thread_local! {
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that go out once, or several times.
pub(crate) struct Draft(Vec<u8>);

impl Draft {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let spare = SPARES.try_with(|spares| spares.borrow_mut().pop()).ok().flatten();
        Self(spare.unwrap_or_default())
    }
}

impl Deref for Draft {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.0.capacity() > SPARE_BYTES {
            return;
        }
        self.0.clear();
        let bytes = std::mem::take(&mut self.0);
        // A thread that is ending keeps nothing.
        let _is_kept = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < MAX_SPARES {
                spares.push(bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(n_bytes: usize) -> Draft {
        let mut draft = Draft::new();
        draft.resize(n_bytes, b'x');
        draft
    }

    #[test]
    fn the_memory_of_one_serves_the_next() {
        drop(written(1_000));
        let next = Draft::new();
        assert!(next.is_empty() && next.capacity() >= 1_000);
    }

    #[test]
    fn a_thread_keeps_little() {
        drop(written(SPARE_BYTES + 1));
        assert!(SPARES.with_borrow(Vec::is_empty), "a large one is let go");
        let many: Vec<Draft> = (0..MAX_SPARES + 5).map(|_| written(10)).collect();
        drop(many);
        assert_eq!(SPARES.with_borrow(Vec::len), MAX_SPARES);
    }
}
