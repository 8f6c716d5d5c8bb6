//! What happened lately, in order, for any number of readers who may come back.
//!
//! Readers have no queues: each remembers the number of the event it wants next and looks it up here. Whoever was
//! too slow finds it gone, and is told how many are missing.
//!
//! **Invariant:** telling never waits, and memory is bounded however slow the readers are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::api_event::{Happening, Told};

/// How many events are kept.
const CAPACITY: usize = 4096;

/// The latest events.
#[derive(Debug)]
pub(crate) struct Feed {
    /// Tells events of this daemon from those of one that ran before.
    run: Arc<str>,
    ring: Mutex<Ring>,
    /// The number of the next event.
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<Arc<Told>>,
}

/// Where a reader is.
#[derive(Debug)]
pub(crate) struct Reader {
    feed: Arc<Feed>,
    next: u64,
    news: watch::Receiver<u64>,
    /// Whether the reader comes from an earlier run, and does not know yet what it missed.
    stranger: bool,
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Portion {
    /// An event and its number.
    Event(u64, Arc<Told>),
    /// So many events are gone. `None` if they were of an earlier run and nobody has counted them.
    Missed(u64, Option<u64>),
}

impl Feed {
    pub(crate) fn new(run: &str) -> Self {
        Self { run: run.into(), ring: Mutex::default(), next: watch::Sender::new(0) }
    }

    pub(crate) fn tell(&self, time_ms: u64, what: Happening) {
        let mut ring = self.ring();
        ring.events.push_back(Arc::new(Told { time_ms, what }));
        if ring.events.len() > CAPACITY {
            ring.events.pop_front();
            ring.first += 1;
        }
        let next = ring.first + ring.events.len() as u64;
        drop(ring);
        self.next.send_replace(next);
    }

    /// The id under which an event is known outside.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.run)
    }

    /// Reads on behind the event with this id, or from now on if there is none.
    pub(crate) fn read(self: &Arc<Self>, last: Option<&str>) -> Reader {
        let news = self.next.subscribe();
        let now = *news.borrow();
        let (next, stranger) = match last.map(|it| resume(&self.run, it)) {
            None => (now, false),
            Some(Some(last)) if last < now => (last + 1, false),
            // Another run, or a number that we never gave.
            Some(_) => (0, true),
        };
        Reader { feed: Arc::clone(self), next, news, stranger }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of an event of this run.
fn resume(run: &str, id: &str) -> Option<u64> {
    id.strip_prefix(run)?.strip_prefix('-')?.parse().ok()
}

impl Reader {
    /// What comes next, as soon as there is something. `None` once the feed is gone.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Portion> {
        loop {
            self.news.borrow_and_update();
            if let Some(portion) = self.take() {
                return Some(portion);
            }
            self.news.changed().await.ok()?;
        }
    }

    fn take(&mut self) -> Option<Portion> {
        let ring = self.feed.ring();
        if std::mem::take(&mut self.stranger) {
            self.next = ring.first;
            return Some(Portion::Missed(ring.first.saturating_sub(1), None));
        }
        if self.next < ring.first {
            let missed = ring.first - self.next;
            self.next = ring.first;
            return Some(Portion::Missed(ring.first - 1, Some(missed)));
        }
        let place = usize::try_from(self.next - ring.first).ok()?;
        let event = Arc::clone(ring.events.get(place)?);
        self.next += 1;
        Some(Portion::Event(self.next - 1, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(feed: &Feed, number: u64) {
        feed.tell(number, Happening::Missed { n_events: number });
    }

    /// Everything that is there for a reader, in short.
    fn all(reader: &mut Reader) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(portion) = reader.take() {
            found.push(match portion {
                Portion::Event(number, told) => format!("{number}@{}", told.time_ms),
                Portion::Missed(last, Some(n)) => format!("missed {n} to {last}"),
                Portion::Missed(last, None) => format!("missed some to {last}"),
            });
        }
        found
    }

    #[test]
    fn a_reader_goes_on_where_it_was() {
        let feed = Arc::new(Feed::new("run"));
        tell(&feed, 10);
        let mut reader = feed.read(None);
        assert_eq!(all(&mut reader), Vec::<String>::new());
        tell(&feed, 11);
        tell(&feed, 12);
        assert_eq!(all(&mut reader), ["1@11", "2@12"]);
        assert_eq!(all(&mut feed.read(Some(&feed.id(1)))), ["2@12"]);
        assert_eq!(all(&mut feed.read(Some(&feed.id(2)))), Vec::<String>::new());
    }

    #[test]
    fn who_comes_from_elsewhere_is_told_and_gets_what_there_is() {
        let feed = Arc::new(Feed::new("run"));
        tell(&feed, 10);
        for last in ["", "old-0", "run-1", "run-x", "run-99999999999999999999", "run"] {
            assert_eq!(all(&mut feed.read(Some(last))), ["missed some to 0", "0@10"], "{last}");
        }
    }

    #[test]
    fn a_slow_reader_is_told_how_many_it_missed() {
        let feed = Arc::new(Feed::new("run"));
        let mut reader = feed.read(None);
        for number in 0..CAPACITY as u64 + 3 {
            tell(&feed, number);
        }
        let found = all(&mut reader);
        assert_eq!(found.len(), CAPACITY + 1);
        assert_eq!(found[..2], ["missed 3 to 2", "3@3"]);
    }

    #[tokio::test]
    async fn a_reader_waits_for_news_and_ends_with_nothing_lost() {
        let feed = Arc::new(Feed::new("run"));
        let mut reader = feed.read(None);
        let told = async { tell(&feed, 5) };
        let (portion, ()) = tokio::join!(reader.next(), told);
        assert!(matches!(portion, Some(Portion::Event(0, _))));
    }
}
