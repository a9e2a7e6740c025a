//! The records of a zip archive as they are written, one after the other and never back: local headers, data
//! descriptors, the central directory. Which entries there are and how they are compressed is not decided here.
//! The numbers are those of PKWARE's APPNOTE, and of Info-ZIP's for what Unix adds.

const LOCAL_HEADER: u32 = 0x0403_4b50;
const DATA_DESCRIPTOR: u32 = 0x0807_4b50;
const CENTRAL_HEADER: u32 = 0x0201_4b50;
const ZIP64_END: u32 = 0x0606_4b50;
const ZIP64_END_LOCATOR: u32 = 0x0706_4b50;
const END: u32 = 0x0605_4b50;

const EXTRA_ZIP64: u16 = 0x0001;
/// "UT": the time of the last change in seconds since 1970, UTC, where the old field knows no time zone.
const EXTRA_TIMESTAMP: u16 = 0x5455;

const VERSION_DEFLATE: u16 = 20;
const VERSION_ZIP64: u16 = 45;
/// Says that the attributes hold a Unix mode.
const MADE_ON_UNIX: u16 = 3 << 8;
const FLAG_DESCRIPTOR: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;
const DOS_DIRECTORY: u32 = 0x10;

/// A value that says: look into the zip64 record.
const ELSEWHERE_32: u32 = u32::MAX;
const ELSEWHERE_16: u16 = u16::MAX;
/// From this size on, an entry whose sizes follow it has room for 64 bits each. Deflate adds less than a thousandth
/// to what it cannot compress, so that nothing below it can come to need them.
const STREAMED_ZIP64_MIN_BYTES: u64 = 0xf000_0000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Stored = 0,
    Deflated = 8,
}

/// An entry before its content. A directory's name ends with a slash.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    /// With the type bits.
    pub(super) unix_mode: u32,
    pub(super) modified_seconds: i64,
    pub(super) method: Method,
}

/// What is known of an entry's content once it was compressed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) crc: u32,
    pub(super) compressed: u64,
    pub(super) uncompressed: u64,
}

/// When an entry's sizes are written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Placement {
    /// In front of it.
    Before(Sizes),
    /// In a descriptor behind it; the size announced decides how wide that is.
    Behind { announced_bytes: u64 },
}

impl Placement {
    fn is_zip64(self) -> bool {
        match self {
            Self::Before(sizes) => is_large(sizes.compressed) || is_large(sizes.uncompressed),
            Self::Behind { announced_bytes } => announced_bytes >= STREAMED_ZIP64_MIN_BYTES,
        }
    }

    fn is_behind(self) -> bool {
        matches!(self, Self::Behind { .. })
    }
}

pub(super) fn local_header(entry: &Entry, placement: Placement) -> Vec<u8> {
    let zip64 = placement.is_zip64();
    let sizes = match placement {
        Placement::Before(sizes) => sizes,
        Placement::Behind { .. } => Sizes { crc: 0, compressed: 0, uncompressed: 0 },
    };
    let mut extra = Record::default();
    if zip64 {
        extra.u16(EXTRA_ZIP64).u16(16).u64(sizes.uncompressed).u64(sizes.compressed);
    }
    timestamp(&mut extra, entry.modified_seconds);

    let mut record = Record::default();
    record.u32(LOCAL_HEADER);
    common(&mut record, entry, placement.is_behind(), zip64);
    record.u32(sizes.crc);
    record.u32(if zip64 { ELSEWHERE_32 } else { sizes.compressed as u32 });
    record.u32(if zip64 { ELSEWHERE_32 } else { sizes.uncompressed as u32 });
    record.u16(entry.name.len() as u16).u16(extra.0.len() as u16).bytes(&entry.name).bytes(&extra.0);
    record.0
}

pub(super) fn data_descriptor(placement: Placement, sizes: Sizes) -> Vec<u8> {
    let mut record = Record::default();
    record.u32(DATA_DESCRIPTOR).u32(sizes.crc);
    if placement.is_zip64() {
        record.u64(sizes.compressed).u64(sizes.uncompressed);
    } else {
        record.u32(sizes.compressed as u32).u32(sizes.uncompressed as u32);
    }
    record.0
}

/// Collects what is written after the last entry.
#[derive(Debug, Default)]
pub(super) struct CentralDirectory {
    records: Record,
    entries: u64,
}

