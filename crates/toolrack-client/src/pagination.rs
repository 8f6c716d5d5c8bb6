//! Lists that come page by page, gathered under guards, and kept as long as the server allows.
//!
//! **Invariant:** gathering ends, whatever cursors a server gives, and a list that is kept is never
//! replaced by an older one.
//!
//! When to fetch a list again after the server has said that it changed.
//!
//! Changes are gathered for a moment, fetches keep a distance, and only one runs at a time. Nothing
//! here knows a clock: moments come from outside.
//!
//! **Invariant:** every change is followed by a fetch that began after it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use toolrack_mcp::{
    ErrorCode, ListKind, ListPromptsParams, ListResourceTemplatesParams, ListResourcesParams,
    ListToolsParams, Listed, Page, Prompt, Resource, ResourceTemplate, Skipped, Tool,
};
use toolrack_transport::{BoxFuture, Patience};

use crate::error::CallError;
use crate::session::{Session, lock};
use crate::timeouts::{Limits, deadline};

/// The longest that a list is used without asking again, whatever its server allows.
const LONGEST: Duration = Duration::from_hours(24);

/// A whole list, as far as it could be read.
#[derive(Debug, Clone)]
pub struct Listing<T> {
    /// The entries, in the server's order.
    pub items: Vec<T>,
    /// The entries that could not be read.
    pub skipped: Vec<Skipped>,
    /// Why the list ends before the server said so.
    pub cut: Option<Cut>,
}

/// Why a list ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// The server gave a cursor twice, which would go on forever.
    RepeatedCursor,
    /// There were more pages than are fetched.
    TooManyPages,
    /// There were more entries than are kept.
    TooManyEntries,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self { items: Vec::new(), skipped: Vec::new(), cut: None }
    }
}

/// The lists of one conversation as they were fetched last.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    tools: Mutex<Kept<Tool>>,
    prompts: Mutex<Kept<Prompt>>,
    resources: Mutex<Kept<Resource>>,
    templates: Mutex<Kept<ResourceTemplate>>,
}

/// A list that was fetched, and how long it may be used.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    listing: Arc<Listing<T>>,
    /// Changes that had been told when the fetch began.
    changes: u64,
    fresh_until: Option<Instant>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { listing: Arc::default(), changes: 0, fresh_until: None }
    }
}

/// Something that is listed page by page.
pub(crate) trait Paged: Listed + Send + Sync + 'static {
    /// Which changes make a list of these stale.
    const KIND: ListKind;

    /// Asks for one page.
    fn page<'a>(
        session: &'a Session,
        cursor: Option<&'a str>,
        patience: Patience,
    ) -> BoxFuture<'a, Result<Page<Self>, CallError>>;

    fn shelf(shelf: &Shelf) -> &Mutex<Kept<Self>>;

    /// Leaves out what must not be shown on this kind of line.
    fn sift(_session: &Session, _listing: &mut Listing<Self>) {}
}

macro_rules! paged {
    ($($item:ident $params:ident $kind:ident $shelf:ident $(, $sift:item)?;)*) => {
        $(impl Paged for $item {
            const KIND: ListKind = ListKind::$kind;

            fn page<'a>(
                session: &'a Session,
                cursor: Option<&'a str>,
                patience: Patience,
            ) -> BoxFuture<'a, Result<Page<Self>, CallError>> {
                let params = $params { cursor };
                Box::pin(async move { session.ask(&params, patience).await })
            }

            fn shelf(shelf: &Shelf) -> &Mutex<Kept<Self>> {
                &shelf.$shelf
            }

            $($sift)?
        })*
    };
}

paged! {
    Tool ListToolsParams Tools tools, fn sift(session: &Session, listing: &mut Listing<Self>) {
        if session.is_stateless() {
            session.mirrors.sift(listing);
        }
        session.note_tasks(listing);
    };
    Prompt ListPromptsParams Prompts prompts;
    Resource ListResourcesParams Resources resources;
    ResourceTemplate ListResourceTemplatesParams Resources templates;
}

impl Session {
    /// The list as it was fetched last, empty if it never was.
    pub(crate) fn kept<T: Paged>(&self) -> Arc<Listing<T>> {
        Arc::clone(&lock(T::shelf(&self.shelf)).listing)
    }

    /// The kept list if the server says that it is still good, or else a new one.
    ///
    /// Spec 2026-07-28, caching: fresh for as long as the hint says, unless a change is told. Legacy
    /// servers give no hint, so their lists are always fetched.
    pub(crate) async fn list<T: Paged>(&self) -> Result<Arc<Listing<T>>, CallError> {
        {
            let kept = lock(T::shelf(&self.shelf));
            let in_time = kept.fresh_until.is_some_and(|until| Instant::now() < until);
            if in_time && kept.changes == self.mailbox.changes(T::KIND) {
                return Ok(Arc::clone(&kept.listing));
            }
        }
        self.fetch().await
    }

