//! Pagination, list cache, and debounce of list refreshes.
//!
//! [`ListDebounce`] decides when to fetch a changed list again: changes are collected for a moment, fetches
//! keep a minimum interval, and one fetch runs at a time. It is pure: callers pass in the time.
//!
//! **Invariant:** pagination terminates for any cursors a server returns. A cached list is never replaced by
//! an older one. Every change is followed by a fetch that started after it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolrack_mcp::{
    ErrorCode, ListEntry, ListKind, ListPage, ListParams, Prompt, Resource, ResourceTemplate,
    SkippedEntry, Tool, n_skipped,
};
use toolrack_transport::deadline_after;

use crate::client::CallOptions;
use crate::error::CallError;
use crate::session::Session;
use crate::timeouts::Limits;

/// Upper limit of a server's TTL.
const MAX_TTL: Duration = Duration::from_hours(24);

/// A complete list, as far as it was readable.
#[derive(Debug, Clone)]
pub struct List<T> {
    /// Entries in the server's order.
    pub items: Vec<T>,
    /// Unreadable entries.
    pub skipped: Vec<SkippedEntry>,
    /// Why the list is incomplete.
    pub truncated: Option<Truncated>,
}

/// Why a list is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Truncated {
    /// The server returned a cursor twice, which would loop forever.
    RepeatedCursor,
    /// More pages than [`Limits::pages`](crate::Limits::pages).
    TooManyPages,
    /// More entries than [`Limits::entries`](crate::Limits::entries).
    TooManyEntries,
    /// More bytes than [`Limits::list_bytes`](crate::Limits::list_bytes).
    TooManyBytes,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { items: Vec::new(), skipped: Vec::new(), truncated: None }
    }
}

/// The most recent lists of one session.
#[derive(Debug, Default)]
pub(crate) struct ListCache {
    tools: Mutex<CachedList<Tool>>,
    prompts: Mutex<CachedList<Prompt>>,
    resources: Mutex<CachedList<Resource>>,
    templates: Mutex<CachedList<ResourceTemplate>>,
}

/// A cached list and its expiry.
#[derive(Debug)]
pub(crate) struct CachedList<T> {
    list: Arc<List<T>>,
    /// Change counter when the fetch started.
    changes: u64,
    fresh_until: Option<Instant>,
}

impl<T> Default for CachedList<T> {
    fn default() -> Self {
        Self { list: Arc::default(), changes: 0, fresh_until: None }
    }
}

/// An entry type with a paginated list method.
pub(crate) trait Paginated: ListEntry + Send + Sync + 'static {
    /// The list whose changes invalidate the cache.
    const KIND: ListKind;

    fn cache_slot(cache: &ListCache) -> &Mutex<CachedList<Self>>;

    /// Removes entries that this transport must not offer.
    fn filter(_session: &Session, _list: &mut List<Self>) {}
}

macro_rules! paginated {
    ($($item:ident $kind:ident $slot:ident $(, $filter:item)?;)*) => {
        $(impl Paginated for $item {
            const KIND: ListKind = ListKind::$kind;

            fn cache_slot(cache: &ListCache) -> &Mutex<CachedList<Self>> {
                &cache.$slot
            }

            $($filter)?
        })*
    };
}

paginated! {
    Tool Tools tools, fn filter(session: &Session, list: &mut List<Self>) {
        if session.is_stateless() {
            session.param_headers.update(list);
        }
        // After the headers, which may remove tools.
        session.update_task_tools(list);
    };
    Prompt Prompts prompts;
    Resource Resources resources;
    ResourceTemplate Resources templates;
}

impl Session {
    /// The cached list, empty if never fetched.
    pub(crate) fn cached_list<T: Paginated>(&self) -> Arc<List<T>> {
        Arc::clone(&T::cache_slot(&self.list_cache).lock().list)
    }

    /// The cached list while it is fresh, else a new one.
    ///
    /// Spec 2026-07-28, caching: fresh for the server's TTL, until a change notification. Legacy servers send no
    /// TTL, so their lists are always fetched.
    pub(crate) async fn list<T: Paginated>(&self) -> Result<Arc<List<T>>, CallError> {
        {
            let cached = T::cache_slot(&self.list_cache).lock();
            let is_fresh = cached.fresh_until.is_some_and(|until| Instant::now() < until);
            if is_fresh && cached.changes == self.incoming.changes(T::KIND) {
                return Ok(Arc::clone(&cached.list));
            }
        }
        self.fetch_list().await
    }

