//! Samples and what is said about them: quantiles, and numbers as people read them. Knows nothing of what was
//! measured.

/// Seconds, bytes, or so much per second; whoever made it knows which.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest sample that at least this share of all samples does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    pub fn p50(&self) -> f64 {
        self.quantile(0.50)
    }

    pub fn p95(&self) -> f64 {
        self.quantile(0.95)
    }

    pub fn p99(&self) -> f64 {
        self.quantile(0.99)
    }
}

/// One line of a table: somebody's samples, or why there are none.
#[derive(Debug, Clone)]
pub struct Row {
    pub name: String,
    pub outcome: Result<Samples, String>,
}

impl Row {
    pub fn p50(&self) -> Option<f64> {
        self.outcome.as_ref().ok().map(Samples::p50)
    }
}

/// Rows that were measured together, alternating.
#[derive(Debug, Clone)]
pub struct Section {
    pub title: &'static str,
    /// What happens between the start and the end of the clock.
    pub note: String,
    pub unit: Unit,
    pub rows: Vec<Row>,
}

impl Section {
    pub fn p50(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name).and_then(Row::p50)
    }
}

/// Figures that belong together and are not comparisons: rows of text under a head.
#[derive(Debug, Clone)]
pub struct Table {
    pub title: &'static str,
    pub note: String,
    pub head: &'static [&'static str],
    /// Those that are shorter than the head are filled up.
    pub rows: Vec<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Bytes,
    BytesPerSecond,
    PerSecond,
}

impl Unit {
    /// Of speeds the low ones are the bad ones.
    pub fn is_speed(self) -> bool {
        matches!(self, Self::BytesPerSecond | Self::PerSecond)
    }

    pub fn show(self, value: f64) -> String {
        match self {
            Self::Seconds if value >= 10.0 => format!("{value:.1} s"),
            Self::Seconds if value >= 0.1 => format!("{:.0} ms", value * 1e3),
            Self::Seconds => format!("{:.2} ms", value * 1e3),
            Self::Bytes if value < 1e6 => format!("{:.0} kB", value / 1e3),
            Self::Bytes => format!("{:.2} MB", value / 1e6),
            Self::BytesPerSecond if value < 1e9 => format!("{:.0} MB/s", value / 1e6),
            Self::BytesPerSecond => format!("{:.2} GB/s", value / 1e9),
            Self::PerSecond => format!("{value:.0}/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples = Samples((1..=100).rev().map(f64::from).collect());
        assert_eq!((samples.p50(), samples.p95(), samples.p99()), (50.0, 95.0, 99.0));
        assert_eq!(Samples(vec![7.0]).p99(), 7.0);
        assert!(Samples::default().p50().is_nan());
    }
}
