//! The API against real sandboxes and a real database.

mod events;
mod files;
mod jobs;
mod log;
mod mirror;
mod network;
mod origin;
mod refusals;
mod sandboxes;
mod schedule;
mod schemathesis;
mod status;
mod steps;
mod support;
mod system;
mod take_home;
mod terminal;
mod upload;