    /// Fetches the whole list and keeps it. All pages together get the time of one call.
    pub(crate) async fn fetch<T: Paged>(&self) -> Result<Arc<Listing<T>>, CallError> {
        let changes = self.mailbox.changes(T::KIND);
        let deadline = deadline(self.timeouts.call);
        let mut restarts = Restarts::Left;
        let gathered = loop {
            match self.gather::<T>(deadline, restarts).await? {
                Some(gathered) => break gathered,
                None => restarts = Restarts::Used,
            }
        };
        let ttl = gathered.ttl.unwrap_or_default().min(LONGEST);
        let fresh_until = (!ttl.is_zero()).then(|| Instant::now() + ttl);
        let mut listing = gathered.listing;
        T::sift(self, &mut listing);
        let listing = Arc::new(listing);
        let mut kept = lock(T::shelf(&self.shelf));
        // Only tools are shown when they are not fresh, so the others need not be held either.
        let is_wanted = T::KIND == ListKind::Tools || fresh_until.is_some();
        if is_wanted && kept.changes <= changes {
            *kept = Kept { listing: Arc::clone(&listing), changes, fresh_until };
        }
        Ok(listing)
    }

    /// Fetches page after page. `None` if the server did not know its own cursor any more.
    async fn gather<T: Paged>(
        &self,
        deadline: Instant,
        restarts: Restarts,
    ) -> Result<Option<Gathering<T>>, CallError> {
        let mut gathering = Gathering::new(&self.limits);
        let mut cursor: Option<String> = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let page = match T::page(self, cursor.as_deref(), Patience::exactly(left)).await {
                // Spec 2025-11-25, pagination §Error Handling: a bad cursor is refused like this.
                Err(CallError::Refused(error))
                    if ErrorCode(error.code) == ErrorCode::INVALID_PARAMS
                        && cursor.is_some()
                        && restarts == Restarts::Left =>
                {
                    return Ok(None);
                }
                Err(CallError::TimedOut { delivery, .. }) => {
                    return Err(CallError::TimedOut { waited: self.timeouts.call, delivery });
                }
                outcome => outcome?,
            };
            cursor = gathering.add(page);
            if cursor.is_none() {
                return Ok(Some(gathering));
            }
        }
    }
}

/// Whether a list may still be begun again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restarts {
    Left,
    Used,
}

/// A list that is being put together.
#[derive(Debug)]
struct Gathering<T> {
    listing: Listing<T>,
    seen: HashSet<String>,
    n_pages: usize,
    /// The shortest time that any page may be kept.
    ttl: Option<Duration>,
    max_pages: usize,
    max_entries: usize,
}

impl<T> Gathering<T> {
    fn new(limits: &Limits) -> Self {
        Self {
            listing: Listing::default(),
            seen: HashSet::new(),
            n_pages: 0,
            ttl: None,
            max_pages: limits.pages,
            max_entries: limits.entries,
        }
    }

    /// Adds a page and says where the next one begins. `None` is the end.
    fn add(&mut self, page: Page<T>) -> Option<String> {
        let before = self.listing.items.len() + self.listing.skipped.len();
        self.listing.items.extend(page.items);
        let skipped = page.skipped.into_iter();
        let moved = skipped.map(|it| Skipped { index: before + it.index, ..it });
        self.listing.skipped.extend(moved);
        self.n_pages += 1;
        self.ttl = Some(self.ttl.map_or(page.cache.ttl, |ttl| ttl.min(page.cache.ttl)));
        let room = self.max_entries.saturating_sub(self.listing.items.len());
        if self.listing.items.len() > self.max_entries {
            self.listing.items.truncate(self.max_entries);
            return self.cut(Cut::TooManyEntries);
        }
        // An empty cursor is a cursor.
        let cursor = page.next_cursor?;
        if !self.seen.insert(cursor.clone()) {
            return self.cut(Cut::RepeatedCursor);
        }
        if room == 0 {
            return self.cut(Cut::TooManyEntries);
        }
        if self.n_pages >= self.max_pages {
            return self.cut(Cut::TooManyPages);
        }
        Some(cursor)
    }

    fn cut(&mut self, reason: Cut) -> Option<String> {
        tracing::warn!(?reason, n_pages = self.n_pages, "a list was cut short");
        self.listing.cut = Some(reason);
        None
    }
}

/// How long changes are gathered before a fetch.
const GATHER: Duration = Duration::from_millis(200);
/// The least time between the beginnings of two fetches.
const DISTANCE: Duration = Duration::from_secs(2);

/// What is known about one list.
#[derive(Debug, Default)]
pub(crate) struct Refresh {
    due: Option<Instant>,
    last: Option<Instant>,
    running: bool,
    /// The list changed while a fetch was running, so that fetch may have missed it.
    again: bool,
}

