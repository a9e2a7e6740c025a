//! A workspace as a zip archive, written in one go to wherever it is read: nothing is sought, and memory does not
//! grow with the size of files. The same tree gives the same bytes. Links are stored as links, sockets, pipes and
//! devices not at all, owners and set-uid bits neither.
//!
//! Small files are compressed whole and have their sizes in front. Large ones are cut into blocks that two threads
//! compress, as pigz does, and have their sizes behind: what a file has become when its end is reached is what the
//! archive says of it, so that one that changes meanwhile spoils nothing.
//!
//! Names that are UTF-8 are marked as such. Others are stored as the bytes they are: Info-ZIP's unzip gives them back,
//! Python and Windows show something else in their place.

mod compress;
mod format;

use std::collections::VecDeque;
use std::io::{self, BufWriter, Read, Write};
use std::sync::mpsc::Receiver;

use cofferdam_linux::files::{ARCHIVE_DEFAULT_LIMITS, ArchiveLimits, Content, Found, Workspace};
use crc32fast::Hasher;
use flate2::Compression;

use crate::ArtifactError;
use compress::{Block, Compressors, Part, QUEUED_BLOCKS_MAX};
use format::{CentralDirectory, Entry, Method, Placement, Sizes};

/// As a file is cut into blocks that know nothing of each other, each begins without anything to refer to. At this
/// size that costs less than a hundredth.
const BLOCK_BYTES: u64 = 1 << 20;
/// Content that was read and not yet written. With its compressed form, twice this is all the memory for content.
const AHEAD_MAX_BYTES: u64 = 8 << 20;
const OUTPUT_BUFFER_BYTES: usize = 256 << 10;
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_REGULAR: u32 = 0o100_000;
const TYPE_SYMLINK: u32 = 0o120_000;
/// Linux gives every link these permissions, and never looks at them.
const SYMLINK_MODE: u32 = 0o777;

#[derive(Debug, Clone, Copy)]
pub struct ZipOptions {
    /// From 0 (stored) to 9 (smallest).
    pub level: u32,
    pub limits: ArchiveLimits,
}

