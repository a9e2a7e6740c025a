//! The limits of one sandbox: names, defaults, ranges, and how people write them (`memory=512MiB`, `time=30s`).
//! One table defines each limit; the command line, error messages and documentation are made from it.

use std::fmt;

use serde::{Deserialize, Serialize};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// Units are last in the names. `cpu_milli` is thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub processes: u64,
    pub open_files: u64,
    pub workspace_bytes: u64,
    pub tmp_bytes: u64,
    /// Wall time of one exec; 0 is "no limit".
    pub time_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_milli: 2_000,
            memory_bytes: GIB,
            processes: 512,
            open_files: 4_096,
            workspace_bytes: 4 * GIB,
            tmp_bytes: 512 * MIB,
            time_ms: 0,
        }
    }
}

/// How a limit's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `0.5`, `2`: cores.
    Cores,
    /// `512MiB`, `1GiB`, `100000`: bytes.
    Bytes,
    /// `256`: a plain number.
    Count,
    /// `30s`, `5m`, `2h`, `500ms`; `0` switches the limit off.
    Duration,
}

/// One row of the table of limits.
#[derive(Debug)]
pub struct LimitDefinition {
    pub name: &'static str,
    pub unit: Unit,
    pub help: &'static str,
    /// Smallest and largest value accepted, in the field's own unit. Lower bounds are what a shell needs to start.
    pub range: (u64, u64),
    field: fn(&mut Limits) -> &mut u64,
}

impl LimitDefinition {
    pub fn value_in(&self, limits: &Limits) -> u64 {
        let mut copy = *limits;
        *(self.field)(&mut copy)
    }
}

pub const LIMITS: &[LimitDefinition] = &[
    LimitDefinition {
        name: "cpu",
        unit: Unit::Cores,
        help: "processor time, in cores",
        range: (10, 1_024_000),
        field: |l| &mut l.cpu_milli,
    },
    LimitDefinition {
        name: "memory",
        unit: Unit::Bytes,
        help: "memory of all processes together, /tmp included",
        range: (16 * MIB, 64 * 1024 * GIB),
        field: |l| &mut l.memory_bytes,
    },
    LimitDefinition {
        name: "processes",
        unit: Unit::Count,
        help: "processes and threads alive at once",
        range: (4, 4_000_000),
        field: |l| &mut l.processes,
    },
    LimitDefinition {
        name: "files",
        unit: Unit::Count,
        help: "open files of one process",
        range: (16, 1_048_576),
        field: |l| &mut l.open_files,
    },
    LimitDefinition {
        name: "workspace",
        unit: Unit::Bytes,
        help: "size of /workspace",
        range: (64 * KIB, 64 * 1024 * GIB),
        field: |l| &mut l.workspace_bytes,
    },
    LimitDefinition {
        name: "tmp",
        unit: Unit::Bytes,
        help: "size of /tmp, /home/agent, /dev/shm, /run and /var/tmp together; it is memory",
        range: (64 * KIB, 1024 * GIB),
        field: |l| &mut l.tmp_bytes,
    },
    LimitDefinition {
        name: "time",
        unit: Unit::Duration,
        help: "wall time of a command; 0 for none",
        range: (0, 30 * 24 * 3_600_000),
        field: |l| &mut l.time_ms,
    },
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("a limit is written NAME=VALUE, for instance memory=512MiB; got \"{0}\"")]
    Shape(String),
    #[error("there is no limit called \"{0}\"; the limits are {names}", names = names())]
    UnknownName(String),
    #[error("\"{value}\" is not a value for the limit {name}; write {example}")]
    Value { name: &'static str, value: String, example: &'static str },
    #[error("the limit {name} must be between {low} and {high}; got {value}")]
    Range { name: &'static str, value: String, low: String, high: String },
}

impl Limits {
    /// Applies one `NAME=VALUE`, as given on the command line or in a job.
    pub fn set(&mut self, assignment: &str) -> Result<(), LimitError> {
        let (name, value) = assignment.split_once('=').ok_or_else(|| LimitError::Shape(assignment.to_owned()))?;
        let definition = LIMITS
            .iter()
            .find(|d| d.name == name.trim())
            .ok_or_else(|| LimitError::UnknownName(name.trim().to_owned()))?;
        let value = value.trim();
        let number = definition.unit.parse(value).ok_or_else(|| LimitError::Value {
            name: definition.name,
            value: value.to_owned(),
            example: definition.unit.example(),
        })?;
        let (low, high) = definition.range;
        if !(low..=high).contains(&number) {
            return Err(LimitError::Range {
                name: definition.name,
                value: value.to_owned(),
                low: definition.unit.show(low),
                high: definition.unit.show(high),
            });
        }
        *(definition.field)(self) = number;
        Ok(())
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, definition) in LIMITS.iter().enumerate() {
            let value = definition.value_in(self);
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}{}={}", definition.name, definition.unit.show(value))?;
        }
        Ok(())
    }
}

