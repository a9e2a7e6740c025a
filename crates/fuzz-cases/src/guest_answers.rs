//! What comes back from a guest that may be hostile: framed output, read in chunks of any size and compared with a
//! reading of the whole; and every JSON answer. The first byte says which.

use cofferdam_protocol::exec::{ExecOutcome, ExecStatus};
use cofferdam_protocol::files::{FileChange, FileList, FileStat};
use cofferdam_protocol::launch::{FromGuest, FromSpawner};
use cofferdam_protocol::output::{EXIT_MAX_BYTES, FRAME_MAX_BYTES, FrameError, FrameReader, HEADER_BYTES, Stream};
use cofferdam_protocol::usage::Usage;

use crate::check_json;

pub fn guest_answers(data: &[u8]) {
    match data {
        // The byte after the letter decides how the rest is cut.
        [b'f', cut, frames @ ..] => check_frames(0, *cut, frames),
        // A reader may be told to resume from anywhere: `output_end` of a status is the guest's own word.
        [b'F', cut, frames @ ..] => check_frames(u64::MAX - u64::from(*cut), *cut, frames),
        [b'j', json @ ..] => check_answers(json),
        _ => {}
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Reading {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    position: u64,
    end: Result<ExecStatus, FrameError>,
}

fn check_frames(start: u64, cut: u8, bytes: &[u8]) {
    let expected = read_whole(start, bytes);
    assert_eq!(read_chunks(start, bytes, |_| bytes.len().max(1)), expected, "as one chunk");
    assert_eq!(read_chunks(start, bytes, |_| 1), expected, "byte by byte");
    let uneven = |index: usize| 1 + (index.wrapping_mul(usize::from(cut) + 1) ^ usize::from(cut)) % 17;
    assert_eq!(read_chunks(start, bytes, uneven), expected, "in uneven chunks");
}

fn read_chunks(start: u64, mut bytes: &[u8], size_of: impl Fn(usize) -> usize) -> Reading {
    let mut reader = FrameReader::starting_at(start);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for index in 0.. {
        if bytes.is_empty() {
            break;
        }
        let before = reader.position();
        let (chunk, rest) = bytes.split_at(size_of(index).min(bytes.len()));
        bytes = rest;
        let pushed = reader.push(chunk, |stream, payload| match stream {
            Stream::Stdout => stdout.extend_from_slice(payload),
            Stream::Stderr => stderr.extend_from_slice(payload),
        });
        assert!(reader.position() >= before, "the position goes backwards");
        if let Err(error) = pushed {
            assert_eq!(reader.push(b"more", |_, _| panic!("output after an error")), Err(error.clone()));
            return Reading { stdout, stderr, position: reader.position(), end: Err(error) };
        }
    }
    let position = reader.position();
    Reading { stdout, stderr, position, end: reader.finish(|exit| serde_json::from_slice(exit)) }
}

/// The same, in the most obvious way: with everything at hand.
fn read_whole(start: u64, mut bytes: &[u8]) -> Reading {
    let (mut stdout, mut stderr, mut position) = (Vec::new(), Vec::new(), start);
    let end = loop {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { break Err(FrameError::Cut) };
        let [kind, length @ ..] = *header;
        let length = u32::from_be_bytes(length);
        let bound = match kind {
            1 | 2 => FRAME_MAX_BYTES,
            3 => EXIT_MAX_BYTES,
            other => break Err(FrameError::Kind(other)),
        };
        if !(1..=bound).contains(&(length as usize)) {
            break Err(FrameError::Length(length));
        }
        let (payload, rest) = rest.split_at(rest.len().min(length as usize));
        let is_complete = payload.len() == length as usize;
        match kind {
            1 => stdout.extend_from_slice(payload),
            2 => stderr.extend_from_slice(payload),
            _ if !is_complete => {}
            _ if !rest.is_empty() => break Err(FrameError::AfterExit),
            _ => break serde_json::from_slice(payload).map_err(|_| FrameError::Exit),
        }
        if !is_complete {
            break Err(FrameError::Cut);
        }
        position = position.saturating_add((HEADER_BYTES + payload.len()) as u64);
        bytes = rest;
    };
    Reading { stdout, stderr, position, end }
}

fn check_answers(json: &[u8]) {
    if let Some(status) = check_json::<ExecStatus>(json) {
        check_outcome(status.outcome.as_ref());
    }
    for status in check_json::<Vec<ExecStatus>>(json).into_iter().flatten() {
        check_outcome(status.outcome.as_ref());
    }
    check_json::<FileStat>(json);
    check_json::<FileList>(json);
    check_json::<FileChange>(json);
    check_json::<Usage>(json);
    if let Some(FromGuest::Failed(failure)) = check_json(json) {
        assert!(failure.to_string().contains(&failure.detail));
    }
    if let Some(FromSpawner::NotSpawned(error)) = check_json(json) {
        assert!(!error.to_string().is_empty());
    }
}

fn check_outcome(outcome: Option<&ExecOutcome>) {
    assert!(outcome.is_none_or(|outcome| !outcome.to_string().is_empty()));
}
