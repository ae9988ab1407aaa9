//! The file of events: written a line at a time, never cut, read around what is damaged.
//!
//! Invariant: a line that was written whole stays in the file, and begins at the beginning of a line. A write that fails
//! half-way (a full disk) is taken back, or else ended by a line break before the next event; so is what a killed
//! process left of a line. A reader passes over lines that it can't read, and says so.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Event;
use crate::{Error, Result};

/// Writes events, one a line.
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    out: File,
    /// The file ends within a line.
    torn: bool,
}

impl EventWriter {
    /// A new file.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that is there already: see [`set_aside`].
    pub fn create(path: &Path) -> Result<EventWriter> {
        let options = OpenOptions::new().append(true).create_new(true).open(path);
        let out = options.map_err(|error| Error::io("create", path, &error))?;
        Ok(EventWriter { path: path.to_owned(), out, torn: false })
    }

    /// Goes on after the last line of a file.
    pub fn append(path: &Path) -> Result<EventWriter> {
        let failed = |error: std::io::Error| Error::io("append to", path, &error);
        let mut out = OpenOptions::new().read(true).append(true).open(path).map_err(failed)?;
        let torn = !ends_with_line_break(&mut out).map_err(failed)?;
        Ok(EventWriter { path: path.to_owned(), out, torn })
    }

    /// Adds an event, at once and as a whole line: whoever looks at the file meanwhile, or after the process was killed,
    /// finds all of them. After an error the file is as it was, and the next event may be tried.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        let failed =
            |reason: String| Error::Io { action: "write to", path: self.path.display().to_string(), reason };
        let line = serde_json::to_string(event).map_err(|error| failed(error.to_string()))?;
        let line = if self.torn { format!("\n{line}\n") } else { line + "\n" };
        let length = self.out.metadata().map_err(|error| failed(error.to_string()))?.len();
        let written = self.out.write_all(line.as_bytes());
        // A part of the line may have found room.
        self.torn = match &written {
            Ok(()) => false,
            Err(_) => self.out.set_len(length).is_err() || self.torn,
        };
        written.map_err(|error| failed(error.to_string()))
    }
}

fn ends_with_line_break(file: &mut File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Gives a file of events another name, so that a new one can take its place: `metrics-1.jsonl`, or the next number that
/// is free. Gives that name; `None` if there is no file or an empty one.
pub fn set_aside(path: &Path) -> Result<Option<PathBuf>> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("look at", path, &error)),
        Ok(about) if about.is_file() && about.len() == 0 => {
            std::fs::remove_file(path).map_err(|error| Error::io("delete", path, &error))?;
            return Ok(None);
        }
        Ok(_) => {}
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let named = |number: u64| path.with_file_name(format!("{stem}-{number}.{extension}"));
    let free = |path: &PathBuf| std::fs::symlink_metadata(path).is_err();
    let aside = (1..).map(named).find(free).expect("there are more numbers than files");
    std::fs::rename(path, &aside).map_err(|error| Error::io("rename", path, &error))?;
    Ok(Some(aside))
}

/// What a file of events holds.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub events: Vec<Event>,
    /// The lines that can't be read: their number, from 1, and what is wrong with them.
    pub damaged: Vec<(usize, String)>,
}

impl Record {
    /// What can't be read, in words; `None` if there is nothing of the kind.
    pub fn damage(&self) -> Option<String> {
        let (line, reason) = self.damaged.first()?;
        Some(match self.damaged.len() {
            1 => format!("line {line} can't be read: {reason}"),
            count => format!("{count} lines can't be read, the first of them line {line}: {reason}"),
        })
    }
}

/// Reads the events of a run. Lines that can't be read are left out, with a warning.
pub fn read(path: &Path) -> Result<Vec<Event>> {
    let record = read_record(path)?;
    if let Some(damage) = record.damage() {
        tracing::warn!("{}: {damage}; it is left out", path.display());
    }
    Ok(record.events)
}

/// Reads the events of a run, and what is wrong with its file. A last line without its end is what a killed process
/// leaves, and no damage.
pub(crate) fn read_record(path: &Path) -> Result<Record> {
    let file = File::open(path).map_err(|error| Error::io("open", path, &error))?;
    let mut reader = BufReader::new(file);
    let mut record = Record::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(|error| Error::io("read", path, &error))? == 0 {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(event) => record.events.push(event),
            Err(_) if !line.ends_with(b"\n") => {}
            Err(error) => record.damaged.push((number, error.to_string())),
        }
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Step;

    fn steps(range: std::ops::Range<u64>) -> Vec<Event> {
        range.map(|step| Event::Step(Step { step, ..Step::default() })).collect()
    }

    fn write(writer: &mut EventWriter, events: &[Event]) {
        events.iter().for_each(|event| writer.write(event).unwrap());
    }

    #[test]
    fn damaged_lines_stay_in_place_and_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        write(&mut EventWriter::create(&path).unwrap(), &steps(0..4));
        let mut bytes = std::fs::read(&path).unwrap();
        // No UTF-8 any more, in the second line.
        let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        bytes[second + 3] = 0xff;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(&path).unwrap(), [steps(0..1), steps(2..4)].concat());
        let damage = read_record(&path).unwrap().damage().unwrap();
        assert!(damage.starts_with("line 2 can't be read: "), "{damage}");
        write(&mut EventWriter::append(&path).unwrap(), &steps(4..5));
        assert_eq!(read(&path).unwrap(), [steps(0..1), steps(2..5)].concat());
        assert!(std::fs::read(&path).unwrap().starts_with(&bytes));
    }

    #[test]
    fn a_torn_line_is_ended_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        write(&mut EventWriter::create(&path).unwrap(), &steps(0..2));
        let whole = std::fs::read(&path).unwrap();
        // Within the line, and before its line break: then nothing is missing of the event.
        for (cut, left) in [(20, steps(0..1)), (1, steps(0..2))] {
            std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            assert_eq!(read(&path).unwrap(), left);
            write(&mut EventWriter::append(&path).unwrap(), &steps(2..4));
            assert_eq!(read(&path).unwrap(), [left, steps(2..4)].concat());
            assert!(std::fs::read(&path).unwrap().starts_with(&whole[..whole.len() - cut]));
        }
    }

    #[test]
    fn a_record_is_set_aside_and_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        assert_eq!(set_aside(&path).unwrap(), None);
        for number in 1..4 {
            write(&mut EventWriter::create(&path).unwrap(), &steps(0..number));
            assert!(EventWriter::create(&path).unwrap_err().to_string().contains("can't create"));
            let aside = folder.path().join(format!("metrics-{number}.jsonl"));
            assert_eq!(set_aside(&path).unwrap().as_ref(), Some(&aside));
            assert_eq!(read(&aside).unwrap(), steps(0..number));
        }
        std::fs::write(&path, "").unwrap();
        assert_eq!(set_aside(&path).unwrap(), None);
        assert!(!path.exists());
    }
}
