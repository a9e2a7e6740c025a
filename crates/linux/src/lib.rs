//! Linux pieces that both the guest and the programs outside need, in safe code: files resolved beneath a directory
//! ([`files`]), and messages that carry descriptors over a Unix socket ([`channel`]).

pub mod channel;
pub mod files;
