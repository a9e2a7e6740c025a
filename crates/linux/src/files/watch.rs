//! Watching a tree with inotify: directories get a watch each, new ones as they appear. Costs nothing until a
//! `Watcher` exists. Events are hints about a tree that goes on changing: an entry that appears while its directory
//! is being added may be reported twice, and `Overflow` means that a listing is the only truth.

use std::collections::HashMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use cofferdam_protocol::files::{ChangeKind, FileChange, FileKind};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::Errno;

use super::error::FileError;
use super::path::{PATH_MAX_BYTES, RelativePath, percent_encode};
use super::resolve::{self, Workspace};
use super::walk::Walk;
use super::write::is_temporary;

/// Directories watched at once: the kernel's own default for all of a user's watches, and about 10 MB of its memory.
pub const WATCHES_MAX: usize = 8_192;
/// Changes in one answer. One call ends even if files change faster than events are read; the rest is for the next.
const CHANGES_MAX: usize = 10_000;
/// Entries looked at in order to find the directories among them: some seconds of work. Trees with more are watched
/// in part.
const WALKED_ENTRIES_MAX: usize = 1_000_000;
/// Some hundred events with names of the usual length, and at least fifteen with the longest.
const EVENT_BUFFER_BYTES: usize = 4096;

const WATCHED: WatchFlags = WatchFlags::from_bits_retain(
    WatchFlags::CREATE.bits()
        | WatchFlags::DELETE.bits()
        | WatchFlags::MOVED_FROM.bits()
        | WatchFlags::MOVED_TO.bits()
        | WatchFlags::MODIFY.bits()
        | WatchFlags::ATTRIB.bits()
        | WatchFlags::ONLYDIR.bits()
        | WatchFlags::EXCL_UNLINK.bits(),
);

#[derive(Debug)]
pub struct Watcher {
    inotify: OwnedFd,
    /// The directory asked for. Paths are relative to it.
    top: OwnedFd,
    /// Where each watched directory was when it was added.
    directories: HashMap<i32, Vec<u8>>,
    changes: Vec<FileChange>,
}

struct Event {
    watch: i32,
    flags: ReadFlags,
    name: Vec<u8>,
}

impl Workspace {
    /// Watches everything beneath a directory, from now on. Call `read_changes` once before waiting: it tells at once
    /// if there are more directories than can be watched.
    pub fn watch(&self, path: &RelativePath) -> Result<Watcher, FileError> {
        let fail = |errno| FileError::from_errno(path, errno);
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(fail)?;
        let top = self.open_directory(path)?;
        let mut watcher = Watcher { inotify, top, directories: HashMap::new(), changes: Vec::new() };
        watcher.add_tree(&RelativePath::root(), false).map_err(fail)?;
        Ok(watcher)
    }
}

impl AsFd for Watcher {
    /// Readable when there are changes; for poll and its like.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl Watcher {
    /// The changes since the last call, without waiting; empty if there are none.
    pub fn read_changes(&mut self) -> Result<Vec<FileChange>, FileError> {
        let fail = |errno| FileError::from_errno(".", errno);
        while self.changes.len() < CHANGES_MAX {
            let events = self.read_events().map_err(fail)?;
            if events.is_empty() {
                break;
            }
            for event in events {
                self.take(event).map_err(fail)?;
            }
        }
        // A program that writes a file says so many times.
        self.changes.dedup();
        Ok(std::mem::take(&mut self.changes))
    }

