//! The output of one command, kept as the framed sequence of [`cofferdam_protocol::output`] between what the reader
//! has acknowledged and what the command has written. A little of it is in memory, more in an unnamed spool file, and
//! past that the command waits: its pipe is not read until somebody reads on.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use bytes::Bytes;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use tokio::sync::Notify;

/// Output kept in memory per command before it goes to the spool file.
const MEMORY_MAX_BYTES: u64 = 1024 * 1024;
/// Output kept in the spool file before the command has to wait for its reader.
const SPOOL_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// What may come on top when the command ends: its pipes, which it can have made larger (fs.pipe-max-size), but not
/// what its background processes go on writing.
const REST_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// What a chunk costs beside its bytes: a command that writes single bytes must not cost a hundred times as much.
const CHUNK_OVERHEAD_BYTES: u64 = 128;
/// One read from the spool file.
const SPOOL_READ_BYTES: usize = 256 * 1024;

pub struct OutputLog {
    state: RefCell<State>,
    /// Something was appended, or the end was reached.
    pub grew: Notify,
    /// Something was acknowledged, so there may be room.
    pub shrank: Notify,
    /// Those who acknowledge what they read by reading on.
    pub readers: Cell<usize>,
    spool_directory: Rc<OwnedFd>,
}

#[derive(Default)]
struct State {
    /// Everything before this is acknowledged and gone.
    start: u64,
    /// Where memory begins; between `start` and this lies the spool file.
    memory_start: u64,
    memory: VecDeque<Bytes>,
    memory_cost: u64,
    end: u64,
    spool: Option<File>,
    punched: u64,
    ended: bool,
}

/// What a reader finds at its position.
pub enum Next {
    Chunk(Bytes),
    /// Nothing yet: wait for `grew`.
    Wait,
    End,
}

impl OutputLog {
    pub fn new(spool_directory: Rc<OwnedFd>) -> Self {
        Self {
            state: RefCell::default(),
            grew: Notify::new(),
            shrank: Notify::new(),
            readers: Cell::default(),
            spool_directory,
        }
    }

    pub fn end(&self) -> u64 {
        self.state.borrow().end
    }

    pub fn start(&self) -> u64 {
        self.state.borrow().start
    }

    pub fn has_room(&self) -> bool {
        let state = self.state.borrow();
        state.end - state.start < SPOOL_MAX_BYTES
    }

    pub fn has_room_for_the_rest(&self) -> bool {
        let state = self.state.borrow();
        state.end - state.start < SPOOL_MAX_BYTES + REST_MAX_BYTES
    }

    /// Memory is full, and a reader is there who will make room.
    pub fn is_crowded(&self) -> bool {
        self.readers.get() > 0 && self.state.borrow().memory_cost > MEMORY_MAX_BYTES
    }

    /// One frame, with its header.
    pub fn append(&self, chunk: Bytes) -> io::Result<()> {
        let state = &mut *self.state.borrow_mut();
        if state.memory_cost > MEMORY_MAX_BYTES {
            self.spill(state)?;
        }
        state.end += chunk.len() as u64;
        state.memory_cost += chunk.len() as u64 + CHUNK_OVERHEAD_BYTES;
        state.memory.push_back(chunk);
        self.grew.notify_waiters();
        Ok(())
    }

    /// Moves all that is in memory to the end of the spool file.
    fn spill(&self, state: &mut State) -> io::Result<()> {
        if state.spool.is_none() {
            let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
            let file = rustix::fs::openat(self.spool_directory.as_fd(), ".", flags, Mode::from_raw_mode(0o600))?;
            state.spool = Some(File::from(file));
            state.punched = state.start;
        }
        let spool = state.spool.as_ref().expect("it has just been made");
        // Positions in the file are positions in the sequence: what is acknowledged becomes a hole.
        while let Some(chunk) = state.memory.front() {
            spool.write_all_at(chunk, state.memory_start)?;
            state.memory_start += chunk.len() as u64;
            state.memory.pop_front();
        }
        state.memory_cost = 0;
        Ok(())
    }

    /// No more will come.
    pub fn finish(&self) {
        self.state.borrow_mut().ended = true;
        self.grew.notify_waiters();
    }

    /// What stands at `position`. Chunks in memory are handed out whole frames at a time.
    pub fn read(&self, position: u64) -> io::Result<Next> {
        let state = self.state.borrow();
        if position < state.start {
            return Err(io::Error::other("output that was acknowledged is gone; read on from a later position"));
        }
        if position >= state.end {
            return Ok(if state.ended { Next::End } else { Next::Wait });
        }
        if position < state.memory_start {
            let spool = state.spool.as_ref().ok_or(io::ErrorKind::NotFound)?;
            let length = ((state.memory_start - position) as usize).min(SPOOL_READ_BYTES);
            let mut buffer = vec![0; length];
            spool.read_exact_at(&mut buffer, position)?;
            return Ok(Next::Chunk(buffer.into()));
        }
        let mut at = state.memory_start;
        for chunk in &state.memory {
            let next = at + chunk.len() as u64;
            if position < next {
                return Ok(Next::Chunk(chunk.slice((position - at) as usize..)));
            }
            at = next;
        }
        Ok(Next::Wait)
    }

    /// Everything before `position` is no longer needed by anybody.
    pub fn acknowledge(&self, position: u64) {
        let state = &mut *self.state.borrow_mut();
        let position = position.min(state.end);
        if position <= state.start {
            return;
        }
        state.start = position;
        while let Some(chunk) = state.memory.front() {
            let next = state.memory_start + chunk.len() as u64;
            if next > position {
                break;
            }
            state.memory_cost -= chunk.len() as u64 + CHUNK_OVERHEAD_BYTES;
            state.memory_start = next;
            state.memory.pop_front();
        }
        if let Some(spool) = &state.spool {
            if state.start >= state.memory_start {
                state.spool = None;
            } else if state.start - state.punched >= MEMORY_MAX_BYTES {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // A file system without holes keeps the bytes until the end: more disk, nothing worse.
                let _ = rustix::fs::fallocate(spool.as_fd(), flags, state.punched, state.start - state.punched);
                state.punched = state.start;
            }
        }
        self.shrank.notify_waiters();
    }
}
