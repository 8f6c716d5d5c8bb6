//! Bar chart as SVG, readable on light and dark pages.

use std::fmt::Write as _;

use crate::metric::Metric;
use crate::table::number;

/// A horizontal bar chart. Our own bars have labels that start with `toolrack`.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) metric: Metric,
    pub(crate) bars: Vec<(String, f64)>,
}

const WIDTH: f64 = 720.0;
const LABELS: f64 = 190.0;
/// Room for the figure to the right of the longest bar.
const FIGURES: f64 = 110.0;
const ROW: f64 = 26.0;
const TOP: f64 = 44.0;

impl Chart {
    pub(crate) fn to_svg(&self) -> String {
        let highest = self.bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
        #[expect(clippy::cast_precision_loss, reason = "a chart has a handful of bars")]
        let height = TOP + ROW * self.bars.len() as f64 + 8.0;
        let note =
            if self.metric.is_higher_better() { "higher is better" } else { "lower is better" };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
             <title>{0}</title>\n\
             <style>text {{ fill: #1f2328 }} .note {{ fill: #656d76 }} .bar {{ fill: #afb8c1 }} \
             .ours {{ fill: #bc4c00 }}\n\
             @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .note {{ fill: #8d96a0 }} \
             .bar {{ fill: #484f58 }} .ours {{ fill: #f0883e }} }}</style>\n\
             <text x=\"0\" y=\"16\" font-weight=\"600\">{0}</text>\n\
             <text class=\"note\" x=\"0\" y=\"34\" font-size=\"11\">{note}</text>\n",
            escaped(&self.title)
        );
        let mut top = TOP;
        for (label, value) in &self.bars {
            let class = if label.starts_with("toolrack") { "bar ours" } else { "bar" };
            let length = (value / highest * (WIDTH - LABELS - FIGURES)).max(1.0);
            let middle = top + ROW / 2.0 + 1.0;
            // Writing to a string cannot fail.
            let _never = writeln!(
                svg,
                "<text x=\"{0}\" y=\"{middle}\" text-anchor=\"end\">{1}</text>\
                 <rect class=\"{class}\" x=\"{LABELS}\" y=\"{2}\" width=\"{length:.1}\" height=\"16\" rx=\"2\"/>\
                 <text x=\"{3:.1}\" y=\"{middle}\">{4}</text>",
                LABELS - 8.0,
                escaped(label),
                top + 2.0,
                LABELS + length + 6.0,
                number(*value)
            );
            top += ROW;
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::CALLS_PER_SECOND;

    #[test]
    fn longest_bar_fills_the_chart_and_ours_is_marked() {
        let bars = vec![("toolrack".to_owned(), 800.0), ("a < b".to_owned(), 200.0)];
        let svg = Chart { title: "Calls".to_owned(), metric: CALLS_PER_SECOND, bars }.to_svg();
        assert!(svg.contains("class=\"bar ours\" x=\"190\" y=\"46\" width=\"420.0\""), "{svg}");
        assert!(svg.contains("width=\"105.0\"") && svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains("higher is better"), "{svg}");
    }
}