    /// One buffer full: a reader dropped before its buffer is empty would lose events.
    fn read_events(&self) -> Result<Vec<Event>, Errno> {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BUFFER_BYTES];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => events.push(Event {
                    watch: event.wd(),
                    flags: event.events(),
                    name: event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default(),
                }),
                Err(Errno::AGAIN) => return Ok(events),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            }
            if reader.is_buffer_empty() {
                return Ok(events);
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Errno> {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.push(ChangeKind::Overflow, b"");
            // Directories may have appeared unseen.
            return self.add_tree(&RelativePath::root(), false);
        }
        if event.flags.contains(ReadFlags::IGNORED) {
            if self.directories.remove(&event.watch).is_some_and(|path| path.is_empty()) {
                self.push(ChangeKind::Removed, b"");
            }
            return Ok(());
        }
        // Events may still come from a directory that was moved away, and whose watch is gone.
        let Some(directory) = self.directories.get(&event.watch) else { return Ok(()) };
        if event.name.is_empty() || is_temporary(&event.name) {
            return Ok(());
        }
        let path = join(directory, &event.name);
        let is_directory = event.flags.contains(ReadFlags::ISDIR);
        if event.flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            if is_directory {
                self.forget(&path);
            }
            self.push(ChangeKind::Removed, &path);
        } else if event.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.push(ChangeKind::Created, &path);
            if is_directory {
                match RelativePath::parse(&path) {
                    Ok(path) => self.add_tree(&path, true)?,
                    Err(_) => self.push(ChangeKind::Overflow, b""),
                }
            }
        } else if event.flags.intersects(ReadFlags::MODIFY | ReadFlags::ATTRIB) && !is_directory {
            self.push(ChangeKind::Modified, &path);
        }
        Ok(())
    }

    /// Watches a directory and those in it. With `report`, what is in them already is new.
    fn add_tree(&mut self, path: &RelativePath, report: bool) -> Result<(), Errno> {
        // No links at all: a directory that has been swapped for one meanwhile is not the one that appeared.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = match resolve::open_beneath(self.top.as_fd(), path, flags, ResolveFlags::NO_SYMLINKS) {
            Ok(directory) => directory,
            // Gone again, or not ours to read.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if !self.add(directory.as_fd(), path.as_bytes().to_vec())? {
            return Ok(());
        }
        let mut walk = Walk::new(directory)?;
        for _ in 0..WALKED_ENTRIES_MAX {
            let Some(name) = walk.next_name()? else {
                match walk.ascend()? {
                    Some(_) => continue,
                    None => return Ok(()),
                }
            };
            if is_temporary(name.to_bytes()) {
                continue;
            }
            let entry_path = join(path.as_bytes(), &walk.path_of(&name));
            match (report, self.changes.len() < CHANGES_MAX) {
                (true, true) => self.push(ChangeKind::Created, &entry_path),
                // Watching goes on, so that what happens from now on is seen.
                (true, false) => self.push(ChangeKind::Overflow, b""),
                (false, _) => {}
            }
            if self.is_directory(&walk, &name)?
                && walk.try_descend(&name)?
                && !self.add(walk.directory()?, entry_path)?
            {
                return Ok(());
            }
        }
        self.push(ChangeKind::Overflow, b"");
        Ok(())
    }

    fn is_directory(&self, walk: &Walk, name: &CStr) -> Result<bool, Errno> {
        let stat = resolve::stat_entry(walk.directory()?, name);
        Ok(stat.is_ok_and(|stat| resolve::kind_of(&stat) == FileKind::Directory))
    }

    /// False, and an overflow, if there are too many watches already.
    fn add(&mut self, directory: BorrowedFd<'_>, path: Vec<u8>) -> Result<bool, Errno> {
        if self.directories.len() >= WATCHES_MAX || path.len() >= PATH_MAX_BYTES {
            self.push(ChangeKind::Overflow, b"");
            return Ok(false);
        }
        // inotify takes a path only; this one names the directory that we hold, wherever it is moved meanwhile.
        let held = format!("/proc/self/fd/{}", directory.as_raw_fd());
        match inotify::add_watch(&self.inotify, held, WATCHED) {
            Ok(watch) => {
                self.directories.insert(watch, path);
                Ok(true)
            }
            Err(Errno::NOSPC) => {
                self.push(ChangeKind::Overflow, b"");
                Ok(false)
            }
            Err(errno) => Err(errno),
        }
    }

    /// A directory that is gone takes the watches beneath it with it; one that moved gets new ones where it arrives.
    fn forget(&mut self, path: &[u8]) {
        let inotify = &self.inotify;
        self.directories.retain(|watch, watched| {
            let beneath = watched.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
            if beneath {
                // The kernel has dropped it already if the directory was deleted.
                let _ = inotify::remove_watch(inotify, *watch);
            }
            !beneath
        });
    }

    fn push(&mut self, kind: ChangeKind, path: &[u8]) {
        let change = FileChange { kind, path: String::from_utf8_lossy(path).into_owned(), raw: percent_encode(path) };
        if self.changes.last() != Some(&change) {
            self.changes.push(change);
        }
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        directory => [directory, b"/", name].concat(),
    }
}
