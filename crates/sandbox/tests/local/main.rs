//! Real sandboxes on this machine, through the library: what works inside, what is kept, what is left behind.

mod commands;
mod files;
mod inside;
mod lifetimes;
mod limits;
mod network;
mod output;
mod support;
