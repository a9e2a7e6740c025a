//! The form of one attack: what is done inside, and how it is shown to work outside. The attacks themselves are in
//! [`crate::attacks`], one file per category.

use std::pin::Pin;

use crate::stage::Stage;
use crate::verdict::Category;

/// `Ok`: it was held, or (for a control) it was seen to work. `Err`: it was not. Either with the reason.
pub(crate) type Finding = Result<String, String>;
pub(crate) type Scene = for<'a> fn(&'a Stage<'a>) -> Pin<Box<dyn Future<Output = Finding> + 'a>>;

#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) category: Category,
    pub(crate) description: &'static str,
    pub(crate) inside: Inside,
    pub(crate) outside: Outside,
    pub(crate) control_required: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Inside {
    /// The attack program with these arguments, in the category's sandbox. `{secret}` and the like are filled in, see
    /// [`crate::facts::Facts::fill_in`].
    Act(&'static [&'static str]),
    /// The same on a terminal.
    ActOnTerminal(&'static [&'static str]),
    /// Whatever needs more than one step, or a sandbox of its own.
    Scene(Scene),
}

#[derive(Clone, Copy)]
pub(crate) enum Outside {
    /// The attack program with the same arguments.
    Same,
    /// With others: there is no process 1 of ours outside, for instance.
    With(&'static [&'static str]),
    /// In namespaces that the program makes for itself, so that nothing of the machine changes.
    InNamespaces,
    /// Started by a shell, which prepares something.
    Shell(&'static str),
    Scene(Scene),
    Never(&'static str),
}

/// For acts that would do to the machine what they are meant to do to a sandbox.
pub(crate) const HARMFUL: Outside = Outside::Never("it would harm this machine");

impl Attack {
    const fn new(category: Category, name: &'static str, description: &'static str, inside: Inside) -> Self {
        Self { name, category, description, inside, outside: Outside::Same, control_required: false }
    }

    pub(crate) const fn act(
        category: Category,
        name: &'static str,
        description: &'static str,
        arguments: &'static [&'static str],
    ) -> Self {
        Self::new(category, name, description, Inside::Act(arguments))
    }

    pub(crate) const fn scene(
        category: Category,
        name: &'static str,
        description: &'static str,
        scene: Scene,
        outside: Outside,
    ) -> Self {
        let mut attack = Self::new(category, name, description, Inside::Scene(scene));
        attack.outside = outside;
        attack
    }

    pub(crate) const fn on_terminal(mut self) -> Self {
        if let Inside::Act(arguments) = self.inside {
            self.inside = Inside::ActOnTerminal(arguments);
        }
        self
    }

    pub(crate) const fn outside(mut self, outside: Outside) -> Self {
        self.outside = outside;
        self
    }

    /// Works outside for everybody: if it does not, the attack is faulty.
    pub(crate) const fn shown(mut self) -> Self {
        self.control_required = true;
        self
    }
}
