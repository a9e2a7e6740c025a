//! Buffers for output in bulk, used again instead of given back: a fresh quarter megabyte costs its page faults and
//! its clearing, which together take longer than filling it. Owns the spare ones of this thread, nothing else.

use std::cell::RefCell;

use bytes::Bytes;
use cofferdam_protocol::output::{FRAME_MAX_BYTES, HEADER_BYTES};

/// What is on its way between a command's pipe and the launcher's socket when both are busy.
const SPARE_MAX: usize = 6;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Room for one frame with its header.
pub fn take() -> Box<[u8]> {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| vec![0; HEADER_BYTES + FRAME_MAX_BYTES].into_boxed_slice())
}

/// The first bytes of a buffer; the buffer comes back here when the last reader has dropped them.
pub fn freeze(buffer: Box<[u8]>, length: usize) -> Bytes {
    Bytes::from_owner(Frame { buffer, length })
}

/// An idle sandbox keeps nothing.
pub fn release() {
    SPARE.take();
}

struct Frame {
    buffer: Box<[u8]>,
    length: usize,
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // At the thread's end there may be nowhere to put it.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_reader_has_gone() {
        release();
        let frame = freeze(take(), 10);
        let part = frame.slice(5..);
        drop(frame);
        assert_eq!(SPARE.with_borrow(Vec::len), 0);
        assert_eq!(part.len(), 5);
        drop(part);
        assert_eq!(SPARE.with_borrow(Vec::len), 1);
        drop(take());
        release();
        assert_eq!(SPARE.with_borrow(Vec::len), 0);
    }
}
