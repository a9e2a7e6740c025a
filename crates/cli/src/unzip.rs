//! A zip archive as the API makes it, read by its directory and turned into a tar stream, whose unpacking beneath a
//! directory is [`cofferdam_linux::files`]'s: one place that knows what hostile names and links can do. Files stored or
//! deflated, Unix modes, links, and sizes beyond 4 GiB; encryption and archives in several parts are not read.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crc32fast::Hasher;
use flate2::read::DeflateDecoder;
use tar::{Builder, EntryType, Header};

const END_MARK: u32 = 0x0605_4b50;
const END_BYTES: u64 = 22;
const END64_MARK: u32 = 0x0606_4b50;
const LOCATOR64_MARK: u32 = 0x0706_4b50;
const LOCATOR64_BYTES: u64 = 20;
const ENTRY_MARK: u32 = 0x0201_4b50;
const LOCAL_MARK: u32 = 0x0403_4b50;
const LOCAL_BYTES: u64 = 30;
/// The comment behind the end is counted in 16 bits.
const COMMENT_MAX_BYTES: u64 = 0xffff;
/// Memory for the directory of names: a million files with long names.
const DIRECTORY_MAX_BYTES: u64 = 512 << 20;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const MODE_KIND: u32 = 0o170_000;
const MODE_LINK: u32 = 0o120_000;
/// A link's target is a path.
const LINK_MAX_BYTES: u64 = 4096;

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: Vec<u8>,
    method: u16,
    mode: u32,
    checksum: u32,
    packed_bytes: u64,
    bytes: u64,
    offset: u64,
}

/// Writes every entry of the archive to a tar stream.
pub fn to_tar(archive: &mut File, tar: impl Write) -> io::Result<()> {
    let mut tar = Builder::new(tar);
    for entry in read_directory(archive)? {
        append(archive, &entry, &mut tar)?;
    }
    tar.into_inner()?.flush()
}

fn append(archive: &mut File, entry: &Entry, tar: &mut Builder<impl Write>) -> io::Result<()> {
    let name = String::from_utf8_lossy(&entry.name).into_owned();
    let mut header = Header::new_gnu();
    header.set_mode(entry.mode & 0o777);
    let path = path_of(&entry.name);
    if entry.name.ends_with(b"/") {
        header.set_entry_type(EntryType::Directory);
        header.set_mode(if entry.mode & 0o777 == 0 { 0o755 } else { entry.mode & 0o777 });
        header.set_size(0);
        return tar.append_data(&mut header, path, io::empty());
    }
    let content = content(archive, entry)?;
    let mut checked = Checked { content, hasher: Hasher::new(), entry, left: entry.bytes, name };
    if entry.mode & MODE_KIND == MODE_LINK {
        let mut target = Vec::new();
        if entry.bytes > LINK_MAX_BYTES {
            return Err(broken("a link is too long"));
        }
        checked.read_to_end(&mut target)?;
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        return tar.append_link(&mut header, path, path_of(&target));
    }
    if entry.mode & 0o777 == 0 {
        header.set_mode(0o644);
    }
    header.set_size(entry.bytes);
    tar.append_data(&mut header, path, &mut checked)
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn content<'a>(archive: &'a mut File, entry: &Entry) -> io::Result<Box<dyn Read + 'a>> {
    archive.seek(SeekFrom::Start(entry.offset))?;
    let mut local = [0; LOCAL_BYTES as usize];
    archive.read_exact(&mut local)?;
    if u32_at(&local, 0) != LOCAL_MARK {
        return Err(broken("an entry is not where the directory says"));
    }
    let names = u64::from(u16_at(&local, 26)) + u64::from(u16_at(&local, 28));
    archive.seek(SeekFrom::Start(entry.offset + LOCAL_BYTES + names))?;
    let packed = BufReader::new(archive.take(entry.packed_bytes));
    match entry.method {
        STORED => Ok(Box::new(packed)),
        DEFLATED => Ok(Box::new(DeflateDecoder::new(packed))),
        _ => Err(broken("an entry is compressed in a way that is not known here")),
    }
}

/// Content that has to be as long as it claims and to have the checksum that it claims.
struct Checked<'a, R> {
    content: R,
    hasher: Hasher,
    entry: &'a Entry,
    left: u64,
    name: String,
}

impl<R: Read> Read for Checked<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.content.by_ref().take(self.left).read(buffer)?;
        self.hasher.update(&buffer[..length]);
        self.left -= length as u64;
        let ended = length == 0 && !buffer.is_empty();
        let wrong_checksum = self.left == 0 && self.hasher.clone().finalize() != self.entry.checksum;
        if (ended && self.left > 0) || wrong_checksum {
            return Err(broken(&format!("{:?} is damaged", self.name)));
        }
        Ok(length)
    }
}

