//! The launcher's side of a sandbox. For now only the egress proxy.

pub mod egress;
