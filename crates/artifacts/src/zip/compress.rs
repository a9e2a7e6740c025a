//! Compresses blocks on two threads, ahead of whoever writes them. Each block is compressed on its own, so that the
//! same content gives the same bytes whichever thread took it; the order is kept by who asked. What the blocks are
//! part of is not known here.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;

use crc32fast::Hasher;
use flate2::{Compress, CompressError, Compression, FlushCompress, Status};

/// Compressing is nearly all of the work. More threads would take the machine from the sandboxes that run on it.
const THREADS: usize = 2;
/// Blocks that wait for a thread. Their bytes are bounded by who sends them.
pub(super) const QUEUED_BLOCKS_MAX: usize = 256;
/// By how much the room for the result grows when it turns out too small.
const OUTPUT_STEP_BYTES: usize = 16 << 10;
/// Blocks from this length on are tried before they are compressed: what is compressed already (pictures, archives,
/// models) takes the longest and gains nothing.
const TRIED_MIN_BYTES: usize = 256 << 10;
/// What is tried of a block: its start, its middle and its end.
const SAMPLE_BYTES: usize = 16 << 10;
/// A block whose samples do not get smaller than this share is left as it is.
const WORTHWHILE_PERCENT: usize = 98;
/// The most that deflate stores in one piece.
const STORED_MAX_BYTES: usize = u16::MAX as usize;

/// What a block is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A file in one piece: left as it is if it does not get smaller.
    Whole,
    /// One of several, with more to come.
    Inner,
    Last,
}

#[derive(Debug)]
pub(super) struct Block {
    /// Of the content; also knows its length.
    pub(super) crc: Hasher,
    pub(super) uncompressed_bytes: u64,
    pub(super) bytes: Vec<u8>,
    /// False if `bytes` is the content itself.
    pub(super) deflated: bool,
}

struct Job {
    content: Vec<u8>,
    part: Part,
    answer: SyncSender<Block>,
}

/// The threads end when this is dropped.
#[derive(Debug)]
pub(super) struct Compressors {
    jobs: SyncSender<Job>,
}

impl Compressors {
    pub(super) fn start<'scope>(scope: &'scope Scope<'scope, '_>, level: Compression) -> Self {
        let (jobs, queue) = sync_channel(QUEUED_BLOCKS_MAX);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..THREADS {
            let queue = Arc::clone(&queue);
            scope.spawn(move || work(&queue, level));
        }
        Self { jobs }
    }

    /// The block arrives at the receiver; none arrives if a thread has died.
    pub(super) fn compress(&self, content: Vec<u8>, part: Part) -> Receiver<Block> {
        let (answer, block) = sync_channel(1);
        // Fails only if both threads have died, and then the receiver says so.
        let _ = self.jobs.send(Job { content, part, answer });
        block
    }
}

fn work(queue: &Mutex<Receiver<Job>>, level: Compression) {
    let mut compress = Compress::new(level, false);
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { content, part, answer }) = job else { return };
        let Ok(block) = deflate(&mut compress, content, part) else { return };
        // Nobody waits for it any more if writing has failed.
        let _ = answer.send(block);
    }
}

fn deflate(compress: &mut Compress, content: Vec<u8>, part: Part) -> Result<Block, CompressError> {
    let mut crc = Hasher::new();
    crc.update(&content);
    let uncompressed_bytes = content.len() as u64;
    let is_worthwhile = is_worthwhile(compress, &content)?;
    let bytes = match (is_worthwhile, part) {
        (true, _) => compress_all(compress, &content, part)?,
        (false, Part::Whole) => return Ok(Block { crc, uncompressed_bytes, bytes: content, deflated: false }),
        (false, _) => store(&content, part),
    };
    if part == Part::Whole && bytes.len() >= content.len() {
        return Ok(Block { crc, uncompressed_bytes, bytes: content, deflated: false });
    }
    Ok(Block { crc, uncompressed_bytes, bytes, deflated: true })
}

fn is_worthwhile(compress: &mut Compress, content: &[u8]) -> Result<bool, CompressError> {
    if content.len() < TRIED_MIN_BYTES {
        return Ok(true);
    }
    let mut compressed_bytes = 0;
    let starts = [0, content.len() / 2, content.len() - SAMPLE_BYTES];
    for start in starts {
        compressed_bytes += compress_all(compress, &content[start..start + SAMPLE_BYTES], Part::Whole)?.len();
    }
    Ok(compressed_bytes * 100 < starts.len() * SAMPLE_BYTES * WORTHWHILE_PERCENT)
}

fn compress_all(compress: &mut Compress, content: &[u8], part: Part) -> Result<Vec<u8>, CompressError> {
    // Inner blocks end at a whole byte, as what follows them was made without knowing where they end.
    let flush = if part == Part::Inner { FlushCompress::Sync } else { FlushCompress::Finish };
    let mut bytes = Vec::with_capacity(content.len() + OUTPUT_STEP_BYTES);
    compress.reset();
    loop {
        let status = compress.compress_vec(&content[compress.total_in() as usize..], &mut bytes, flush)?;
        let flushed = compress.total_in() == content.len() as u64 && bytes.len() < bytes.capacity();
        if status == Status::StreamEnd || (part == Part::Inner && flushed) {
            return Ok(bytes);
        }
        bytes.reserve(OUTPUT_STEP_BYTES);
    }
}

/// Deflate's form of content that is not compressed: a mark on the last piece, the length, and the length inverted.
fn store(content: &[u8], part: Part) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + OUTPUT_STEP_BYTES);
    let mut pieces = content.chunks(STORED_MAX_BYTES).peekable();
    while let Some(piece) = pieces.next() {
        let length = piece.len() as u16;
        bytes.push(u8::from(part != Part::Inner && pieces.peek().is_none()));
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&(!length).to_le_bytes());
        bytes.extend_from_slice(piece);
    }
    bytes
}
