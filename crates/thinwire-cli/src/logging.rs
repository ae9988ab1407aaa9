//! Where words go that are not the result: the standard error, or the log file of a worker that is not the first.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use thinwire_train::event::Event;
use thinwire_train::trainer::Settings;
use thinwire_train::{Error, Result};
use tracing_subscriber::filter::LevelFilter;

/// The file to which this process logs, once it is a worker that keeps quiet.
static FILE: Mutex<Option<File>> = Mutex::new(None);

/// Lets warnings of the engine appear. What it merely tells is an event of the training, and shown as that.
pub fn start() {
    let words = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(|| Words);
    words.without_time().with_target(false).with_ansi(false).init();
}

/// Whatever the engine says.
struct Words;

impl Write for Words {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match FILE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).as_mut() {
            Some(file) => file.write(bytes),
            None => std::io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An error that is in the log of a worker already: another worker tells the user.
#[derive(Debug, thiserror::Error)]
#[error("see the worker's log")]
pub struct Logged;

/// The log of one worker.
#[derive(Debug)]
pub struct Log {
    path: String,
    file: File,
}

impl Log {
    /// A new file. A worker that has a process of its own also sends the engine's warnings there.
    pub fn create(path: &Path, rank: usize, settings: &Settings) -> Result<Log> {
        let file = File::create(path).map_err(|error| Error::io("create", path, &error))?;
        if settings.group != "local" {
            let copy = file.try_clone().map_err(|error| Error::io("open", path, &error))?;
            *FILE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(copy);
        }
        let mut log = Log { path: path.display().to_string(), file };
        log.line(&format!("worker {rank}, process {}, {settings:?}", std::process::id()))?;
        Ok(log)
    }

    /// Adds what matters of an event.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Evaluation(evaluation) => self.line(&format!("{evaluation:?}")),
            Event::Note { step, text } => self.line(&format!("step {step}: {text}")),
            Event::End(end) => self.line(&format!("{end:?}")),
            _ => Ok(()),
        }
    }

    /// Adds a line.
    pub fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.file, "{text}").map_err(|error| Error::Io {
            action: "write",
            path: self.path.clone(),
            reason: error.to_string(),
        })
    }
}