    /// Fetches the whole list and caches it. All pages share the timeout of one call.
    pub(crate) async fn fetch_list<T: Paginated>(&self) -> Result<Arc<List<T>>, CallError> {
        // Read before the first request, so that a change during the fetch leaves the cached list stale.
        let changes = self.incoming.changes(T::KIND);
        // One deadline for all pages: a timeout per page would let 1,000 slow pages take hours.
        let deadline = deadline_after(Instant::now(), self.timeouts.call);
        let ListBuilder { mut list, ttl, .. } = self.fetch_pages::<T>(deadline).await?;
        let fresh_until = (!ttl.is_zero()).then(|| Instant::now() + ttl);
        T::filter(self, &mut list);
        let list = Arc::new(list);
        let mut cached = T::cache_slot(&self.list_cache).lock();
        // Only tools are read from the cache after expiry, so other expired lists need not be kept.
        let is_cacheable = T::KIND == ListKind::Tools || fresh_until.is_some();
        // A slow fetch must not replace the list of a later fetch.
        if is_cacheable && cached.changes <= changes {
            *cached = CachedList { list: Arc::clone(&list), changes, fresh_until };
        }
        Ok(list)
    }

    /// Fetches page after page.
    async fn fetch_pages<T: Paginated>(
        &self,
        deadline: Instant,
    ) -> Result<ListBuilder<T>, CallError> {
        let mut builder = ListBuilder::new(self.limits);
        let mut cursor: Option<String> = None;
        let mut is_restarted = false;
        loop {
            let options = CallOptions::within(deadline.saturating_duration_since(Instant::now()));
            let params = ListParams::<T>::new(cursor.as_deref());
            let page = match Box::pin(self.call(&params, &options)).await {
                // Spec 2025-11-25, pagination §Error Handling: the error for an invalid cursor. A server that
                // no longer knows its own cursor gets one restart.
                Err(CallError::Refused(error))
                    if ErrorCode(error.code) == ErrorCode::INVALID_PARAMS
                        && cursor.is_some()
                        && !is_restarted =>
                {
                    is_restarted = true;
                    (builder, cursor) = (ListBuilder::new(self.limits), None);
                    continue;
                }
                // The last page got only the rest of the time; the error names the whole.
                Err(CallError::TimedOut { delivery, .. }) => {
                    return Err(CallError::TimedOut { waited: self.timeouts.call, delivery });
                }
                outcome => outcome?,
            };
            cursor = builder.add(page);
            if cursor.is_none() {
                return Ok(builder);
            }
        }
    }
}

/// Malformed entries of one list that are described. Many pages with few of them would otherwise take many times the
/// size of the pages.
const MAX_DESCRIBED: usize = 100;

/// A list under construction.
#[derive(Debug)]
struct ListBuilder<T> {
    list: List<T>,
    cursors: HashSet<String>,
    n_pages: usize,
    /// Bytes of all pages, as received.
    n_bytes: usize,
    /// Shortest TTL of all pages.
    ttl: Duration,
    limits: Limits,
}

impl<T> ListBuilder<T> {
    fn new(limits: Limits) -> Self {
        // Limited, so that no server keeps its list in the cache for good.
        Self {
            list: List::default(),
            cursors: HashSet::new(),
            n_pages: 0,
            n_bytes: 0,
            ttl: MAX_TTL,
            limits,
        }
    }

    /// Adds a page and returns the cursor of the next one, or `None` at the end.
    fn add(&mut self, page: ListPage<T>) -> Option<String> {
        self.n_bytes = self.n_bytes.saturating_add(page.n_bytes);
        // The page is dropped whole, so that the list never takes more than the limit. The first page is kept:
        // its message has a limit of its own.
        if self.n_bytes > self.limits.list_bytes && self.n_pages > 0 {
            return self.truncate(Truncated::TooManyBytes);
        }
        let before = self.list.items.len() + n_skipped(&self.list.skipped);
        self.list.items.extend(page.items);
        for entry in page.skipped {
            self.skip(SkippedEntry { index: before + entry.index, ..entry });
        }
        self.n_pages += 1;
        // The list is fresh only as long as its shortest-lived page.
        self.ttl = self.ttl.min(page.ttl);
        let (n_entries, max_entries) = (self.list.items.len(), self.limits.entries);
        if n_entries > max_entries {
            self.list.items.truncate(max_entries);
            // `truncate` keeps the memory of the removed entries.
            self.list.items.shrink_to_fit();
            return self.truncate(Truncated::TooManyEntries);
        }
        // An empty cursor is a valid cursor.
        let cursor = page.next_cursor?;
        if !self.cursors.insert(cursor.clone()) {
            return self.truncate(Truncated::RepeatedCursor);
        }
        // Only with a next cursor: a list of exactly the maximum is complete.
        if n_entries == max_entries {
            return self.truncate(Truncated::TooManyEntries);
        }
        if self.n_pages >= self.limits.pages {
            return self.truncate(Truncated::TooManyPages);
        }
        Some(cursor)
    }

