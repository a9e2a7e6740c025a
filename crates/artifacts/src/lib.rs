//! What people take home of a job's workspace: an archive of it ([`zip`]), a patch of what changed ([`diff`]), or a
//! copy to start another job from ([`copy`]). All of it reads directories that hostile code has filled and may still
//! be changing, through [`cofferdam_linux::files`] alone. Calls block; who may ask for what is decided elsewhere.

pub mod copy;
pub mod diff;
mod error;
pub mod zip;

pub use error::ArtifactError;
