//! Content that is not text, in git's form: deflated, and written in 85 characters that survive any mail.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest, Sha1};

const ALPHABET: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
/// The length of a line is one letter.
const LINE_BYTES: usize = 52;

/// Text has no NUL. Git looks at the first 8,000 bytes only; a NUL behind those may confuse what reads the patch.
pub(super) fn is_binary(content: &[u8]) -> bool {
    content.contains(&0)
}

/// Both directions, so that the patch can be taken back. A side that does not exist is empty.
pub(super) fn write_binary(patch: &mut Vec<u8>, old: &[u8], new: &[u8]) -> std::io::Result<()> {
    patch.extend_from_slice(b"GIT binary patch\n");
    for content in [new, old] {
        writeln!(patch, "literal {}", content.len())?;
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content)?;
        for line in encoder.finish()?.chunks(LINE_BYTES) {
            let length = line.len() as u8;
            patch.push(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 });
            line.chunks(4).for_each(|group| encode_group(patch, group));
            patch.push(b'\n');
        }
        patch.push(b'\n');
    }
    Ok(())
}

/// Four bytes, the last ones zero where there are fewer, as five digits.
fn encode_group(patch: &mut Vec<u8>, group: &[u8]) {
    let mut bytes = [0; 4];
    bytes[..group.len()].copy_from_slice(group);
    let mut value = u32::from_be_bytes(bytes);
    let mut digits = [0; 5];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(value % 85) as usize];
        value /= 85;
    }
    patch.extend_from_slice(&digits);
}

/// The name that git gives to content. A binary patch is only applied to content of the right name.
pub(super) fn blob_name(content: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", content.len()));
    hash.update(content);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
