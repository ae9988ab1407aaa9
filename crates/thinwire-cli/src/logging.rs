//! Where words go that are not the result: the standard error, or the log file of a worker that is not the first.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use thinwire_train::event::Event;
use thinwire_train::trainer::Settings;
use thinwire_train::{Error, Result};
use tracing_subscriber::filter::LevelFilter;

use crate::output;

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

/// The log of one worker. When the disk does not take a line, the terminal hears of it once.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    rank: usize,
    file: File,
    failing: bool,
}

impl Log {
    /// Goes on with the log of an earlier start, if there is one. A worker that has a process of its own also sends the
    /// engine's warnings there.
    pub fn open(path: &Path, rank: usize, settings: &Settings) -> Result<Log> {
        let file = File::options().append(true).create(true).open(path);
        let mut file = file.map_err(|error| Error::io("create", path, &error))?;
        let first = format!("worker {rank}, process {}, {settings:?}\n", std::process::id());
        file.write_all(first.as_bytes()).map_err(|error| Error::io("write to", path, &error))?;
        if settings.group != "local" {
            let copy = file.try_clone().map_err(|error| Error::io("open", path, &error))?;
            *FILE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(copy);
        }
        Ok(Log { path: path.to_owned(), rank, file, failing: false })
    }

    /// Adds what matters of an event.
    pub fn write(&mut self, event: &Event) {
        match event {
            Event::Evaluation(evaluation) => self.line(&format!("{evaluation:?}")),
            Event::Note { step, text } => self.line(&format!("step {step}: {text}")),
            Event::End(end) => self.line(&format!("{end:?}")),
            _ => {}
        }
    }

    /// Adds a line.
    pub fn line(&mut self, text: &str) {
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        if let (Err(error), false) = (&written, self.failing) {
            output::note(&format!(
                "worker {}: can't write to {}: {error}. Its log is not kept until there is room",
                self.rank,
                self.path.display()
            ));
        }
        self.failing = written.is_err();
    }
}
