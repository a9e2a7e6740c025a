//! The charts of the report: a panel for each comparison, bars for medians, whiskers to the 95th percentile of times
//! and to the slowest of speeds.
//! Colours are middle tones on nothing, because the page behind may be light or dark.

use std::fmt::Write;

use crate::bench::COFFERDAM;
use crate::stats::{Row, Samples, Section, Unit};

const WIDTH: f64 = 860.0;
const NAME_WIDTH: f64 = 190.0;
/// Right of the longest whisker: room for the numbers.
const NUMBER_WIDTH: f64 = 175.0;
const ROW_HEIGHT: f64 = 24.0;
const BAR_HEIGHT: f64 = 14.0;
const TITLE_HEIGHT: f64 = 34.0;
const PANEL_GAP: f64 = 18.0;
const LEGEND_HEIGHT: f64 = 30.0;
/// All of them have a contrast of 3:1 or more with white and with black.
const TEXT: &str = "#768390";
const OURS: &str = "#2f81f7";
const THEIRS: &str = "#8b949e";
const WHISKER: &str = "#d9822b";

pub fn svg(sections: &[&Section]) -> String {
    let mut body = String::new();
    let mut y = 10.0;
    for section in sections {
        panel(&mut body, section, y);
        y += TITLE_HEIGHT + section.rows.len() as f64 * ROW_HEIGHT + PANEL_GAP;
    }
    legend(&mut body, y);
    let height = y + LEGEND_HEIGHT;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\" \
         font-size=\"13\" fill=\"{TEXT}\" role=\"img\">\n<title>Cofferdam and its peers: medians, and \
         the 95th percentile or the slowest</title>\n{body}</svg>\n"
    )
}

fn panel(body: &mut String, section: &Section, top: f64) {
    let title = escape(section.title);
    let better = if section.unit.is_speed() { "longer is better" } else { "shorter is better" };
    let _ = writeln!(
        body,
        "<text x=\"0\" y=\"{:.1}\"><tspan font-size=\"15\" font-weight=\"600\">{title}</tspan> · {better}</text>",
        top + 16.0
    );
    let measured = section.rows.iter().filter_map(|row| row.outcome.as_ref().ok());
    let longest =
        measured.map(|samples| samples.p50().max(usually_at_worst(samples, section.unit))).fold(0.0, f64::max);
    let scale = (WIDTH - NAME_WIDTH - NUMBER_WIDTH) / longest.max(f64::MIN_POSITIVE);
    for (index, row) in section.rows.iter().enumerate() {
        bar(body, row, section.unit, top + TITLE_HEIGHT + index as f64 * ROW_HEIGHT, scale);
    }
}

/// Where the whisker ends.
fn usually_at_worst(samples: &Samples, unit: Unit) -> f64 {
    if unit.is_speed() { samples.quantile(0.0) } else { samples.p95() }
}

fn bar(body: &mut String, row: &Row, unit: Unit, top: f64, scale: f64) {
    let middle = top + BAR_HEIGHT / 2.0;
    let baseline = middle + 4.5;
    let ours = row.name.starts_with(COFFERDAM);
    let weight = if ours { " font-weight=\"600\"" } else { "" };
    let name = escape(&row.name);
    let name_end = NAME_WIDTH - 10.0;
    let _ = writeln!(body, "<text x=\"{name_end}\" y=\"{baseline:.1}\" text-anchor=\"end\"{weight}>{name}</text>");
    let samples = match &row.outcome {
        Ok(samples) => samples,
        Err(absent) => {
            // A long reason belongs into the table, not over the edge of the picture.
            let short = absent.split(':').next().unwrap_or_default();
            let absent = escape(short);
            let _ =
                writeln!(body, "<text x=\"{NAME_WIDTH}\" y=\"{baseline:.1}\" font-style=\"italic\">{absent}</text>");
            return;
        }
    };
    let (p50, worst) = (samples.p50(), usually_at_worst(samples, unit));
    let (bar_end, whisker_end) = (NAME_WIDTH + p50 * scale, NAME_WIDTH + worst * scale);
    let width = (bar_end - NAME_WIDTH).max(1.0);
    let colour = if ours { OURS } else { THEIRS };
    let _ = writeln!(
        body,
        "<rect x=\"{NAME_WIDTH}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" rx=\"2\" \
         fill=\"{colour}\"/>"
    );
    whisker(body, bar_end, whisker_end, middle);
    let numbers = format!("{} · {}", unit.show(p50), unit.show(worst));
    let _ = writeln!(
        body,
        "<text x=\"{:.1}\" y=\"{baseline:.1}\"{weight}>{numbers}</text>",
        bar_end.max(whisker_end) + 10.0
    );
}

fn whisker(body: &mut String, from: f64, to: f64, middle: f64) {
    let (upper, lower) = (middle - 4.0, middle + 4.0);
    let _ = writeln!(
        body,
        "<path d=\"M{from:.1} {middle:.1}H{to:.1}M{to:.1} {upper:.1}V{lower:.1}\" stroke=\"{WHISKER}\" \
         stroke-width=\"2\" fill=\"none\"/>"
    );
}

fn legend(body: &mut String, top: f64) {
    let (middle, baseline) = (top + BAR_HEIGHT / 2.0, top + BAR_HEIGHT / 2.0 + 4.5);
    let _ = writeln!(
        body,
        "<rect x=\"{NAME_WIDTH}\" y=\"{top:.1}\" width=\"28\" height=\"{BAR_HEIGHT}\" rx=\"2\" fill=\"{OURS}\"/>"
    );
    whisker(body, NAME_WIDTH + 28.0, NAME_WIDTH + 58.0, middle);
    let _ = writeln!(
        body,
        "<text x=\"{}\" y=\"{baseline:.1}\">bar: median · whisker: 95th percentile, or the slowest · each \
         panel has its own scale</text>",
        NAME_WIDTH + 70.0
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
