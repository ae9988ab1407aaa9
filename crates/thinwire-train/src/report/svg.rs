//! The few pieces of markup everything is drawn with. Colours are CSS classes, so that one drawing serves light,
//! dark and paper.

use std::fmt::Write;

/// Text made safe between tags and inside quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // A control character is allowed in no attribute and helps no reader.
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

/// A coordinate, to a tenth of a unit: finer can't be seen and would make the file larger.
pub(crate) fn coordinate(value: f64) -> String {
    let tenths = (value * 10.0).round() / 10.0;
    if tenths == tenths.trunc() { format!("{}", tenths as i64) } else { format!("{tenths:.1}") }
}

/// The path through the points; a `None` lifts the pen.
pub(crate) fn path(points: impl Iterator<Item = Option<(f64, f64)>>) -> String {
    let mut out = String::new();
    let mut down = false;
    for point in points {
        match point {
            Some((x, y)) => {
                // A lone point has to be seen as well, and a line of no length would not be.
                let _ = match down {
                    true => write!(out, "L{} {}", coordinate(x), coordinate(y)),
                    false => write!(out, "M{} {}h1", coordinate(x - 0.5), coordinate(y)),
                };
                down = true;
            }
            None => down = false,
        }
    }
    out
}

/// How the lines of one group of runs look: colour and dashes, so that they differ in print as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Index of the colour classes `s0`, `s1`, … (stroke) and `f0`, `f1`, … (fill).
    pub(crate) colour: usize,
    /// Index into [`DASHES`].
    pub(crate) dash: usize,
}

/// Colours of Okabe and Ito, which colour-blind people can tell apart; 0 is the colour of the text.
pub(crate) const COLOURS: usize = 8;

/// Dash patterns; the first is a full line.
pub(crate) const DASHES: [&str; 5] = ["", "8 4", "2 3", "12 4 2 4", "6 3 2 3 2 3"];

impl Look {
    /// The look of dense training: a full line in the colour of the text.
    pub fn dense() -> Look {
        Look { colour: 0, dash: 0 }
    }

    /// The `number`-th look that is not the one of dense training.
    pub fn numbered(number: usize) -> Look {
        Look { colour: 1 + number % (COLOURS - 1), dash: number % DASHES.len() }
    }

    /// Attributes of a line of this look.
    pub(crate) fn stroke(self) -> String {
        match DASHES[self.dash] {
            "" => format!("class=\"line s{}\"", self.colour),
            dashes => format!("class=\"line s{}\" stroke-dasharray=\"{dashes}\"", self.colour),
        }
    }
}

/// A legend that wraps on narrow screens.
pub(crate) fn legend(entries: &[(Look, String)]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (look, name) in entries {
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 34 10\" width=\"34\" height=\"10\" aria-hidden=\"true\"><path d=\"M1 5H33\" {}/>\
             </svg>{}</li>",
            look.stroke(),
            escape(name)
        );
    }
    out.push_str("</ul>");
    out
}

/// A legend of filled areas.
pub(crate) fn legend_of_fills(entries: &[(Fill, &str)]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (fill, name) in entries {
        let area = fill.rectangle(0.0, 0.0, 18.0, 12.0, None);
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 18 12\" width=\"18\" height=\"12\" aria-hidden=\"true\">{area}</svg>{}</li>",
            escape(name)
        );
    }
    out.push_str("</ul>");
    out
}

/// How an area looks: a colour and a hatching over it, so that areas differ in print as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fill {
    /// Index of the colour classes.
    pub(crate) colour: usize,
    /// 0 for none, or the number of a hatching in [`HATCHINGS`].
    pub(crate) hatching: usize,
}

impl Fill {
    /// A rectangle with this filling and, if given, a text that shows when one points at it.
    pub(crate) fn rectangle(self, x: f64, y: f64, width: f64, height: f64, title: Option<&str>) -> String {
        let place = format!(
            "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
            coordinate(x),
            coordinate(y),
            coordinate(width),
            coordinate(height)
        );
        let title = title.map(|title| format!("<title>{}</title>", escape(title))).unwrap_or_default();
        let hatching = match self.hatching {
            0 => String::new(),
            number => format!("<rect {place} fill=\"url(#hatching{number})\"/>"),
        };
        format!("<g>{title}<rect {place} class=\"area f{}\"/>{hatching}</g>", self.colour)
    }
}

/// The hatchings, defined once for the whole page.
pub(crate) const HATCHINGS: &str = "<svg class=\"definitions\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\
<pattern id=\"hatching1\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<path class=\"hatching\" d=\"M-1 7L7 -1M-1 1L1 -1M5 7L7 5\"/></pattern>\
<pattern id=\"hatching2\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<path class=\"hatching\" d=\"M-1 -1L7 7M5 -1L7 1M-1 5L1 7\"/></pattern>\
<pattern id=\"hatching3\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
<circle class=\"dots\" cx=\"2.5\" cy=\"2.5\" r=\"1\"/></pattern>\
<pattern id=\"hatching4\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
<path class=\"hatching\" d=\"M0 2.5H5\"/></pattern>\
</defs></svg>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_made_safe() {
        assert_eq!(escape("<b a=\"1\" b='2'>&\u{7}"), "&lt;b a=&quot;1&quot; b=&#39;2&#39;&gt;&amp; ");
    }

    #[test]
    fn paths_break_at_gaps() {
        let points = [Some((0.0, 1.0)), Some((2.25, 3.0)), None, Some((4.0, 5.0))];
        assert_eq!(path(points.into_iter()), "M-0.5 1h1L2.3 3M3.5 5h1");
    }

    #[test]
    fn looks_differ_for_as_many_runs_as_one_can_read() {
        let looks: Vec<Look> = (0..35).map(Look::numbered).collect();
        assert!(looks.iter().enumerate().all(|(place, look)| !looks[..place].contains(look)));
        assert!(looks.iter().all(|look| look.colour != 0));
    }
}
