//! Log capture: a `tracing` subscriber that records everything, for tests that secrets stay out of the log.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Subscriber for every level, with one line per event; install it with [`tracing::subscriber::set_default`]. Clones share the captured text.
#[derive(Debug, Clone, Default)]
pub struct LogCapture(Arc<Mutex<String>>);

struct FieldWriter<'a>(&'a mut String);

impl LogCapture {
    /// Everything captured so far.
    pub fn text(&self) -> String {
        self.0.lock().clone()
    }

    fn write(&self, record: impl FnOnce(&mut FieldWriter<'_>)) {
        record(&mut FieldWriter(&mut self.0.lock()));
    }
}

impl Visit for FieldWriter<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        write!(self.0, "{field}={value:?} ").unwrap_or_default();
    }
}

impl Subscriber for LogCapture {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.write(|line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, values: &Record<'_>) {
        self.write(|line| values.record(line));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.write(|line| {
            write!(line.0, "\n{} ", event.metadata().level()).unwrap_or_default();
            event.record(line);
        });
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