impl CentralDirectory {
    pub(super) fn add(&mut self, entry: &Entry, placement: Placement, sizes: Sizes, offset: u64) {
        let mut wide = Record::default();
        for value in [sizes.uncompressed, sizes.compressed, offset].into_iter().filter(|value| is_large(*value)) {
            wide.u64(value);
        }
        let mut extra = Record::default();
        if !wide.0.is_empty() {
            extra.u16(EXTRA_ZIP64).u16(wide.0.len() as u16).bytes(&wide.0);
        }
        timestamp(&mut extra, entry.modified_seconds);

        let zip64 = !wide.0.is_empty() || placement.is_zip64();
        let is_directory = entry.name.ends_with(b"/");
        let record = &mut self.records;
        record.u32(CENTRAL_HEADER).u16(MADE_ON_UNIX | VERSION_ZIP64);
        common(record, entry, placement.is_behind(), zip64);
        record.u32(sizes.crc).u32(narrow(sizes.compressed)).u32(narrow(sizes.uncompressed));
        record.u16(entry.name.len() as u16).u16(extra.0.len() as u16);
        // No comment, on the first disk, not known to be text.
        record.u16(0).u16(0).u16(0);
        record.u32(entry.unix_mode << 16 | if is_directory { DOS_DIRECTORY } else { 0 });
        record.u32(narrow(offset)).bytes(&entry.name).bytes(&extra.0);
        self.entries += 1;
    }

    /// The directory and the end of the archive, for a directory that begins at `offset`.
    pub(super) fn finish(self, offset: u64) -> Vec<u8> {
        let (entries, mut record) = (self.entries, self.records);
        let length = record.0.len() as u64;
        let entries_narrow = u16::try_from(entries).unwrap_or(ELSEWHERE_16);
        if entries_narrow == ELSEWHERE_16 || is_large(length) || is_large(offset) {
            record.u32(ZIP64_END).u64(44).u16(MADE_ON_UNIX | VERSION_ZIP64).u16(VERSION_ZIP64).u32(0).u32(0);
            record.u64(entries).u64(entries).u64(length).u64(offset);
            record.u32(ZIP64_END_LOCATOR).u32(0).u64(offset + length).u32(1);
        }
        record.u32(END).u16(0).u16(0).u16(entries_narrow).u16(entries_narrow);
        record.u32(narrow(length)).u32(narrow(offset)).u16(0);
        record.0
    }
}

/// What local and central headers have in common, from the version to the date.
fn common(record: &mut Record, entry: &Entry, behind: bool, zip64: bool) {
    let mut flags = 0;
    if behind {
        flags |= FLAG_DESCRIPTOR;
    }
    // Names that are not UTF-8 are written as the bytes they are, as Info-ZIP does on Unix.
    if !entry.name.is_ascii() && std::str::from_utf8(&entry.name).is_ok() {
        flags |= FLAG_UTF8;
    }
    let (time, date) = dos_time(entry.modified_seconds);
    record.u16(if zip64 { VERSION_ZIP64 } else { VERSION_DEFLATE }).u16(flags).u16(entry.method as u16);
    record.u16(time).u16(date);
}

/// Times that 32 bits do not hold are left to the old field.
fn timestamp(extra: &mut Record, seconds: i64) {
    if let Ok(seconds) = i32::try_from(seconds) {
        extra.u16(EXTRA_TIMESTAMP).u16(5).bytes(&[1]).u32(seconds as u32);
    }
}

/// The time and date of 1980, in UTC: the same tree gives the same archive wherever it is made.
fn dos_time(seconds: i64) -> (u16, u16) {
    const DAY_SECONDS: i64 = 86_400;
    // 1980-01-01 00:00:00 and 2107-12-31 23:59:58, all that the field can say.
    let seconds = seconds.clamp(315_532_800, 4_354_819_198);
    let (days, second) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
    // Days since 0000-03-01: years that begin in March have their leap day at the end.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let time = (second / 3600) << 11 | (second / 60 % 60) << 5 | (second % 60 / 2);
    (time as u16, ((year - 1980) << 9 | month << 5 | day) as u16)
}

fn is_large(value: u64) -> bool {
    value >= u64::from(ELSEWHERE_32)
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(ELSEWHERE_32)
}

/// Little-endian fields, one after the other.
#[derive(Debug, Default)]
struct Record(Vec<u8>);

impl Record {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_and_kept_within_what_the_field_can_say() {
        let fields = |seconds| {
            let (time, date) = dos_time(seconds);
            let (time, date) = (u32::from(time), u32::from(date));
            ((date >> 9) + 1980, date >> 5 & 15, date & 31, time >> 11, time >> 5 & 63, (time & 31) * 2)
        };
        for (seconds, expected) in [
            (0, (1980, 1, 1, 0, 0, 0)),
            (315_532_800, (1980, 1, 1, 0, 0, 0)),
            (951_827_696, (2000, 2, 29, 12, 34, 56)),
            (1_709_251_199, (2024, 2, 29, 23, 59, 58)),
            (1_709_251_200, (2024, 3, 1, 0, 0, 0)),
            (i64::MAX, (2107, 12, 31, 23, 59, 58)),
        ] {
            assert_eq!(fields(seconds), expected, "{seconds}");
        }
    }
}
