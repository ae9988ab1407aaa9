//! Drawings as a file of their own.

use std::fmt::Write;

use super::svg::{Look, coordinate, escape};

/// Size of one drawing, as `Chart` makes it, and what is around it.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 290.0;
const EDGE: f64 = 16.0;
const GAP: f64 = 28.0;
/// Where the drawings begin: below the title and the legend.
const TOP: f64 = 76.0;

/// The palette and strokes of the report, on white: a file that stands alone does not know where it will be shown,
/// and not every viewer knows the page's variables.
const STYLE: &str = "\
text{fill:#5b6570}.title{fill:#1b1f24;font-weight:600;font-size:15px}.heading{fill:#1b1f24;font-weight:600;font-size:17px}\
.words,.name{fill:#1b1f24}.words{font-size:13px;paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}\
path{fill:none}.line{stroke-width:2.2;stroke-linejoin:round}.faint{stroke-width:1;stroke-opacity:.45}.dot{stroke:#fff;stroke-width:.6}\
.grid{stroke:#e6e9ed}.frame{stroke:#5b6570}.level{stroke:#5b6570;stroke-dasharray:3 4}";

/// The colours of Okabe and Ito, as in the style of the page.
const COLOURS: [&str; super::svg::COLOURS] =
    ["#1b1f24", "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#c9b800"];

/// One SVG file with a title, a legend and the drawings of [`Chart::svg`](super::Chart::svg) beside each other.
///
/// ```
/// use thinwire_train::report::{Axis, Chart, Look, Unit, sheet};
///
/// let axis = |name| Axis::log([1.0, 10.0].into_iter(), Unit::Plain, name);
/// let mut chart = Chart::new("A line", axis("x"), axis("y"));
/// chart.line(&[Some((1.0, 1.0)), Some((10.0, 10.0))], Look::dense(), "dense");
/// let file = sheet("A drawing", &[(Look::dense(), "dense".into())], &[chart.svg()]);
/// assert!(file.starts_with("<svg xmlns=") && file.ends_with("</svg>\n"));
/// ```
pub fn sheet(title: &str, legend: &[(Look, String)], drawings: &[String]) -> String {
    let count = drawings.len().max(1) as f64;
    let (width, height) = (2.0 * EDGE + count * WIDTH + (count - 1.0) * GAP, TOP + HEIGHT + EDGE);
    let mut style = STYLE.to_owned();
    for (number, colour) in COLOURS.iter().enumerate() {
        let _ = write!(style, ".s{number}{{stroke:{colour}}}.f{number}{{fill:{colour}}}");
    }
    let (title, at) = (escape(title), coordinate);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" \
         font-size=\"14\"><style>{style}</style><rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{EDGE}\" y=\"28\" class=\"heading\">{title}</text>\n"
    );
    let mut x = EDGE;
    for (look, name) in legend {
        let _ = writeln!(
            out,
            "<path d=\"M{} 50h34\" {}/><text x=\"{}\" y=\"55\" class=\"name\">{}</text>",
            at(x),
            look.stroke(),
            at(x + 42.0),
            escape(name)
        );
        x += 42.0 + 8.0 * name.chars().count() as f64 + 22.0;
    }
    for (number, drawing) in drawings.iter().enumerate() {
        let x = EDGE + number as f64 * (WIDTH + GAP);
        let _ = writeln!(
            out,
            "<svg x=\"{}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\">{drawing}</svg>",
            at(x)
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_has_all_its_colours_and_no_variables() {
        let legend: Vec<(Look, String)> =
            (0..7).map(|number| (Look::numbered(number), format!("<{number}>"))).collect();
        let file = sheet("a & b", &legend, &["<svg/>".into(), "<svg/>".into()]);
        assert!(file.contains("a &amp; b") && file.contains("&lt;6&gt;") && !file.contains("var("));
        let used: Vec<String> = legend.iter().map(|(look, _)| format!(".s{}{{", look.colour)).collect();
        assert!(used.iter().all(|class| file.contains(class)), "{file}");
        assert_eq!((file.matches("<svg").count(), file.matches("</svg>").count()), (5, 3));
        assert_eq!(sheet("", &[], &[]).matches("<svg").count(), 1);
    }
}
