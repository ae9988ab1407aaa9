//! What goes to the terminal: text, tables, JSON, and notes beside them.
//!
//! Nothing here panics when the reader has gone: `main` turns a broken pipe into a quiet end.

use std::io::Write;

use anyhow::Result;
use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use serde::Serialize;

/// How wide text is where there is no terminal to ask.
const WIDTH: u16 = 120;
/// No terminal that people look at is narrower.
const NARROWEST: u16 = 20;

/// Writes text to the standard output.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// Writes one JSON object to the standard output.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Says something beside the result: what takes long, or what was left out of account.
pub fn note(text: &str) {
    // A note that can't be written is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Lines of "name  value", aligned.
pub fn lines(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    pairs.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

/// A table of figures; a column whose title starts with `>` is aligned to the right. In a file or a pipe every
/// row is one line, however long, so that it can be searched.
pub fn table(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    draw(Table::new(), titles, rows)
}

/// A table of sentences, which are broken into lines also in a file or a pipe.
pub fn table_of_text(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    if !table.is_tty() {
        table.set_width(WIDTH);
    }
    draw(table, titles, rows)
}

fn draw(mut table: Table, titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    table.set_content_arrangement(ContentArrangement::Dynamic);
    // The terminal that mpirun gives to its processes says it is 0 wide.
    if table.is_tty() && table.width().is_none_or(|width| width < NARROWEST) {
        table.set_width(WIDTH);
    }
    table.set_header(titles.iter().map(|title| title.trim_start_matches('>')));
    for row in rows {
        table.add_row(row.into_iter().zip(titles).map(|(text, title)| {
            let right = title.starts_with('>');
            let alignment = if right { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(text).set_alignment(alignment)
        }));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned() {
        let text = lines(&[("kept", "1".into()), ("relative error", "0.5".into())]);
        assert_eq!(text, "kept            1\nrelative error  0.5\n");
        assert_eq!(lines(&[]), "");
    }

    #[test]
    fn numbers_stand_on_the_right() {
        let text =
            table(&["name", ">count"], [vec!["a".into(), "1".into()], vec!["b".into(), "1000".into()]]);
        assert!(text.contains("name") && !text.contains('>'), "{text}");
        assert!(text.lines().any(|line| line.contains("a") && line.trim_end().ends_with(" 1")), "{text}");
    }
}
