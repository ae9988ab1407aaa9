//! Collects what a test logs.

use std::io::Write;
use std::sync::{Arc, Mutex};

/// Where the lines go.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What this thread logs while it runs `work`.
pub fn warnings_of<T>(work: impl FnOnce() -> T) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .without_time()
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = lines.0.lock().unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Calls `seen` with every line that this thread logs while it runs `work`, of debug level and above.
pub fn watch_log<T>(seen: impl Fn(&str) + Send + Sync + 'static, work: impl FnOnce() -> T) -> T {
    let seen = Arc::new(seen);
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || Watcher(seen.clone()))
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, work)
}

/// Gets whole lines.
struct Watcher<S>(Arc<S>);

impl<S: Fn(&str)> Write for Watcher<S> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        (self.0)(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
