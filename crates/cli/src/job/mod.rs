//! The commands about jobs, one file for each. They speak to a server through [`crate::client`] and know nothing of how
//! jobs are worked on.

pub mod cancel;
pub mod diff;
pub mod download;
pub mod events;
pub mod id;
pub mod logs;
pub mod ps;
pub mod retry;
pub mod rm;
pub mod run;
pub mod shell;
pub mod status;
pub mod view;
