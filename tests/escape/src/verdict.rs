//! What is said about an attack, and about all of them.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    Files,
    FileInterface,
    Writes,
    Mounts,
    SetId,
    Namespaces,
    Supervisor,
    Kernel,
    Network,
    Neighbours,
    Bombs,
    Terminal,
}

impl Category {
    pub const ALL: [Self; 12] = [
        Self::Files,
        Self::FileInterface,
        Self::Writes,
        Self::Mounts,
        Self::SetId,
        Self::Namespaces,
        Self::Supervisor,
        Self::Kernel,
        Self::Network,
        Self::Neighbours,
        Self::Bombs,
        Self::Terminal,
    ];
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "reading the host",
            Self::FileInterface => "the file interface",
            Self::Writes => "writing outside",
            Self::Mounts => "mounts",
            Self::SetId => "set-uid files",
            Self::Namespaces => "namespaces and rights",
            Self::Supervisor => "guest and reaper",
            Self::Kernel => "kernel interfaces",
            Self::Network => "network",
            Self::Neighbours => "neighbours",
            Self::Bombs => "bombs",
            Self::Terminal => "terminals",
        })
    }
}

/// Whether the same act was seen to work where there is no sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "control", content = "detail")]
pub enum Control {
    ShownToWorkOutside(String),
    NotShown(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub name: &'static str,
    pub category: Category,
    pub description: &'static str,
    pub held: bool,
    pub detail: String,
    pub control: Control,
    /// The act works outside for everybody, everywhere: a control that did not show it means that the attack itself
    /// is faulty, and that its being held proves nothing.
    pub control_required: bool,
}

impl Verdict {
    /// Held, and worth something.
    pub fn passed(&self) -> bool {
        self.held && (!self.control_required || matches!(self.control, Control::ShownToWorkOutside(_)))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.held { "held  " } else { "BROKEN" };
        let (mark, control) = match &self.control {
            Control::ShownToWorkOutside(detail) => ("works outside", detail),
            Control::NotShown(reason) if self.control_required => ("NOT SHOWN outside", reason),
            Control::NotShown(reason) => ("not shown outside", reason),
        };
        write!(f, "{word} {:<32} {} | {mark}: {control}", self.name, self.detail)
    }
}

/// All verdicts, in the order in which they were found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Scorecard {
    pub verdicts: Vec<Verdict>,
}

impl Scorecard {
    pub fn held(&self) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.held).count()
    }

    pub fn shown_outside(&self) -> usize {
        let shown = |verdict: &&Verdict| matches!(verdict.control, Control::ShownToWorkOutside(_));
        self.verdicts.iter().filter(shown).count()
    }

    pub fn all_passed(&self) -> bool {
        !self.verdicts.is_empty() && self.verdicts.iter().all(Verdict::passed)
    }
}

impl fmt::Display for Scorecard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut category = None;
        for verdict in &self.verdicts {
            if category.replace(verdict.category) != Some(verdict.category) {
                writeln!(f, "{}", verdict.category)?;
            }
            writeln!(f, "  {verdict}")?;
        }
        let (all, held, shown) = (self.verdicts.len(), self.held(), self.shown_outside());
        write!(f, "{held} of {all} attacks held; {shown} of them were shown to work outside")
    }
}