impl Refresh {
    /// The server said that the list changed.
    pub(crate) fn noticed(&mut self, now: Instant) {
        if self.running {
            self.again = true;
            return;
        }
        let earliest = self.last.map_or(now, |last| last + DISTANCE);
        self.due.get_or_insert((now + GATHER).max(earliest));
    }

    /// When the next fetch should begin.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A fetch begins.
    pub(crate) fn began(&mut self, now: Instant) {
        self.due = None;
        self.last = Some(now);
        self.running = true;
    }

    /// The fetch has ended, however it went.
    pub(crate) fn ended(&mut self, now: Instant) {
        self.running = false;
        if std::mem::take(&mut self.again) {
            self.noticed(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use toolrack_mcp::CacheHint;

    use super::*;

    /// Plays pages, given as entries and next cursor, and says how many were taken, how many entries
    /// there are, and why the list was cut.
    #[track_caller]
    fn check(pages: &[(usize, Option<&str>)], expected: (usize, usize, Option<Cut>)) {
        let limits = Limits { pages: 4, entries: 10, ..Limits::default() };
        let mut gathering = Gathering::new(&limits);
        for (n_items, cursor) in pages {
            let page = Page {
                items: vec![(); *n_items],
                next_cursor: cursor.map(str::to_owned),
                skipped: Vec::new(),
                cache: CacheHint::default(),
            };
            if gathering.add(page).is_none() {
                break;
            }
        }
        let listing = &gathering.listing;
        assert_eq!((gathering.n_pages, listing.items.len(), listing.cut), expected, "{pages:?}");
    }

    /// Protocol facts §14.5.
    #[test]
    fn gathering_ends_whatever_the_cursors() {
        check(&[(2, None)], (1, 2, None));
        check(&[(2, Some("")), (2, Some("a")), (1, None)], (3, 5, None));
        check(&[(2, Some("a")), (2, Some("a")), (1, None)], (2, 4, Some(Cut::RepeatedCursor)));
        check(&[(1, Some("")), (1, Some("")), (1, None)], (2, 2, Some(Cut::RepeatedCursor)));
        let endless: Vec<_> = ["a", "b", "c", "d", "e"].map(|it| (0, Some(it))).to_vec();
        check(&endless, (4, 0, Some(Cut::TooManyPages)));
        check(&[(6, Some("a")), (6, None)], (2, 10, Some(Cut::TooManyEntries)));
        check(&[(10, Some("a")), (1, None)], (1, 10, Some(Cut::TooManyEntries)));
        check(&[(10, None)], (1, 10, None));
    }

    #[test]
    fn skipped_entries_keep_their_place_in_the_whole() {
        let limits = Limits::default();
        let mut gathering = Gathering::new(&limits);
        for (items, cursor) in [(vec![1, 2], Some("a")), (vec![3], None)] {
            let skipped = vec![Skipped { index: 1, name: None, reason: "odd".to_owned() }];
            let next_cursor = cursor.map(str::to_owned);
            let ttl = Duration::from_secs(u64::try_from(items.len()).unwrap());
            let cache = CacheHint { ttl, ..CacheHint::default() };
            gathering.add(Page { items, next_cursor, skipped, cache });
        }
        let places: Vec<usize> = gathering.listing.skipped.iter().map(|it| it.index).collect();
        assert_eq!((places.as_slice(), gathering.ttl), (&[1, 4][..], Some(Duration::from_secs(1))));
    }
}

#[cfg(test)]
mod list_debounce_tests {
    use super::*;

    /// Plays changes at the given times against fetches that take `fetch` each, and says when the
    /// fetches began. All in milliseconds.
    #[track_caller]
    fn check(changes: &[u64], fetch: u64, expected: &[u64]) {
        const END: u64 = 20_000;
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut refresh = Refresh::default();
        let mut began = Vec::new();
        let mut done = None;
        for now in 0..END {
            if done == Some(now) {
                refresh.ended(at(now));
            }
            if changes.contains(&now) {
                refresh.noticed(at(now));
            }
            if refresh.due().is_some_and(|due| due <= at(now)) {
                refresh.began(at(now));
                began.push(now);
                done = Some(now + fetch);
            }
        }
        assert_eq!(began, expected, "{changes:?} {fetch}");
    }

    #[test]
    fn changes_are_gathered_and_fetches_keep_their_distance() {
        check(&[], 10, &[]);
        check(&[0], 10, &[200]);
        check(&[0, 50, 199], 10, &[200]);
        check(&[0, 300], 10, &[200, 2200]);
        check(&[0, 300, 5000], 10, &[200, 2200, 5200]);
    }

    #[test]
    fn a_change_during_a_fetch_is_not_lost() {
        check(&[0, 205], 10, &[200, 2200]);
        check(&[0, 250, 260], 3000, &[200, 3400]);
    }

    #[test]
    fn a_flood_of_changes_is_served_steadily() {
        let flood: Vec<u64> = (0..6000).step_by(7).collect();
        check(&flood, 10, &[200, 2200, 4200, 6200]);
    }
}
