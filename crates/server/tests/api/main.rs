//! The API against real sandboxes and a real database.

mod jobs;
mod schemathesis;
mod support;