    /// Adds a malformed entry. One entry stands for those beyond [`MAX_DESCRIBED`].
    fn skip(&mut self, entry: SkippedEntry) {
        let skipped = &mut self.list.skipped;
        if let Some(rest) = skipped.get_mut(MAX_DESCRIBED) {
            rest.n_entries += entry.n_entries;
        } else if skipped.len() == MAX_DESCRIBED {
            let reason = "further entries are malformed".to_owned();
            skipped.push(SkippedEntry { name: None, reason, ..entry });
        } else {
            skipped.push(entry);
        }
    }

    fn truncate(&mut self, reason: Truncated) -> Option<String> {
        let (n_pages, n_bytes) = (self.n_pages, self.n_bytes);
        tracing::warn!(?reason, n_pages, n_bytes, "list truncated");
        self.list.truncated = Some(reason);
        None
    }
}

/// Changes within this time share one fetch.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Minimum time between the starts of two fetches.
const MIN_INTERVAL: Duration = Duration::from_secs(2);

/// Debounce state of one list.
#[derive(Debug, Default)]
pub(crate) struct ListDebounce {
    next_fetch: Option<Instant>,
    last_fetch: Option<Instant>,
    is_running: bool,
    /// The list changed during a fetch, which may have missed the change.
    changed_meanwhile: bool,
}

impl ListDebounce {
    /// Handles a `list_changed` notification.
    pub(crate) fn on_changed(&mut self, now: Instant) {
        if self.is_running {
            self.changed_meanwhile = true;
            return;
        }
        // A server that announces changes in a loop gets one `tools/list` per interval,
        // not a storm.
        let earliest = self.last_fetch.map_or(now, |last| last + MIN_INTERVAL);
        // The first change sets the time: a flood of changes must not postpone the fetch forever.
        self.next_fetch.get_or_insert((now + DEBOUNCE).max(earliest));
    }

    /// When to start the next fetch.
    pub(crate) fn next_fetch(&self) -> Option<Instant> {
        self.next_fetch
    }

    /// Records the start of a fetch.
    pub(crate) fn fetch_started(&mut self, now: Instant) {
        self.next_fetch = None;
        self.last_fetch = Some(now);
        self.is_running = true;
    }

