//! Horizontal bars, each with its name above it and its value at the end: readable with long names on a phone.

use std::fmt::Write;

use super::svg::{Fill, coordinate, escape};

const WIDTH: f64 = 440.0;
const ROW: f64 = 44.0;
const TOP: f64 = 28.0;
/// Room for the words after the longest bar.
const AFTER: f64 = 118.0;

/// One bar, of one or more parts.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) parts: Vec<Part>,
    /// What stands after it.
    pub(crate) after: String,
}

/// A part of a bar.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) size: f64,
    pub(crate) fill: Fill,
    /// What shows when one points at it.
    pub(crate) title: String,
}

impl Bar {
    /// Its length.
    pub(crate) fn size(&self) -> f64 {
        self.parts.iter().map(|part| part.visible()).sum()
    }
}

impl Part {
    fn visible(&self) -> f64 {
        if self.size.is_finite() { self.size.max(0.0) } else { 0.0 }
    }
}

/// The drawing; `longest` is the size that fills the width, so that two drawings can share a scale.
pub(crate) fn bars(title: &str, bars: &[Bar], longest: f64) -> String {
    let height = TOP + ROW * bars.len() as f64 + 4.0;
    let title = escape(title);
    let mut out = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{title}\">\
         <text x=\"2\" y=\"15\" class=\"title\">{title}</text>",
        coordinate(height)
    );
    let scale = if longest > 0.0 { (WIDTH - AFTER) / longest } else { 0.0 };
    for (row, bar) in bars.iter().enumerate() {
        let top = TOP + ROW * row as f64;
        let _ = write!(
            out,
            "<text x=\"2\" y=\"{}\">{}</text>",
            coordinate(top + 13.0),
            escape(&shortened(&bar.name))
        );
        let mut x = 2.0;
        for part in &bar.parts {
            let width = part.visible() * scale;
            // A sliver too thin to be seen would only smear its neighbours.
            if width >= 0.2 {
                out.push_str(&part.fill.rectangle(x, top + 19.0, width, 18.0, Some(&part.title)));
            }
            x += width;
        }
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{}\" class=\"value\">{}</text>",
            coordinate(x + 6.0),
            coordinate(top + 32.5),
            escape(&bar.after)
        );
    }
    out.push_str("</svg>");
    out
}

/// A name that fits the width; the whole one is in the tables.
fn shortened(name: &str) -> String {
    const ROOM: usize = 60;
    if name.chars().count() <= ROOM {
        name.into()
    } else {
        name.chars().take(ROOM - 1).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_no_number_have_no_length() {
        let part = |size| Part { size, fill: Fill { colour: 1, hatching: 0 }, title: "<part>".into() };
        let bar = Bar {
            name: "n".repeat(100),
            parts: vec![part(f64::NAN), part(-1.0), part(2.0)],
            after: "2 s".into(),
        };
        assert_eq!(bar.size(), 2.0);
        let drawing = bars("t", &[bar], 2.0);
        assert!(!drawing.contains("NaN") && drawing.contains("&lt;part&gt;") && drawing.contains('…'));
        assert_eq!(drawing.matches("<rect").count(), 1);
    }
}
