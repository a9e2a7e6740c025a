//! The API against real sandboxes and a real database.

mod hold;
mod jobs;
mod schemathesis;
mod support;
