//! Files of a workspace that hostile code is changing at the same time: the one way in which guest and server touch
//! them. Paths are resolved beneath the workspace by the kernel (`resolve`), trees are walked by descriptor
//! (`walk`), and everything that grows with what the sandbox does has a bound. Calls block; quotas are counted here
//! but enforced elsewhere.

mod archive_read;
mod archive_write;
mod create;
mod error;
mod operations;
mod path;
mod remove;
mod resolve;
mod sorted;
mod tree;
mod walk;
mod watch;
mod write;

pub use archive_read::Extracted;
pub use archive_write::{ARCHIVE_DEFAULT_LIMITS, ArchiveLimits, Archived};
pub use create::Creator;
pub use error::FileError;
pub use path::{NAME_MAX_BYTES, PATH_MAX_BYTES, RelativePath, percent_decode, percent_encode};
pub use resolve::Workspace;
pub use sorted::{Content, Found, SortedWalk, Unavailable, compare_paths};
pub use tree::{LIST_ENTRIES_MAX, TREE_ENTRIES_MAX, Usage};
pub use watch::{WATCHES_MAX, Watcher};
pub use write::{FileWriter, WriteOptions};
