//! The hunks that turn one text into another. What the two have in common at both ends is cut off first, byte by
//! byte; the lines between are compared unless there are so many that comparing could take long. Then they are
//! replaced as a whole, which is as right and only longer.

use std::io::Write;
use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

/// Lines shown around a change, by which it is found if the file has moved on.
const CONTEXT_LINES: usize = 3;
/// Lines on either side that are compared; each takes about a hundred bytes of memory meanwhile.
const COMPARED_LINES_MAX: usize = 200_000;
/// Lines of one side times lines of the other. Most inputs take milliseconds at this size; the worst, thousands of
/// lines of which only a hundred differ from each other, takes half a second.
const COMPARED_PAIRS_MAX: u64 = 400_000_000;
/// For all files of a patch together: less than a minute, however they were chosen.
const COMPARED_PAIRS_TOTAL_MAX: u64 = 100 * COMPARED_PAIRS_MAX;

/// How much may still be compared. Counted in lines and not in time, so that the same trees give the same patch.
#[derive(Debug)]
pub(super) struct Budget {
    pairs: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { pairs: COMPARED_PAIRS_TOTAL_MAX }
    }
}

impl Budget {
    fn take(&mut self, old_lines: usize, new_lines: usize) -> bool {
        let pairs = (old_lines as u64).saturating_mul(new_lines as u64);
        if old_lines.max(new_lines) > COMPARED_LINES_MAX || pairs > COMPARED_PAIRS_MAX.min(self.pairs) {
            return false;
        }
        self.pairs -= pairs;
        true
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) insertions: u64,
    pub(super) deletions: u64,
}

pub(super) fn write_hunks(patch: &mut Vec<u8>, old: &[u8], new: &[u8], budget: &mut Budget) -> std::io::Result<Counts> {
    let (start, old_end, new_end) = changed(old, new);
    let (lead, trail) = (last_lines(&old[..start]), first_lines(&old[old_end..]));
    let lines_before = count_lines(&old[..start - lead.len()]);
    let (removed, added) = (&old[start..old_end], &new[start..new_end]);
    let is_replaced = removed.is_empty() || added.is_empty();
    if is_replaced || !budget.take(count_lines(removed), count_lines(added)) {
        return replace(patch, lines_before, lead, removed, added, trail);
    }
    let first = start - lead.len();
    compare(patch, lines_before, &old[first..old_end + trail.len()], &new[first..new_end + trail.len()])
}

/// Where the difference begins in both, and where it ends in each: always between lines.
fn changed(old: &[u8], new: &[u8]) -> (usize, usize, usize) {
    let same = old.iter().zip(new).take_while(|(left, right)| left == right).count();
    let start = old[..same].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let same = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(left, right)| left == right);
    let same = same.count();
    let tail = &old[old.len() - same..];
    let kept = tail.iter().position(|byte| *byte == b'\n').map_or(0, |newline| same - newline - 1);
    (start, old.len() - kept, new.len() - kept)
}

/// One hunk that takes out all of `removed` and puts in all of `added`.
fn replace(
    patch: &mut Vec<u8>,
    lines_before: usize,
    lead: &[u8],
    removed: &[u8],
    added: &[u8],
    trail: &[u8],
) -> std::io::Result<Counts> {
    let context = count_lines(lead) + count_lines(trail);
    let (deletions, insertions) = (count_lines(removed), count_lines(added));
    if deletions + insertions == 0 {
        return Ok(Counts::default());
    }
    write_header(
        patch,
        lines_before..lines_before + context + deletions,
        lines_before..lines_before + context + insertions,
    )?;
    for (sign, text) in [(b' ', lead), (b'-', removed), (b'+', added), (b' ', trail)] {
        lines(text).for_each(|line| write_line(patch, sign, line));
    }
    Ok(Counts { insertions: insertions as u64, deletions: deletions as u64 })
}

fn compare(patch: &mut Vec<u8>, lines_before: usize, old: &[u8], new: &[u8]) -> std::io::Result<Counts> {
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let (old_lines, new_lines): (Vec<_>, Vec<_>) = (lines(old).collect(), lines(new).collect());
    let changes: Vec<_> = diff
        .hunks()
        .map(|hunk| {
            let range = |range: Range<u32>| range.start as usize..range.end as usize;
            (range(hunk.before), range(hunk.after))
        })
        .collect();
    let mut counts = Counts::default();
    // Changes whose contexts touch are one hunk.
    for group in changes.chunk_by(|(left, _), (right, _)| right.start - left.end <= 2 * CONTEXT_LINES) {
        let ((first, first_new), (last, last_new)) = (&group[0], &group[group.len() - 1]);
        let lead = first.start.min(CONTEXT_LINES);
        let trail = (old_lines.len() - last.end).min(CONTEXT_LINES);
        let shift = |range: Range<usize>| range.start + lines_before..range.end + lines_before;
        write_header(
            patch,
            shift(first.start - lead..last.end + trail),
            shift(first_new.start - lead..last_new.end + trail),
        )?;
        let mut position = first.start - lead;
        for (removed, added) in group {
            old_lines[position..removed.start].iter().for_each(|line| write_line(patch, b' ', line));
            old_lines[removed.clone()].iter().for_each(|line| write_line(patch, b'-', line));
            new_lines[added.clone()].iter().for_each(|line| write_line(patch, b'+', line));
            position = removed.end;
            counts.deletions += removed.len() as u64;
            counts.insertions += added.len() as u64;
        }
        old_lines[position..last.end + trail].iter().for_each(|line| write_line(patch, b' ', line));
    }
    Ok(counts)
}

/// Lines are counted from 1, but a side without any is named by the line before it.
fn write_header(patch: &mut Vec<u8>, old: Range<usize>, new: Range<usize>) -> std::io::Result<()> {
    let side = |range: Range<usize>| match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        count => format!("{},{count}", range.start + 1),
    };
    writeln!(patch, "@@ -{} +{} @@", side(old), side(new))
}

fn write_line(patch: &mut Vec<u8>, sign: u8, line: &[u8]) {
    patch.push(sign);
    patch.extend_from_slice(line);
    if !line.ends_with(b"\n") {
        patch.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

fn count_lines(text: &[u8]) -> usize {
    let unfinished = !text.is_empty() && !text.ends_with(b"\n");
    text.iter().filter(|byte| **byte == b'\n').count() + usize::from(unfinished)
}

fn first_lines(text: &[u8]) -> &[u8] {
    let length = lines(text).take(CONTEXT_LINES).map(<[u8]>::len).sum();
    &text[..length]
}

fn last_lines(text: &[u8]) -> &[u8] {
    // `text` ends between lines.
    let length = text.split_inclusive(|byte| *byte == b'\n').rev().take(CONTEXT_LINES).map(<[u8]>::len).sum::<usize>();
    &text[text.len() - length..]
}
