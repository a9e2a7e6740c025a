//! Hostile code of our own. `attacker ACT ARGUMENTS…` performs one act and prints one line, `HELD: why` or
//! `BROKEN: what was got`. Whether that line is believed is the runner's matter, which looks from outside as well.
//!
//! The same program is run outside of a sandbox to show that an act works at all; acts that would harm a machine
//! refuse to run there (see [`guard`]). One file per category, each with its table of acts.

mod bombs;
mod files;
mod guard;
mod kernel;
mod mounts;
mod namespaces;
mod neighbours;
mod network;
mod outcome;
mod setid;
mod supervisor;
mod sys;
mod terminal;
mod writes;

use std::process::ExitCode;

use guard::Place;
use outcome::Outcome;

/// One thing that can be tried: its name, where it may be tried, and how.
type Act = (&'static str, Place, fn(&[String]) -> Outcome);

const TABLES: &[&[Act]] = &[
    files::ACTS,
    writes::ACTS,
    mounts::ACTS,
    setid::ACTS,
    namespaces::ACTS,
    supervisor::ACTS,
    kernel::ACTS,
    network::ACTS,
    neighbours::ACTS,
    bombs::ACTS,
    terminal::ACTS,
];

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let in_namespaces = arguments.first().is_some_and(|first| first == "--in-namespaces");
    if in_namespaces {
        arguments.remove(0);
        if let Err(error) = guard::enter_namespaces() {
            println!("HELD: no namespaces to show it in: {error}");
            return ExitCode::SUCCESS;
        }
    }
    let Some((name, rest)) = arguments.split_first() else {
        eprintln!("usage: attacker [--in-namespaces] ACT [ARGUMENT…]");
        return ExitCode::from(2);
    };
    let Some((_, place, act)) = TABLES.iter().copied().flatten().find(|(known, ..)| known == name) else {
        eprintln!("there is no act called {name}");
        return ExitCode::from(2);
    };
    let outcome = match place.permits(in_namespaces) {
        Ok(()) => act(rest),
        Err(why) => Outcome::Held(why),
    };
    println!("{outcome}");
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let all: Vec<&str> = TABLES.iter().copied().flatten().map(|(name, ..)| *name).collect();
        let names: std::collections::BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), names.len(), "{all:?}");
    }
}
