//! Archives made of inputs. A tar's checksums would stop nearly everything that a fuzzer changes, so they are made
//! right here; and entries can be written as lines of text. What unpacking does with them is not known here.

use cofferdam_linux::files::percent_decode;

const BLOCK_BYTES: usize = 512;
/// Fields of a header, by offset: name, mode, size, modification time, checksum, kind, link, magic.
const NAME: std::ops::Range<usize> = 0..100;
const MODE: usize = 100;
const SIZE: std::ops::Range<usize> = 124..136;
const MODIFIED: usize = 136;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const KIND: usize = 156;
const LINK: std::ops::Range<usize> = 157..257;
const MAGIC: usize = 257;

/// Gives every block that would be read as a header its checksum.
pub fn mend_checksums(archive: &mut [u8]) {
    let mut start = 0usize;
    while let Some(header) = archive.get_mut(start..start.saturating_add(BLOCK_BYTES)) {
        start += BLOCK_BYTES;
        if header.iter().any(|byte| *byte != 0) {
            let content = size_of(&header[SIZE]).div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
            seal(header);
            start = start.saturating_add(content);
        }
    }
}

/// One entry per line: `kind mode name link content`, the last three percent-encoded, absent where the line ends. The
/// kind is tar's own letter. Names too long for a header are cut; the formats for those need whole archives.
pub fn from_lines(lines: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let mut words = line.split(|byte| *byte == b' ');
        let Some([kind]) = words.next() else { continue };
        let mode = words.next().unwrap_or_default();
        let mut decoded = || {
            let word = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
            percent_decode(&word).unwrap_or(word.into_bytes())
        };
        let (name, link, content) = (decoded(), decoded(), decoded());
        let mut header = [0; BLOCK_BYTES];
        put(&mut header[NAME], &name);
        put(&mut header[MODE..MODE + 8], mode);
        put(&mut header[SIZE], format!("{:o}", content.len()).as_bytes());
        header[MODIFIED] = b'7';
        header[KIND] = *kind;
        put(&mut header[LINK], &link);
        put(&mut header[MAGIC..MAGIC + 8], b"ustar  ");
        seal(&mut header);
        archive.extend_from_slice(&header);
        archive.extend_from_slice(&content);
        archive.resize(archive.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    archive.resize(archive.len() + 2 * BLOCK_BYTES, 0);
    archive
}

fn put(field: &mut [u8], value: &[u8]) {
    let length = value.len().min(field.len());
    field[..length].copy_from_slice(&value[..length]);
}

fn seal(header: &mut [u8]) {
    header[CHECKSUM].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut header[CHECKSUM], format!("{sum:06o}\0 ").as_bytes());
}

/// Octal digits; numbers written in binary are taken for none, and what follows them keeps its checksums.
fn size_of(field: &[u8]) -> usize {
    let digits = field.iter().skip_while(|byte| **byte == b' ').take_while(|byte| (b'0'..=b'7').contains(byte));
    digits.fold(0, |size: usize, digit| size.saturating_mul(8).saturating_add(usize::from(digit - b'0')))
}
