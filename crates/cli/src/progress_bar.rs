//! Bars and spinners, which are drawn on standard error and only where that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const TICK: Duration = Duration::from_millis(100);

/// Bytes on their way: a bar where their number is known, else a count.
pub fn transfer_bar(what: &'static str, total_bytes: Option<u64>) -> ProgressBar {
    let template = match total_bytes {
        Some(_) => "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}",
        None => "{spinner} {msg} {bytes} {bytes_per_sec}",
    };
    let bar = ProgressBar::with_draw_target(total_bytes, target());
    bar.set_style(ProgressStyle::with_template(template).expect("the template is valid").progress_chars("=> "));
    bar.set_message(what);
    bar.enable_steady_tick(TICK);
    bar
}

/// Something that takes its time.
pub fn spinner() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target());
    bar.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("the template is valid"));
    bar.enable_steady_tick(TICK);
    bar
}

fn target() -> ProgressDrawTarget {
    match crate::terminal::stderr_is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    }
}
