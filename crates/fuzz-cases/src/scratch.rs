//! A workspace full of ways out, and beside it what they lead to: files that must neither change nor be read. Links
//! lead nowhere else, so that a mistake found by the fuzzer costs nobody's files.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cofferdam_linux::files::Workspace;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use tempfile::TempDir;

/// The time of everything outside, in seconds. Reading brings the time of access up to date only if it is not after
/// that of the last change.
const ACCESSED: i64 = 1;
const MODIFIED: i64 = 2;
/// By this a stat of something outside is known; nothing inside is as old.
pub const OUTSIDE_MODIFIED_MS: i64 = MODIFIED * 1_000;

pub struct Scratch {
    directory: TempDir,
    pub inside: PathBuf,
    pub workspace: Workspace,
    /// Random, so that no input can hold it.
    secret: String,
    /// Held open for the link to it in /proc.
    outside: File,
    before: Vec<Seen>,
}

/// What would differ after a change or a read.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    inode: u64,
    mode: u32,
    links: u64,
    size: i64,
    modified: (i64, u64),
    accessed: i64,
}

const OUTSIDE: [&str; 5] = ["", "outside", "outside/secret", "outside/deep", "outside/deep/inner"];

impl Scratch {
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("cofferdam-fuzz-").tempdir().expect("a temporary directory");
        let (inside, outside) = (directory.path().join("inside"), directory.path().join("outside"));
        std::fs::create_dir_all(outside.join("deep")).expect("a directory outside");
        let secret = format!("{:016x}", RandomState::new().build_hasher().finish());
        for name in ["secret", "deep/inner"] {
            std::fs::write(outside.join(name), &secret).expect("a file outside");
        }
        std::fs::create_dir_all(inside.join("dir/sub")).expect("a directory inside");
        std::fs::write(inside.join("file"), "inside").expect("a file inside");
        std::fs::write(inside.join("dir/sub/file"), "deep inside").expect("a file inside");
        rustix::fs::mknodat(CWD, inside.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");

        let workspace = Workspace::open(&inside).expect("the workspace");
        let held = File::open(&outside).expect("the directory outside");
        let mut scratch = Self { directory, inside, workspace, secret, outside: held, before: Vec::new() };
        for (index, (name, _)) in LINKS.iter().enumerate() {
            scratch.link(Path::new(name), index);
        }
        for path in OUTSIDE {
            age(&scratch.directory.path().join(path));
        }
        scratch.before = scratch.look();
        scratch
    }

    /// As hostile code inside would: a link to a target of the table. A name that is taken stays as it is.
    pub fn link(&self, name: &Path, target: usize) {
        let outer = self.directory.path().display();
        let target = match LINKS[target % LINKS.len()].1 {
            Target::Written(target) => target.to_owned(),
            Target::Absolute(path) => format!("{outer}/{path}"),
            Target::ProcRoot(path) => format!("/proc/self/root{outer}/{path}"),
            Target::ProcDescriptor(path) => format!("/proc/self/fd/{}{path}", self.outside.as_raw_fd()),
        };
        let _ = symlink(target, self.inside.join(name));
    }

    pub fn assert_not_secret(&self, content: &[u8]) {
        let found = content.windows(self.secret.len()).any(|window| window == self.secret.as_bytes());
        assert!(!found, "the content of a file outside was read");
    }

    pub fn assert_outside_untouched(&self) {
        assert_eq!(self.look(), self.before, "something outside was changed or read: {OUTSIDE:?}");
    }

    fn look(&self) -> Vec<Seen> {
        let seen = OUTSIDE.iter().map(|path| {
            let stat = rustix::fs::statat(CWD, self.directory.path().join(path), AtFlags::SYMLINK_NOFOLLOW)
                .expect("what is outside is still there");
            Seen {
                inode: stat.st_ino,
                mode: stat.st_mode,
                links: stat.st_nlink,
                size: stat.st_size,
                modified: (stat.st_mtime, stat.st_mtime_nsec),
                accessed: stat.st_atime,
            }
        });
        seen.collect()
    }
}

fn age(path: &Path) {
    let at = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    let times = Timestamps { last_access: at(ACCESSED), last_modification: at(MODIFIED) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).expect("setting a file's times");
}

#[derive(Clone, Copy)]
enum Target {
    Written(&'static str),
    /// Beneath the directory that holds both sides.
    Absolute(&'static str),
    ProcRoot(&'static str),
    ProcDescriptor(&'static str),
}

/// Names in the workspace, and where they lead.
const LINKS: &[(&str, Target)] = &[
    ("absolute", Target::Absolute("outside")),
    ("relative", Target::Written("../outside")),
    ("absolute-file", Target::Absolute("outside/secret")),
    ("relative-file", Target::Written("../outside/secret")),
    ("dangling", Target::Written("../outside/new")),
    ("up", Target::Written("..")),
    ("loop", Target::Written("loop")),
    ("ping", Target::Written("pong")),
    ("pong", Target::Written("ping")),
    ("in", Target::Written("dir")),
    ("dir/back", Target::Written("..")),
    ("dir/out", Target::Written("../../outside/deep")),
    ("dir/sub/over", Target::Written("../../../inside/../outside")),
    ("proc-root", Target::ProcRoot("outside")),
    ("proc-fd", Target::ProcDescriptor("")),
    ("proc-fd-file", Target::ProcDescriptor("/secret")),
    ("itself", Target::Absolute("inside")),
    ("dot", Target::Written(".")),
    ("missing", Target::Written("dir/missing")),
];