    /// Records the end of a fetch, successful or not.
    pub(crate) fn fetch_finished(&mut self, now: Instant) {
        self.is_running = false;
        if std::mem::take(&mut self.changed_meanwhile) {
            self.on_changed(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds pages, given as entry count and next cursor; compares the number of pages and entries, and the
    /// reason for truncation.
    #[track_caller]
    fn check(pages: &[(usize, Option<&str>)], expected: (usize, usize, Option<Truncated>)) {
        let limits = Limits { pages: 4, entries: 10, ..Limits::default() };
        let mut builder = ListBuilder::new(limits);
        for (n_items, cursor) in pages {
            let page = ListPage {
                items: vec![(); *n_items],
                next_cursor: cursor.map(str::to_owned),
                skipped: Vec::new(),
                ttl: Duration::ZERO,
                n_bytes: *n_items,
            };
            if builder.add(page).is_none() {
                break;
            }
        }
        let list = &builder.list;
        assert_eq!((builder.n_pages, list.items.len(), list.truncated), expected, "{pages:?}");
    }

    /// Protocol facts §14.5.
    #[test]
    fn pagination_terminates_for_any_cursors() {
        check(&[(2, None)], (1, 2, None));
        check(&[(2, Some("")), (2, Some("a")), (1, None)], (3, 5, None));
        check(
            &[(2, Some("a")), (2, Some("a")), (1, None)],
            (2, 4, Some(Truncated::RepeatedCursor)),
        );
        check(&[(1, Some("")), (1, Some("")), (1, None)], (2, 2, Some(Truncated::RepeatedCursor)));
        let endless: Vec<_> = ["a", "b", "c", "d", "e"].map(|cursor| (0, Some(cursor))).to_vec();
        check(&endless, (4, 0, Some(Truncated::TooManyPages)));
        check(&[(6, Some("a")), (6, None)], (2, 10, Some(Truncated::TooManyEntries)));
        check(&[(10, Some("a")), (1, None)], (1, 10, Some(Truncated::TooManyEntries)));
        check(&[(10, None)], (1, 10, None));
    }

    #[test]
    fn pages_beyond_the_byte_limit_are_dropped() {
        let add = |sizes: &[usize]| {
            let mut builder = ListBuilder::new(Limits { list_bytes: 100, ..Limits::default() });
            for (index, n_bytes) in sizes.iter().copied().enumerate() {
                let next_cursor = (index + 1 < sizes.len()).then(|| index.to_string());
                let (items, skipped) = (vec![index], Vec::new());
                let page = ListPage { items, next_cursor, skipped, ttl: Duration::ZERO, n_bytes };
                if builder.add(page).is_none() {
                    break;
                }
            }
            (builder.list.items.len(), builder.list.truncated)
        };
        assert_eq!(add(&[40, 60]), (2, None));
        assert_eq!(add(&[40, 61]), (1, Some(Truncated::TooManyBytes)));
        assert_eq!(add(&[40, 61, 1]), (1, Some(Truncated::TooManyBytes)));
        assert_eq!(add(&[500]), (1, None));
        assert_eq!(add(&[500, 1]), (1, Some(Truncated::TooManyBytes)));
    }

    #[test]
    fn malformed_entries_of_many_pages_are_counted() {
        let mut builder = ListBuilder::<usize>::new(Limits::default());
        let n_pages = 500;
        for page in 0..n_pages {
            let entry = |n_entries| SkippedEntry {
                index: 0,
                name: None,
                reason: "odd".to_owned(),
                n_entries,
            };
            let (next_cursor, skipped) = (Some(page.to_string()), vec![entry(1), entry(7)]);
            builder.add(ListPage {
                items: Vec::new(),
                next_cursor,
                skipped,
                ttl: Duration::ZERO,
                n_bytes: 0,
            });
        }
        assert_eq!(builder.list.skipped.len(), MAX_DESCRIBED + 1);
        assert_eq!(n_skipped(&builder.list.skipped), n_pages * 8);
    }

    #[test]
    fn skipped_entries_keep_their_list_index() {
        let mut builder = ListBuilder::new(Limits::default());
        for (items, cursor) in [(vec![1, 2], Some("a")), (vec![3], None)] {
            let skipped =
                vec![SkippedEntry { index: 1, name: None, reason: "odd".to_owned(), n_entries: 1 }];
            let next_cursor = cursor.map(str::to_owned);
            let ttl = Duration::from_secs(u64::try_from(items.len()).unwrap());
            builder.add(ListPage { items, next_cursor, skipped, ttl, n_bytes: 0 });
        }
        let indexes: Vec<usize> = builder.list.skipped.iter().map(|entry| entry.index).collect();
        assert_eq!((indexes.as_slice(), builder.ttl), (&[1, 4][..], Duration::from_secs(1)));
    }
}

#[cfg(test)]
mod list_debounce_tests {
    use super::*;

    /// Replays changes against fetches of duration `fetch` and compares the start times. All in milliseconds.
    #[track_caller]
    fn check(changes: &[u64], fetch: u64, expected: &[u64]) {
        const END: u64 = 20_000;
        let start = Instant::now();
        let instant = |ms: u64| start + Duration::from_millis(ms);
        let mut debounce = ListDebounce::default();
        let mut began = Vec::new();
        let mut done = None;
        for now in 0..END {
            if done == Some(now) {
                debounce.fetch_finished(instant(now));
            }
            if changes.contains(&now) {
                debounce.on_changed(instant(now));
            }
            if debounce.next_fetch().is_some_and(|due| due <= instant(now)) {
                debounce.fetch_started(instant(now));
                began.push(now);
                done = Some(now + fetch);
            }
        }
        assert_eq!(began, expected, "{changes:?} {fetch}");
    }

    #[test]
    fn changes_are_debounced() {
        check(&[], 10, &[]);
        check(&[0], 10, &[200]);
        check(&[0, 50, 199], 10, &[200]);
        check(&[0, 300], 10, &[200, 2200]);
        check(&[0, 300, 5000], 10, &[200, 2200, 5200]);
    }

    #[test]
    fn change_during_a_fetch_is_not_lost() {
        check(&[0, 205], 10, &[200, 2200]);
        check(&[0, 250, 260], 3000, &[200, 3400]);
    }

    #[test]
    fn flood_of_changes_is_fetched_at_intervals() {
        let flood: Vec<u64> = (0..6000).step_by(7).collect();
        check(&flood, 10, &[200, 2200, 4200, 6200]);
    }
}
