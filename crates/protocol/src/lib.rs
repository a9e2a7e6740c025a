//! What the two sides of the sandbox wall say to each other: limits, network policy, launch configuration, the
//! guest's requests and answers. Types, parsing and validation only; nothing here touches the system.

pub mod exec;
pub mod files;
pub mod launch;
pub mod limits;
pub mod network;
pub mod output;
pub mod request;
pub mod usage;

pub use limits::Limits;
pub use network::NetworkPolicy;
