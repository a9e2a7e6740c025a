//! Text on its way to a person: without what would steer a terminal, in colours where those are wanted, and numbers as
//! people read them. What a job printed is hostile: whatever of it reaches a terminal passes through [`printable`].

use std::io::{self, Write};

use crate::exec::Failure;
use crate::{exit_code, terminal};

/// One line on standard error. Parts of it may come from inside the sandbox: what would steer the terminal is not
/// printed as it is.
pub fn say(message: &str) {
    let printable: String =
        message.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    // Nobody may be there to read it; the exit code says it, too.
    let _ = writeln!(io::stderr(), "cofferdam: {printable}");
}

/// A line on standard output. Whoever reads it may have seen enough, which ends the command quietly.
pub fn print_line(line: &str) -> Result<(), Failure> {
    print_bytes(line.as_bytes())?;
    print_bytes(b"\n")
}

pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(output_failure)
}

pub fn output_failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(exit_code::BROKEN_PIPE, ""),
        _ => Failure::new(exit_code::DISK_FULL, format!("the output could not be written: {error}; make room for it")),
    }
}

/// One line without escape sequences and control characters; tabs become spaces. A line that was written over itself,
/// as progress bars do, is what it was last.
pub fn printable(line: &str) -> String {
    let line = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\t' => out.push_str("    "),
            '\u{1b}' => match chars.next() {
                // Parameters, then one letter.
                Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
                // A title or a link, up to its end mark.
                Some(']') => {
                    while let Some(c) = chars.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            c if c.is_control() || is_direction_mark(c) => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

/// Marks that make a terminal show text in another order than it is in.
fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The first line, with a mark if there is more, no longer than `width`.
pub fn first_line(text: &str, width: usize) -> String {
    let mut lines = text.trim().lines();
    let line = printable(lines.next().unwrap_or_default());
    let cut = lines.next().is_some() || line.chars().count() > width;
    if cut { line.chars().take(width.saturating_sub(1)).chain(['…']).collect() } else { line }
}

/// A line that never ends is shown in pieces of this size.
const LINE_MAX_BYTES: usize = 64 * 1024;

/// Bytes as they come, cut into lines.
#[derive(Debug, Default)]
pub struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    pub fn feed(&mut self, bytes: &[u8], mut line: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.pending.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.pending.pop();
                self.take(&mut line)?;
            } else if self.pending.len() > LINE_MAX_BYTES {
                self.take(&mut line)?;
            }
        }
        Ok(())
    }

    /// What came without a line end.
    pub fn finish(&mut self, mut line: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
        if self.pending.is_empty() { Ok(()) } else { self.take(&mut line) }
    }

    fn take(&mut self, line: &mut impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
        let result = line(&String::from_utf8_lossy(&self.pending));
        self.pending.clear();
        result
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Colour {
    Red,
    Green,
    Yellow,
    Dim,
}

/// Colours for standard output, or none: for files and pipes, and for people who set NO_COLOR.
#[derive(Debug, Clone, Copy)]
pub struct Colours {
    on: bool,
}

impl Colours {
    pub fn of_stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { on: wanted && terminal::stdout_is_terminal() }
    }

    #[cfg(test)]
    pub fn none() -> Self {
        Self { on: false }
    }

    pub fn paint(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Dim => 2,
        };
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// `340 ms`, `1.3 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms} ms"),
        1..10 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// How long ago, in one unit: `12 s`, `3 min`, `2 h`, `3 d`.
pub fn age(ms: u64) -> String {
    match ms / 1_000 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// Milliseconds since 1970 of a time as the API writes it, `2026-11-16T08:00:00.000Z`.
pub fn parse_time(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fraction = text.get(19..)?.strip_prefix('.').and_then(|rest| rest.get(..3)).and_then(|ms| ms.parse().ok());
    // Years that begin in March have their leap day last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day.checked_sub(1)?;
    let days = days.checked_sub(719_468)?;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + fraction.unwrap_or(0))
}

/// The time of day in UTC, `08:00:00.000`.
pub fn time_of_day(ms: u64) -> String {
    let (seconds, ms) = (ms / 1_000, ms % 1_000);
    format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

pub fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_taken_out() {
        for (raw, shown) in [
            ("plain ✓", "plain ✓"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link", "link"),
            ("\u{1b}]52;c;never ends", ""),
            ("10%\r50%\r100%\r", "100%"),
            ("a\tb\u{0}\u{9b}c", "a    b\u{fffd}\u{fffd}c"),
            ("x\u{202e}y", "x\u{fffd}y"),
        ] {
            assert_eq!(printable(raw), shown, "{raw:?}");
        }
        assert_eq!(first_line("\n one\ntwo", 10), "one…");
        assert_eq!(first_line("0123456789abc", 10), "012345678…");
    }

    #[test]
    fn times_and_durations_are_read_and_written() {
        assert_eq!(parse_time("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse_time("2024-02-29T12:34:56.789Z"), Some(1_709_210_096_789));
        assert_eq!(parse_time("soon"), None);
        assert_eq!(time_of_day(1_709_210_096_789), "12:34:56.789");
        let shown: Vec<String> = [0, 1_340, 12_000, 185_000, 7_800_000, 273_600_000].map(duration).to_vec();
        assert_eq!(shown, ["0 ms", "1.3 s", "12 s", "3 min 5 s", "2 h 10 min", "3 d 4 h"]);
        assert_eq!([999, 185_000, 7_800_000, 273_600_000].map(age), ["0 s", "3 min", "2 h", "3 d"]);
    }
}