impl Default for ZipOptions {
    /// The level that Info-ZIP and gzip take.
    fn default() -> Self {
        Self { level: 6, limits: ARCHIVE_DEFAULT_LIMITS }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Zipped {
    pub entries: u64,
    /// Content of all files and links together, before it was compressed.
    pub bytes: u64,
    pub archive_bytes: u64,
    /// Sockets, pipes, devices, what we may not read, and what is deeper than a path can be long.
    pub skipped: u64,
}

/// After an error, what was written is no archive: it lacks the directory that every reader looks for at its end.
pub fn write_zip(workspace: &Workspace, out: impl Write, options: ZipOptions) -> Result<Zipped, ArtifactError> {
    let mut walk = workspace.sorted_walk(options.limits.entries)?;
    std::thread::scope(|scope| {
        let mut archive = Archive {
            compressors: Compressors::start(scope, Compression::new(options.level.min(9))),
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            writer: EntryWriter::new(out),
            zipped: Zipped::default(),
            bytes_max: options.limits.bytes,
        };
        while let Some(found) = walk.next_entry()? {
            archive.append(found)?;
        }
        archive.finish()
    })
}

/// What is to be written next, in order.
enum Step {
    Begin(Entry, Placement),
    Whole(Entry, Receiver<Block>),
    Block(Receiver<Block>),
    End,
}

struct Archive<W: Write> {
    compressors: Compressors,
    /// Each step, with the bytes of content that it holds.
    ahead: VecDeque<(Step, u64)>,
    ahead_bytes: u64,
    writer: EntryWriter<W>,
    zipped: Zipped,
    bytes_max: u64,
}

impl<W: Write> Archive<W> {
    fn append(&mut self, found: Found) -> Result<(), ArtifactError> {
        let path = found.path.as_bytes();
        let entry = |kind, mode, suffix: &[u8], method| Entry {
            name: [path, suffix].concat(),
            unix_mode: kind | mode,
            modified_seconds: found.modified_seconds,
            method,
        };
        match found.content {
            Content::Directory => {
                let entry = entry(TYPE_DIRECTORY, found.mode, b"/", Method::Stored);
                let nothing = Sizes { crc: 0, compressed: 0, uncompressed: 0 };
                self.push(Step::Begin(entry, Placement::Before(nothing)), 0)?;
                self.push(Step::End, 0)?;
            }
            Content::Symlink(target) => {
                let entry = entry(TYPE_SYMLINK, SYMLINK_MODE, b"", Method::Stored);
                let length = target.len() as u64;
                self.push(Step::Whole(entry, self.compressors.compress(target, Part::Whole)), length)?;
            }
            Content::File { file, size_bytes, .. } => {
                let fail = |source| ArtifactError::Content { path: found.path.to_string(), source };
                let entry = entry(TYPE_REGULAR, found.mode, b"", Method::Deflated);
                // What grows meanwhile is cut, or the end of a file that is written to might never come.
                self.append_file(entry, file.take(size_bytes), fail)?;
            }
            Content::Unavailable(_) => {
                self.zipped.skipped += 1;
                return Ok(());
            }
        }
        self.zipped.entries += 1;
        Ok(())
    }

    fn append_file(
        &mut self,
        entry: Entry,
        mut content: io::Take<impl Read>,
        fail: impl Fn(io::Error) -> ArtifactError,
    ) -> Result<(), ArtifactError> {
        // Said before a file of holes is read that never fits.
        self.allow(content.limit())?;
        if content.limit() <= BLOCK_BYTES {
            let block = self.read_block(&mut content).map_err(fail)?;
            let length = block.len() as u64;
            return self.push(Step::Whole(entry, self.compressors.compress(block, Part::Whole)), length);
        }
        self.push(Step::Begin(entry, Placement::Behind { announced_bytes: content.limit() }), 0)?;
        loop {
            let block = self.read_block(&mut content).map_err(&fail)?;
            let length = block.len() as u64;
            let is_last = content.limit() == 0 || length < BLOCK_BYTES;
            let part = if is_last { Part::Last } else { Part::Inner };
            self.push(Step::Block(self.compressors.compress(block, part)), length)?;
            if is_last {
                return self.push(Step::End, 0);
            }
        }
    }

    /// Shorter than a block only at the end.
    fn read_block(&self, content: &mut io::Take<impl Read>) -> io::Result<Vec<u8>> {
        let mut block = Vec::with_capacity(content.limit().min(BLOCK_BYTES) as usize);
        content.by_ref().take(BLOCK_BYTES).read_to_end(&mut block)?;
        Ok(block)
    }

    fn allow(&self, bytes: u64) -> Result<(), ArtifactError> {
        match self.zipped.bytes.saturating_add(bytes) > self.bytes_max {
            true => Err(ArtifactError::TooLarge { limit: self.bytes_max, what: "bytes" }),
            false => Ok(()),
        }
    }

    fn push(&mut self, step: Step, bytes: u64) -> Result<(), ArtifactError> {
        self.zipped.bytes += bytes;
        self.ahead.push_back((step, bytes));
        self.ahead_bytes += bytes;
        while self.ahead_bytes > AHEAD_MAX_BYTES || self.ahead.len() >= QUEUED_BLOCKS_MAX {
            self.write_next()?;
        }
        Ok(())
    }

    fn write_next(&mut self) -> Result<bool, ArtifactError> {
        let Some((step, bytes)) = self.ahead.pop_front() else { return Ok(false) };
        self.ahead_bytes -= bytes;
        let answer = |receiver: Receiver<Block>| {
            receiver.recv().map_err(|_| io::Error::other("a thread that compresses has ended early"))
        };
        let written = match step {
            Step::Begin(entry, placement) => self.writer.begin(entry, placement),
            Step::Whole(entry, block) => answer(block).and_then(|block| self.writer.whole(entry, block)),
            Step::Block(block) => answer(block).and_then(|block| self.writer.block(block)),
            Step::End => self.writer.end(),
        };
        written.map_err(ArtifactError::Output)?;
        Ok(true)
    }

    fn finish(mut self) -> Result<Zipped, ArtifactError> {
        while self.write_next()? {}
        let archive_bytes = self.writer.finish().map_err(ArtifactError::Output)?;
        Ok(Zipped { archive_bytes, ..self.zipped })
    }
}

/// Where in the archive we are.
struct EntryWriter<W: Write> {
    out: BufWriter<W>,
    offset: u64,
    central: CentralDirectory,
    open: Option<OpenEntry>,
}

struct OpenEntry {
    entry: Entry,
    placement: Placement,
    offset: u64,
    crc: Hasher,
    compressed: u64,
    uncompressed: u64,
}

impl<W: Write> EntryWriter<W> {
    fn new(out: W) -> Self {
        let out = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, out);
        Self { out, offset: 0, central: CentralDirectory::default(), open: None }
    }

    fn begin(&mut self, entry: Entry, placement: Placement) -> io::Result<()> {
        let offset = self.offset;
        self.write(&format::local_header(&entry, placement))?;
        self.open = Some(OpenEntry { entry, placement, offset, crc: Hasher::new(), compressed: 0, uncompressed: 0 });
        Ok(())
    }

    fn whole(&mut self, mut entry: Entry, block: Block) -> io::Result<()> {
        entry.method = if block.deflated { Method::Deflated } else { Method::Stored };
        let sizes = Sizes {
            crc: block.crc.clone().finalize(),
            compressed: block.bytes.len() as u64,
            uncompressed: block.uncompressed_bytes,
        };
        self.begin(entry, Placement::Before(sizes))?;
        self.block(block)?;
        self.end()
    }

    fn block(&mut self, block: Block) -> io::Result<()> {
        self.write(&block.bytes)?;
        if let Some(open) = &mut self.open {
            open.crc.combine(&block.crc);
            open.compressed += block.bytes.len() as u64;
            open.uncompressed += block.uncompressed_bytes;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let sizes = Sizes { crc: open.crc.finalize(), compressed: open.compressed, uncompressed: open.uncompressed };
        if let Placement::Behind { .. } = open.placement {
            self.write(&format::data_descriptor(open.placement, sizes))?;
        }
        self.central.add(&open.entry, open.placement, sizes, open.offset);
        Ok(())
    }

    fn finish(mut self) -> io::Result<u64> {
        let end = std::mem::take(&mut self.central).finish(self.offset);
        self.write(&end)?;
        self.out.flush()?;
        Ok(self.offset)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.offset += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}
