//! Somebody who writes down everything that anybody logs, for tests of what must not be logged.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A subscriber at every level, to be set with [`tracing::subscriber::set_default`]. A clone shares what was heard.
#[derive(Debug, Clone, Default)]
pub struct LogCapture(Arc<Mutex<String>>);

struct FieldWriter<'a>(&'a mut String);

impl LogCapture {
    /// Everything so far.
    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, record: impl FnOnce(&mut FieldWriter<'_>)) {
        record(&mut FieldWriter(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)));
    }
}

impl Visit for FieldWriter<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing into a string does not fail.
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
        self.write(|line| event.record(line));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
