//! What came of an act, as the one line that is printed.

use std::fmt;
use std::io;

#[derive(Debug)]
pub enum Outcome {
    Held(String),
    Broken(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match self {
            Self::Held(text) => ("HELD", text),
            Self::Broken(text) => ("BROKEN", text),
        };
        // One line, whatever was read.
        write!(f, "{word}: {}", text.replace(['\n', '\r'], " "))
    }
}

/// An act that must fail: success is the hole.
pub fn tried<T>(what: &str, result: io::Result<T>) -> Outcome {
    match result {
        Ok(_) => Outcome::Broken(format!("{what} worked")),
        Err(error) => Outcome::Held(format!("{what}: {error}")),
    }
}

/// Several ways to the same end: one that is open is enough.
pub fn any(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let mut reasons = Vec::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Held(why) => reasons.push(why),
            broken @ Outcome::Broken(_) => return broken,
        }
    }
    Outcome::Held(reasons.join("; "))
}
