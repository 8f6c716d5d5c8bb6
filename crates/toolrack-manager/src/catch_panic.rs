//! Work in which code of the program around us runs, and may panic.
//!
//! **Invariant:** a panic is a failure like any other, and not the silent end of whoever does the work.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::failure::{Failure, FailureKind};

/// Does `work` to its end, or says that it has panicked. What the panic said is for its hook, which has shown it.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let mut work = pin!(work);
    // What has panicked is not looked at again, so nobody sees it half done.
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(_payload) => Poll::Ready(Err(panicked())),
    })
    .await
}

fn panicked() -> Failure {
    let reason = "connecting it panicked, perhaps in the program's own credentials or handler";
    Failure::new(FailureKind::Internal, reason).hinting("look for the panic in its error output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_failure() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let work = async {
            tokio::task::yield_now().await;
            panic!("the program is at fault");
        };
        assert_eq!(caught::<()>(work).await, Err(panicked()));
    }
}
