//! What the parts of Cofferdam say to each other: jobs and their events, and across the sandbox wall limits, network
//! policy, launch configuration, the guest's requests and answers. Types, parsing and validation only; nothing here
//! touches the system.

pub mod event;
pub mod exec;
pub mod files;
pub mod job;
pub mod launch;
pub mod limits;
pub mod network;
pub mod output;
pub mod request;
pub mod usage;

pub use limits::Limits;
pub use network::NetworkPolicy;
