//! A chart with two axes, on which lines, bands, bars and dots are drawn.

use std::fmt::Write;

use super::axis::Axis;
use super::svg::{Fill, Look, coordinate, escape, path};

/// Size of the drawing; the page scales it. Small, so that its text stays readable on a phone.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 290.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 42.0;
const RIGHT: f64 = 14.0;

/// A drawing under way.
///
/// ```
/// use thinwire_train::report::{Axis, Chart, Look, Unit};
///
/// let time = Axis::log([0.1, 10.0].into_iter(), Unit::Seconds, "step");
/// let workers = Axis::log([2.0, 64.0].into_iter(), Unit::Plain, "workers");
/// let mut chart = Chart::new("Time of a step", workers, time);
/// chart.line(&[Some((2.0, 0.1)), Some((64.0, 10.0))], Look::dense(), "dense");
/// assert!(chart.svg().contains("<title>dense</title>"));
/// ```
#[derive(Debug)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    left: f64,
    body: String,
    /// Words, drawn over everything else.
    words: String,
    /// Where dots and words are: left, top, right, bottom.
    taken: Vec<[f64; 4]>,
}

/// The end of a line of reference at which its meaning is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The left one.
    Left,
    /// The right one.
    Right,
}

impl Chart {
    /// An empty chart.
    pub fn new(title: &str, x: Axis, y: Axis) -> Chart {
        let longest = y.marks(5).iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
        Chart {
            title: title.into(),
            x,
            y,
            left: 12.0 + 8.0 * longest as f64,
            body: String::new(),
            words: String::new(),
            taken: Vec::new(),
        }
    }

    fn width(&self) -> f64 {
        WIDTH - RIGHT - self.left
    }

    fn height(&self) -> f64 {
        HEIGHT - TOP - BOTTOM
    }

