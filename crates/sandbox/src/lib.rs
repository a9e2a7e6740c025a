//! Sandboxes from the outside. [`local`] makes them on this machine, [`client`] talks to the guest in one, [`pool`]
//! keeps some ready, [`egress`] is their only way to a network, [`probe`] tells what this machine can do.
//!
//! Start from [`local::LocalRuntime::launch`] and [`local::Sandbox`].

pub mod client;
pub mod egress;
mod error;
mod guest_program;
pub mod local;
pub mod pool;
pub mod probe;

pub use error::SandboxError;
