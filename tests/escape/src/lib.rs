//! The escape suite: attacks on a sandbox of this machine, each tried inside and, where that can be shown, outside as
//! proof that it is an attack at all. Owns the list of attacks, the stage they are played on and the judgement; the
//! acts themselves are a program of their own (`attacker/`), which is carried in here and put into each sandbox.
//!
//! Start from [`run_all`]. A verdict never rests on the attacker's own word alone: see [`facts`] for what is looked at
//! from outside after every single attack.

mod attack;
mod attacks;
mod facts;
mod outside;
mod run;
mod stage;
mod verdict;

pub use run::{run_all, run_category};
pub use verdict::{Category, Control, Scorecard, Verdict};
