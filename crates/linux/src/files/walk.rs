//! Walking a tree by descriptors: never through a link, no recursion, a bounded number of open directories, and
//! memory that grows with the depth only. What is done with each entry is up to the caller.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::Dir;
use rustix::io::Errno;

use super::resolve;

/// Directories kept open on the way down. Trees are rarely deeper, and the guest may have few descriptors; above
/// these, a directory is found again through `..`.
const OPEN_DIRECTORIES_MAX: usize = 16;

/// The place in a tree: a directory stream, and the way back up.
pub(super) struct Walk {
    top: OwnedFd,
    stream: Dir,
    /// Where the stream goes on after the entry it gave last.
    position: i64,
    ancestors: Vec<Ancestor>,
    /// From the top to the directory we are in.
    path: Vec<u8>,
}

struct Ancestor {
    directory: Place,
    position: i64,
    /// How much of the walk's path leads to this directory.
    path_length: usize,
}

enum Place {
    Open(Dir),
    /// The device and inode: a directory reached through `..` is only accepted if it is the one we came from.
    Closed((u64, u64)),
}

impl Walk {
    pub(super) fn new(top: OwnedFd) -> Result<Self, Errno> {
        let stream = Dir::new(resolve::open_subdirectory(&top, c".")?)?;
        Ok(Self { top, stream, position: 0, ancestors: Vec::new(), path: Vec::new() })
    }

    /// The next name in this directory, in no order. None at its end: `ascend`.
    pub(super) fn next_name(&mut self) -> Result<Option<CString>, Errno> {
        while let Some(entry) = self.stream.read() {
            let entry = entry?;
            self.position = entry.offset();
            if entry.file_name() != c"." && entry.file_name() != c".." {
                return Ok(Some(entry.file_name().to_owned()));
            }
        }
        Ok(None)
    }

    pub(super) fn directory(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.stream.fd()
    }

    /// 0 in the directory where the walk began.
    pub(super) fn depth(&self) -> usize {
        self.ancestors.len()
    }

    /// The path of an entry of this directory, relative to where the walk began.
    pub(super) fn path_of(&self, name: &CStr) -> Vec<u8> {
        let mut path = self.path.clone();
        push(&mut path, name.to_bytes());
        path
    }

    /// Goes into a subdirectory of this directory.
    pub(super) fn descend(&mut self, name: &CStr) -> Result<(), Errno> {
        let stream = Dir::new(resolve::open_subdirectory(self.directory()?, name)?)?;
        if let Some(index) = self.ancestors.len().checked_sub(OPEN_DIRECTORIES_MAX) {
            let ancestor = &mut self.ancestors[index];
            if let Place::Open(directory) = &ancestor.directory {
                ancestor.directory = Place::Closed(identity(directory.fd()?)?);
            }
        }
        self.ancestors.push(Ancestor {
            directory: Place::Open(std::mem::replace(&mut self.stream, stream)),
            position: self.position,
            path_length: self.path.len(),
        });
        push(&mut self.path, name.to_bytes());
        self.position = 0;
        Ok(())
    }

    /// As [`Self::descend`]; false if it is no directory (any more), or one that we may not read.
    pub(super) fn try_descend(&mut self, name: &CStr) -> Result<bool, Errno> {
        match self.descend(name) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Goes back up, to where the parent's stream was left. Gives the name of the directory that was left; none at
    /// the top.
    pub(super) fn ascend(&mut self) -> Result<Option<CString>, Errno> {
        let Some(ancestor) = self.ancestors.pop() else { return Ok(None) };
        self.position = ancestor.position;
        let mut path_length = ancestor.path_length;
        self.stream = match ancestor.directory {
            Place::Open(stream) => stream,
            Place::Closed(expected) => {
                let parent = resolve::open_subdirectory(self.directory()?, c"..");
                let directory = match parent {
                    Ok(parent) if identity(&parent)? == expected => parent,
                    // This directory was moved elsewhere while we were in it.
                    _ => {
                        let (directory, length) = self.find_again(&ancestor)?;
                        path_length = length;
                        directory
                    }
                };
                let mut stream = Dir::new(directory)?;
                if self.position != 0 {
                    stream.seek(self.position)?;
                }
                stream
            }
        };
        let left = self.path.split_off(path_length);
        let name = left.split(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or_default();
        Ok(Some(CString::new(name).map_err(|_| Errno::INVAL)?))
    }

    /// The deepest ancestor that is still where it was, from the top down; those below it are given up.
    fn find_again(&mut self, last: &Ancestor) -> Result<(OwnedFd, usize), Errno> {
        let mut directory = resolve::open_subdirectory(&self.top, c".")?;
        // Ancestors are closed from the top down: all above a closed one are closed.
        for index in 0..self.ancestors.len() {
            let here = self.ancestors[index].path_length;
            let below = self.ancestors.get(index + 1).unwrap_or(last);
            let name = &self.path[here..below.path_length];
            let name = name.strip_prefix(b"/").unwrap_or(name);
            let found = resolve::open_subdirectory(&directory, name);
            match (found, &below.directory) {
                (Ok(found), Place::Closed(expected)) if identity(&found)? == *expected => directory = found,
                _ => {
                    self.position = self.ancestors[index].position;
                    self.ancestors.truncate(index);
                    return Ok((directory, here));
                }
            }
        }
        Ok((directory, last.path_length))
    }
}

fn identity(directory: impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_moved_away_while_inside_does_not_take_the_walk_along() {
        const LEVELS: usize = 30;
        let names: Vec<String> = (0..LEVELS).map(|level| level.to_string()).collect();
        // The levels moved out, deepest first; the names given on the way up from there.
        for (moved, expected) in [(vec![5], ["5", "4", "3", "2", "1", "0"].as_slice()), (vec![5, 2], &["2", "1", "0"])]
        {
            let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            std::fs::create_dir_all(inside.path().join(names.join("/"))).unwrap();
            let mut walk = Walk::new(std::fs::File::open(inside.path()).unwrap().into()).unwrap();
            for _ in 0..LEVELS {
                let name = walk.next_name().unwrap().unwrap();
                walk.descend(&name).unwrap();
            }
            for level in moved {
                let from = inside.path().join(names[..=level].join("/"));
                std::fs::rename(from, outside.path().join(level.to_string())).unwrap();
            }
            let mut left = Vec::new();
            while let Some(name) = walk.ascend().unwrap() {
                left.push(name.into_string().unwrap());
                let is_outside = identity(walk.directory().unwrap()).unwrap()
                    == identity(std::fs::File::open(outside.path()).unwrap()).unwrap();
                assert!(!is_outside, "after {left:?}");
            }
            assert_eq!(left[..LEVELS - 6], names.iter().skip(6).rev().cloned().collect::<Vec<_>>());
            assert_eq!(left[LEVELS - 6..], *expected);
        }
    }
}
