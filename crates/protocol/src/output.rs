//! The output of a command as one ordered sequence: frames of `kind (1 byte) · length (4 bytes, big endian) ·
//! payload`. Positions are byte positions in that sequence, headers included, so what is stored, what is sent and
//! what a reader resumes from are the same number. The last frame of an answer is the exit, as JSON; it is not part
//! of the stored sequence.

use crate::exec::ExecStatus;

pub const HEADER_BYTES: usize = 5;
/// Payload of one frame; also the largest read from a command's pipe.
pub const FRAME_MAX_BYTES: usize = 256 * 1024;
/// The exit frame is buffered whole by the reader, so it is bounded more tightly.
pub const EXIT_MAX_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

const KIND_STDOUT: u8 = 1;
const KIND_STDERR: u8 = 2;
const KIND_EXIT: u8 = 3;

pub fn stream_header(stream: Stream, length: usize) -> [u8; HEADER_BYTES] {
    header(if stream == Stream::Stdout { KIND_STDOUT } else { KIND_STDERR }, length)
}

pub fn exit_header(length: usize) -> [u8; HEADER_BYTES] {
    header(KIND_EXIT, length)
}

fn header(kind: u8, length: usize) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = (length as u32).to_be_bytes();
    [kind, a, b, c, d]
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the guest sent a frame of unknown kind {0}")]
    Kind(u8),
    #[error("the guest sent a frame of {0} bytes, more than the protocol allows")]
    Length(u32),
    #[error("the guest sent data after the end of the command")]
    AfterExit,
    #[error("the guest's answer ended in the middle of a frame, or before the command did")]
    Cut,
    #[error("the guest's exit report cannot be read")]
    Exit,
}

/// Reads frames out of chunks of any size. Payload is handed on at once and never buffered; of a hostile guest's
/// answer nothing is kept but one header and one exit report.
#[derive(Debug, Default)]
pub struct FrameReader {
    header: Vec<u8>,
    /// Payload bytes of the current frame still to come.
    remaining: usize,
    kind: u8,
    exit: Vec<u8>,
    ended: bool,
    position: u64,
}

impl FrameReader {
    /// `position`: where in the sequence the answer begins.
    pub fn starting_at(position: u64) -> Self {
        Self { position, ..Self::default() }
    }

    /// The position behind the last *complete* frame: what to resume from.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Payload bytes that were handed on of a frame that is not complete yet: they come again when the reader resumes.
    pub fn unfinished_bytes(&self) -> usize {
        if self.remaining == 0 {
            return 0;
        }
        let [_, a, b, c, d] = self.header[..] else { return 0 };
        u32::from_be_bytes([a, b, c, d]) as usize - self.remaining
    }

    pub fn push<'a>(&mut self, mut chunk: &'a [u8], mut sink: impl FnMut(Stream, &'a [u8])) -> Result<(), FrameError> {
        while !chunk.is_empty() {
            if self.ended {
                return Err(FrameError::AfterExit);
            }
            if self.remaining == 0 {
                let take = chunk.len().min(HEADER_BYTES - self.header.len());
                self.header.extend_from_slice(&chunk[..take]);
                chunk = &chunk[take..];
                if self.header.len() < HEADER_BYTES {
                    return Ok(());
                }
                self.begin_frame()?;
                continue;
            }
            let take = chunk.len().min(self.remaining);
            let (payload, rest) = chunk.split_at(take);
            chunk = rest;
            self.remaining -= take;
            match self.kind {
                KIND_STDOUT => sink(Stream::Stdout, payload),
                KIND_STDERR => sink(Stream::Stderr, payload),
                _ => self.exit.extend_from_slice(payload),
            }
            if self.remaining == 0 {
                self.end_frame();
            }
        }
        Ok(())
    }

    fn begin_frame(&mut self) -> Result<(), FrameError> {
        let [kind, a, b, c, d] = self.header[..] else { unreachable!("the header is complete") };
        let length = u32::from_be_bytes([a, b, c, d]);
        let bound = match kind {
            KIND_STDOUT | KIND_STDERR => FRAME_MAX_BYTES,
            KIND_EXIT => EXIT_MAX_BYTES,
            other => return Err(FrameError::Kind(other)),
        };
        // An empty frame carries nothing; a stream of them would be work for nothing.
        if length == 0 || length as usize > bound {
            return Err(FrameError::Length(length));
        }
        self.kind = kind;
        self.remaining = length as usize;
        Ok(())
    }

    fn end_frame(&mut self) {
        let [_, a, b, c, d] = self.header[..] else { unreachable!("the header is complete") };
        self.header.clear();
        if self.kind == KIND_EXIT {
            self.ended = true;
        } else {
            self.position += HEADER_BYTES as u64 + u64::from(u32::from_be_bytes([a, b, c, d]));
        }
    }

    /// Called when the answer has ended: the exit report, parsed by `parse` (JSON lives outside this crate).
    pub fn finish<E>(self, parse: impl FnOnce(&[u8]) -> Result<ExecStatus, E>) -> Result<ExecStatus, FrameError> {
        if !self.ended {
            return Err(FrameError::Cut);
        }
        parse(&self.exit).map_err(|_| FrameError::Exit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence() -> Vec<u8> {
        let mut bytes = Vec::new();
        for (stream, payload) in [(Stream::Stdout, "one"), (Stream::Stderr, "two"), (Stream::Stdout, "three")] {
            bytes.extend_from_slice(&stream_header(stream, payload.len()));
            bytes.extend_from_slice(payload.as_bytes());
        }
        bytes
    }

    #[test]
    fn frames_are_the_same_however_they_are_cut() {
        let bytes = sequence();
        for size in 1..=bytes.len() {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut reader = FrameReader::starting_at(100);
            for chunk in bytes.chunks(size) {
                reader
                    .push(chunk, |stream, data| match stream {
                        Stream::Stdout => out.extend_from_slice(data),
                        Stream::Stderr => err.extend_from_slice(data),
                    })
                    .unwrap();
            }
            assert_eq!((out, err), (b"onethree".to_vec(), b"two".to_vec()));
            assert_eq!(reader.position(), 100 + bytes.len() as u64);
        }
    }

    #[test]
    fn hostile_frames_are_refused() {
        let refuse = |bytes: &[u8]| FrameReader::default().push(bytes, |_, _| ()).unwrap_err();
        assert_eq!(refuse(&[9, 0, 0, 0, 1]), FrameError::Kind(9));
        assert_eq!(refuse(&[1, 0xff, 0xff, 0xff, 0xff]), FrameError::Length(u32::MAX));
        assert_eq!(refuse(&[3, 0, 2, 0, 0]), FrameError::Length(131_072));
        assert_eq!(refuse(&[1, 0, 0, 0, 0]), FrameError::Length(0));
        assert_eq!(refuse(&[3, 0, 0, 0, 1, b'x', 1]), FrameError::AfterExit);
        let mut reader = FrameReader::default();
        reader.push(&sequence()[..7], |_, _| ()).unwrap();
        assert_eq!(reader.finish(|_| Err::<ExecStatus, _>(())), Err(FrameError::Cut));
    }
}