    /// Where a point lies inside the frame.
    fn point(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.x.place(x)? * self.width(), (1.0 - self.y.place(y)?) * self.height()))
    }

    /// A line through the points; `None`, or a point that is not a number, interrupts it.
    pub fn line(&mut self, points: &[Option<(f64, f64)>], look: Look, name: &str) {
        self.stroke(points, &look.stroke(), name);
    }

    /// A thin, faint line: the raw values, or a single seed.
    pub fn faint(&mut self, points: &[Option<(f64, f64)>], look: Look, name: &str) {
        self.stroke(points, &format!("class=\"faint s{}\"", look.colour), name);
    }

    fn stroke(&mut self, points: &[Option<(f64, f64)>], attributes: &str, name: &str) {
        let points = points.iter().map(|point| point.and_then(|(x, y)| self.point(x, y)));
        let path = path(points);
        if !path.is_empty() {
            let _ =
                write!(self.body, "<path {attributes} d=\"{path}\"><title>{}</title></path>", escape(name));
        }
    }

    /// The area between two heights along x.
    pub(crate) fn band(&mut self, points: &[Option<(f64, f64, f64)>], look: Look) {
        for piece in points.split(Option::is_none) {
            let piece = || piece.iter().flatten();
            let upper = piece().filter_map(|(x, _, high)| self.point(*x, *high));
            let lower = piece().rev().filter_map(|(x, low, _)| self.point(*x, *low));
            let path = path(upper.chain(lower).map(Some));
            if !path.is_empty() {
                let _ = write!(self.body, "<path class=\"band f{}\" d=\"{path}Z\"/>", look.colour);
            }
        }
    }

    /// A bar from the lower edge up to `y`.
    pub(crate) fn bar(&mut self, from: f64, to: f64, y: f64, fill: Fill, title: &str) {
        let (Some((left, top)), Some((right, _))) = (self.point(from, y), self.point(to, y)) else { return };
        let top = top.clamp(0.0, self.height());
        let gap = ((right - left) * 0.06).min(1.0);
        let (x, width) = (left + gap, (right - left - 2.0 * gap).max(0.5));
        self.body.push_str(&fill.rectangle(x, top, width, self.height() - top, Some(title)));
    }

    /// A dot.
    pub fn dot(&mut self, x: f64, y: f64, radius: f64, look: Look, title: &str) {
        let Some((x, y)) = self.point(x, y) else { return };
        self.taken.push([x - radius, y - radius, x + radius, y + radius]);
        let _ = write!(
            self.body,
            "<circle cx=\"{}\" cy=\"{}\" r=\"{radius}\" class=\"dot f{}\"><title>{}</title></circle>",
            coordinate(x),
            coordinate(y),
            look.colour,
            escape(title)
        );
    }

    /// A cross: where a run stopped before its end.
    pub(crate) fn cross(&mut self, x: f64, y: f64, look: Look, title: &str) {
        let Some((x, y)) = self.point(x, y) else { return };
        let _ = write!(
            self.body,
            "<path class=\"cross s{}\" d=\"M{} {}l10 10m0 -10l-10 10\"><title>{}</title></path>",
            look.colour,
            coordinate(x - 5.0),
            coordinate(y - 5.0),
            escape(title)
        );
    }

    /// Words beside a point, on the side on which there is room; left out where there is none.
    pub fn words(&mut self, x: f64, y: f64, text: &str) {
        let Some((x, y)) = self.point(x, y) else { return };
        let wide = 7.2 * text.chars().count() as f64 + 6.0;
        for shift in [0.0, -15.0, 15.0, -30.0, 30.0, -45.0, 45.0] {
            for (side, left) in [(Side::Left, x + 10.0), (Side::Right, x - 10.0 - wide)] {
                let base = y + 4.5 + shift;
                let place = [left, base - 11.0, left + wide, base + 3.0];
                let inside =
                    left >= 0.0 && place[2] <= self.width() && place[1] >= 0.0 && place[3] <= self.height();
                let free = |other: &[f64; 4]| {
                    place[2] < other[0] || other[2] < place[0] || place[3] < other[1] || other[3] < place[1]
                };
                if inside && self.taken.iter().all(free) {
                    self.taken.push(place);
                    let at = if side == Side::Left { left } else { left + wide };
                    self.write(at, base, side, text);
                    return;
                }
            }
        }
    }

    /// Words that begin or end at a point of the frame.
    fn write(&mut self, x: f64, y: f64, side: Side, text: &str) {
        let anchor = if side == Side::Left { "start" } else { "end" };
        let _ = write!(
            self.words,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\" class=\"words\">{}</text>",
            coordinate(x),
            coordinate(y),
            escape(text)
        );
    }

    /// A horizontal line of reference, with its meaning written at one end.
    pub fn level(&mut self, y: f64, text: &str, side: Side) {
        let (low, _) = self.x.ends();
        let within = |height: &f64| (0.0..=self.height()).contains(height);
        let Some(height) = self.point(low, y).map(|(_, height)| height).filter(within) else { return };
        let _ = write!(
            self.body,
            "<path class=\"level\" d=\"M0 {}H{}\"/>",
            coordinate(height),
            coordinate(self.width())
        );
        let above = if height < 16.0 { height + 14.0 } else { height - 4.0 };
        let x = if side == Side::Left { 5.0 } else { self.width() - 4.0 };
        self.write(x, above, side, text);
    }

    /// The finished drawing.
    pub fn svg(self) -> String {
        let mut out = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\
             <text x=\"2\" y=\"15\" class=\"title\">{title}</text><text x=\"2\" y=\"33\" class=\"label\">{label}</text>",
            title = escape(&self.title),
            label = escape(self.y.label())
        );
        let (left, right, base) = (self.left, WIDTH - RIGHT, HEIGHT - BOTTOM);
        let at = coordinate;
        for (value, text) in self.y.marks(5) {
            let Some(y) = self.y.place(value).map(|place| base - place * self.height()) else { continue };
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{} {}H{}\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                at(left),
                at(y),
                at(right),
                at(left - 6.0),
                at(y + 4.0),
                escape(&text)
            );
        }
        let mut free_from = 0.0;
        for (value, text) in self.x.marks(6) {
            let Some(x) = self.x.place(value).map(|place| left + place * self.width()) else { continue };
            let _ = write!(out, "<path class=\"grid\" d=\"M{} {}V{}\"/>", at(x), at(TOP), at(base));
            // Words that would touch their neighbours or the edge are left out; the line stays.
            let half = 4.0 * text.chars().count() as f64;
            if x - half < free_from || x + half > WIDTH + 2.0 {
                continue;
            }
            free_from = x + half + 6.0;
            let _ = write!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                at(x),
                at(base + 16.0),
                escape(&text)
            );
        }
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" class=\"label\">{}</text>\
             <svg x=\"{}\" y=\"{TOP}\" width=\"{}\" height=\"{}\">{}{}</svg><path class=\"frame\" d=\"M{} {TOP}V{}H{}\"/></svg>",
            at(left + self.width() / 2.0),
            at(HEIGHT - 6.0),
            escape(self.x.label()),
            at(left),
            at(self.width()),
            at(self.height()),
            self.body,
            self.words,
            at(left),
            at(base),
            at(right)
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::number::Unit;
    use super::*;

    #[test]
    fn points_that_are_not_numbers_leave_no_trace() {
        let axis = || Axis::fixed(0.0, 1.0, Unit::Plain, "x");
        let mut chart = Chart::new("t", axis(), axis());
        let look = Look::numbered(0);
        chart.line(&[Some((f64::NAN, 0.5)), Some((0.5, f64::NAN))], look, "nothing");
        chart.band(&[None, Some((f64::NAN, 0.0, 1.0))], look);
        chart.dot(f64::NAN, 1.0, 3.0, look, "nothing");
        assert_eq!(chart.body, "");
        chart.line(&[Some((0.0, 0.0)), Some((1.0, f64::INFINITY))], look, "up");
        assert!(!chart.body.contains("inf") && !chart.body.contains("NaN"), "{}", chart.body);
        assert!(chart.svg().contains("<title>up</title>"));
    }
}
