//! Owns the edits of one source text: what is blanked, replaced or inserted where. Every edit keeps the line
//! terminators of the text it covers, which is what keeps the line numbers of the result. Knows no syntax beyond
//! white space and comments.

use std::borrow::Cow;

pub(crate) struct Edits<'source> {
    pub(crate) source: &'source str,
    list: Vec<Edit>,
}

struct Edit {
    start: u32,
    end: u32,
    text: Cow<'static, str>,
}

impl<'source> Edits<'source> {
    pub(crate) fn new(source: &'source str) -> Self {
        Self { source, list: Vec::new() }
    }

    /// Puts spaces over a range.
    pub(crate) fn blank(&mut self, start: u32, end: u32) {
        self.replace(start, end, "");
    }

    /// Puts an empty statement over a range. The semicolon ends what stands before: without it, a line that begins
    /// with a bracket after the range would continue the expression before the range.
    pub(crate) fn blank_statement(&mut self, start: u32, end: u32) {
        self.replace(start, end, ";");
    }

    /// Puts a text over the beginning of a range and spaces over the rest of it.
    pub(crate) fn replace(&mut self, start: u32, end: u32, text: impl Into<Cow<'static, str>>) {
        self.list.push(Edit { start, end, text: text.into() });
    }

    /// Puts a text between two characters; the text comes before any edit of the range that begins there.
    pub(crate) fn insert(&mut self, position: u32, text: impl Into<Cow<'static, str>>) {
        self.list.push(Edit { start: position, end: position, text: text.into() });
    }

    pub(crate) fn text(&self, start: u32, end: u32) -> &'source str {
        &self.source[start as usize..end as usize]
    }

    pub(crate) fn has_line_break(&self, start: u32, end: u32) -> bool {
        self.text(start, end).contains(is_line_break)
    }

    /// Where the next token begins at or after a position that is not inside a token.
    pub(crate) fn token_from(&self, position: u32) -> u32 {
        let mut rest = &self.source[position as usize..];
        loop {
            rest = rest.trim_start_matches(|character: char| character.is_whitespace() || character == '\u{feff}');
            let comment_length = if rest.starts_with("//") {
                rest.find(is_line_break).unwrap_or(rest.len())
            } else if let Some(comment) = rest.strip_prefix("/*") {
                comment.find("*/").map_or(rest.len(), |end| end + 4)
            } else {
                return (self.source.len() - rest.len()) as u32;
            };
            rest = &rest[comment_length..];
        }
    }

    /// The position of the given character, if it is the next token's first.
    pub(crate) fn punctuation_from(&self, position: u32, character: u8) -> Option<u32> {
        let token = self.token_from(position);
        (self.source.as_bytes().get(token as usize) == Some(&character)).then_some(token)
    }

    /// The word that begins at a position; empty if none does.
    pub(crate) fn word_at(&self, position: u32) -> &'source str {
        let rest = &self.source[position as usize..];
        let end = rest.find(|character: char| !(character.is_alphanumeric() || "_$#".contains(character)));
        &rest[..end.unwrap_or(rest.len())]
    }

    /// The source with all edits made. Edits do not overlap; that is the caller's promise.
    pub(crate) fn apply(mut self) -> String {
        self.list.sort_by_key(|edit| (edit.start, edit.end != edit.start));
        let mut output = String::with_capacity(self.source.len() + self.source.len() / 8);
        let mut position = 0;
        for edit in &self.list {
            debug_assert!(position <= edit.start, "edits overlap at byte {}", edit.start);
            output.push_str(&self.source[position as usize..edit.start as usize]);
            output.push_str(&edit.text);
            let mut columns_taken = edit.text.chars().count();
            for character in self.source[edit.start as usize..edit.end as usize].chars() {
                if is_line_break(character) {
                    output.push(character);
                } else if columns_taken > 0 {
                    columns_taken -= 1;
                } else {
                    // One space per UTF-16 unit, because that is how node counts columns.
                    output.extend(std::iter::repeat_n(' ', character.len_utf16()));
                }
            }
            position = edit.end;
        }
        output.push_str(&self.source[position as usize..]);
        output
    }
}

fn is_line_break(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}