fn names() -> String {
    LIMITS.iter().map(|d| d.name).collect::<Vec<_>>().join(", ")
}

const BYTE_UNITS: &[(&str, u64)] = &[
    ("TiB", 1024 * GIB),
    ("GiB", GIB),
    ("MiB", MIB),
    ("KiB", KIB),
    ("T", 1024 * GIB),
    ("G", GIB),
    ("M", MIB),
    ("K", KIB),
    ("B", 1),
];
const DURATION_UNITS: &[(&str, u64)] = &[("ms", 1), ("h", 3_600_000), ("min", 60_000), ("m", 60_000), ("s", 1_000)];

impl Unit {
    /// In the unit's own number: bytes, milliseconds, thousandths of a core.
    pub fn parse(self, text: &str) -> Option<u64> {
        match self {
            Self::Count => plain(text),
            Self::Cores => {
                let cores: f64 = text.parse().ok().filter(|c: &f64| c.is_finite() && *c >= 0.0)?;
                Some((cores * 1000.0).round().min(u64::MAX as f64) as u64)
            }
            Self::Bytes => scaled(text, BYTE_UNITS),
            Self::Duration => scaled(text, DURATION_UNITS).or_else(|| plain(text)?.checked_mul(1000)),
        }
    }

    /// What to write instead, for messages.
    pub fn example(self) -> &'static str {
        match self {
            Self::Cores => "a number of cores such as 0.5 or 2",
            Self::Bytes => "a size such as 512MiB or 2GiB",
            Self::Count => "a whole number such as 256",
            Self::Duration => "a duration such as 30s, 5m or 500ms",
        }
    }

    /// The inverse of `parse`, in the largest unit that keeps the value exact.
    pub fn show(self, value: u64) -> String {
        match self {
            Self::Count => value.to_string(),
            Self::Cores => format!("{}", value as f64 / 1000.0),
            Self::Bytes => show_bytes(value),
            Self::Duration => show_duration(value),
        }
    }
}

pub fn show_bytes(value: u64) -> String {
    for (unit, scale) in &BYTE_UNITS[..4] {
        if value >= *scale && value.is_multiple_of(*scale) {
            return format!("{} {unit}", value / scale);
        }
    }
    format!("{value} B")
}

pub fn show_duration(ms: u64) -> String {
    match ms {
        0 => "0 s".to_owned(),
        ms if ms.is_multiple_of(3_600_000) => format!("{} h", ms / 3_600_000),
        ms if ms.is_multiple_of(60_000) => format!("{} min", ms / 60_000),
        ms if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}

fn plain(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    for (unit, scale) in units {
        if let Some(number) = text.strip_suffix(unit) {
            return plain(number.trim_end())?.checked_mul(*scale);
        }
    }
    plain(text).filter(|n| units == BYTE_UNITS || *n == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_in_their_units() {
        let mut limits = Limits::default();
        for text in
            ["memory=512MiB", "cpu=0.5", "processes=64", "time=1500ms", "tmp=1G", "files= 100 ", "workspace=1048576"]
        {
            limits.set(text).unwrap();
        }
        assert_eq!(
            limits,
            Limits {
                cpu_milli: 500,
                memory_bytes: 512 * MIB,
                processes: 64,
                open_files: 100,
                workspace_bytes: MIB,
                tmp_bytes: GIB,
                time_ms: 1500,
            }
        );
        limits.set("time=30").unwrap();
        assert_eq!(limits.time_ms, 30_000);
    }

    #[test]
    fn mistakes_are_named_with_their_remedy() {
        let mistake = |text: &str| Limits::default().set(text).unwrap_err().to_string();
        assert_eq!(mistake("memory"), "a limit is written NAME=VALUE, for instance memory=512MiB; got \"memory\"");
        assert_eq!(
            mistake("ram=1GiB"),
            "there is no limit called \"ram\"; the limits are cpu, memory, processes, files, workspace, tmp, time"
        );
        assert_eq!(
            mistake("memory=lots"),
            "\"lots\" is not a value for the limit memory; write a size such as 512MiB or 2GiB"
        );
        assert_eq!(mistake("memory=1MiB"), "the limit memory must be between 16 MiB and 64 TiB; got 1MiB");
        for text in [
            "memory=-1",
            "memory=99999999999999999999",
            "cpu=nan",
            "cpu=1e400",
            "time=5 days",
            "processes=1.5",
            "time=",
        ] {
            assert!(Limits::default().set(text).is_err(), "{text} was accepted");
        }
    }
}
