//! The guest program, carried inside this one. It is started from a sealed memory file, one for all sandboxes of
//! this process: nothing can overwrite it, nothing is left on disk, and its pages are shared.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, SealFlags};

static PROGRAM: &[u8] = include_bytes!(env!("COFFERDAM_GUEST_PROGRAM"));

#[derive(Debug)]
pub(crate) struct GuestProgram {
    file: OwnedFd,
}

impl GuestProgram {
    pub(crate) fn new() -> io::Result<Self> {
        let name = CString::new("cofferdam-guest").expect("it holds no NUL");
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels since 6.3 want to be told that a memory file is meant to be executed; older ones refuse the flag.
        let file = rustix::fs::memfd_create(&name, flags | MemfdFlags::EXEC)
            .or_else(|_| rustix::fs::memfd_create(&name, flags))?;
        let mut writer = std::fs::File::from(file);
        writer.write_all(PROGRAM)?;
        let file = OwnedFd::from(writer);
        rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { file })
    }

    /// Valid in this process and, up to its `execve`, in its children.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}