fn read_directory(archive: &mut File) -> io::Result<Vec<Entry>> {
    let (offset, bytes) = find_directory(archive)?;
    if bytes > DIRECTORY_MAX_BYTES {
        return Err(broken("its directory is too large"));
    }
    archive.seek(SeekFrom::Start(offset))?;
    let mut directory = Vec::new();
    archive.take(bytes).read_to_end(&mut directory)?;
    let mut rest = directory.as_slice();
    let mut entries = Vec::new();
    while rest.len() >= 46 && u32_at(rest, 0) == ENTRY_MARK {
        let lengths = [28, 30, 32].map(|at| usize::from(u16_at(rest, at)));
        let end = 46 + lengths.iter().sum::<usize>();
        if rest.len() < end {
            return Err(broken("its directory is cut off"));
        }
        let extra = &rest[46 + lengths[0]..46 + lengths[0] + lengths[1]];
        let mut entry = Entry {
            name: rest[46..46 + lengths[0]].to_vec(),
            method: u16_at(rest, 10),
            mode: u32_at(rest, 38) >> 16,
            checksum: u32_at(rest, 16),
            packed_bytes: u64::from(u32_at(rest, 20)),
            bytes: u64::from(u32_at(rest, 24)),
            offset: u64::from(u32_at(rest, 42)),
        };
        widen(&mut entry, extra);
        entries.push(entry);
        rest = &rest[end..];
    }
    Ok(entries)
}

/// Numbers that do not fit into 32 bits are in a field of their own, in this order and only those.
fn widen(entry: &mut Entry, mut extra: &[u8]) {
    while extra.len() >= 4 {
        let (kind, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let mut field = extra.get(4..4 + length).unwrap_or_default();
        if kind == 1 {
            for number in [&mut entry.bytes, &mut entry.packed_bytes, &mut entry.offset] {
                if *number == u64::from(u32::MAX)
                    && let Some((wide, rest)) = field.split_first_chunk()
                {
                    *number = u64::from_le_bytes(*wide);
                    field = rest;
                }
            }
        }
        extra = extra.get(4 + length..).unwrap_or_default();
    }
}

/// Where the directory begins, and how long it is.
fn find_directory(archive: &mut File) -> io::Result<(u64, u64)> {
    let length = archive.seek(SeekFrom::End(0))?;
    let searched = length.min(END_BYTES + COMMENT_MAX_BYTES);
    archive.seek(SeekFrom::Start(length - searched))?;
    let mut tail = Vec::new();
    archive.read_to_end(&mut tail)?;
    let last = tail.len().checked_sub(END_BYTES as usize).ok_or_else(|| broken("it is cut off"))?;
    let at = (0..=last).rev().find(|at| u32_at(&tail, *at) == END_MARK).ok_or_else(|| broken("it is cut off"))?;
    let (bytes, offset) = (u32_at(&tail, at + 12), u32_at(&tail, at + 16));
    let locator = (at as u64 + length - searched).checked_sub(LOCATOR64_BYTES);
    if let Some(locator) = locator {
        archive.seek(SeekFrom::Start(locator))?;
        let mut place = [0; LOCATOR64_BYTES as usize];
        archive.read_exact(&mut place)?;
        if u32_at(&place, 0) == LOCATOR64_MARK {
            archive.seek(SeekFrom::Start(u64_at(&place, 8)))?;
            let mut end = [0; 56];
            archive.read_exact(&mut end)?;
            if u32_at(&end, 0) == END64_MARK {
                return Ok((u64_at(&end, 48), u64_at(&end, 40)));
            }
        }
    }
    Ok((u64::from(offset), u64::from(bytes)))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn broken(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the archive is broken: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAKE: &str = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    def add(name, data, mode, kind=zipfile.ZIP_DEFLATED, wide=False):
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        info.compress_type = kind
        with z.open(info, "w", force_zip64=wide) as f: f.write(data)
    add("bin/run", b"a line...\n" * 1000, 0o100755)
    add("stored", b"as it is", 0o100644, zipfile.ZIP_STORED, True)
    add("link", b"bin/run", 0o120777)
    add("empty/", b"", 0o40755)
"#;

    #[test]
    fn files_modes_links_and_directories_come_out_as_they_went_in() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.zip");
        let made = std::process::Command::new("python3").args(["-c", MAKE]).arg(&file).status().unwrap();
        assert!(made.success());
        let mut tar = Vec::new();
        to_tar(&mut File::open(&file).unwrap(), &mut tar).unwrap();
        let mut archive = tar::Archive::new(tar.as_slice());
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let link = entry.link_name().unwrap().map(|link| link.display().to_string()).unwrap_or_default();
            let path = entry.path().unwrap().display().to_string();
            found.push((path, entry.header().mode().unwrap(), content.len(), link));
        }
        let row = |name: &str, mode, bytes, link: &str| (name.to_owned(), mode, bytes, link.to_owned());
        assert_eq!(
            found,
            [
                row("bin/run", 0o755, 10_000, ""),
                row("stored", 0o644, 8, ""),
                row("link", 0o777, 0, "bin/run"),
                row("empty/", 0o755, 0, "")
            ]
        );
    }

    #[test]
    fn damage_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.zip");
        std::process::Command::new("python3").args(["-c", MAKE]).arg(&file).status().unwrap();
        let whole = std::fs::read(&file).unwrap();
        for (at, problem) in [(60, "is damaged"), (whole.len() - 22, "cut off")] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let error = to_tar(&mut file, io::sink()).unwrap_err().to_string();
            assert!(error.contains(problem) || error.contains("deflate"), "{at}: {error}");
        }
    }
}
