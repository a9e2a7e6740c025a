//! Owns the one error of this crate: what is wrong, and where in which file.

/// Why a TypeScript file could not be made JavaScript. Lines and columns count from one, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeScriptError {
    #[error("{file}:{line}:{column}: {problem}")]
    Syntax { file: String, line: u32, column: u32, problem: String },
    #[error("{file}:{line}:{column}: {construct}")]
    Unsupported { file: String, line: u32, column: u32, construct: String },
    #[error("{file}: the file has {bytes} bytes, more than the {limit} that are compiled")]
    TooLarge { file: String, bytes: usize, limit: usize },
    #[error("{file}: cannot be read: {problem}")]
    Unreadable { file: String, problem: String },
    #[error("{file}: the compiler's thread could not be started: {problem}")]
    NoThread { file: String, problem: String },
}

/// The line and column of a byte offset.
pub(crate) fn line_and_column(source: &str, offset: u32) -> (u32, u32) {
    let mut end = (offset as usize).min(source.len());
    while !source.is_char_boundary(end) {
        end -= 1;
    }
    let before = &source[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before[line_start..].chars().count() + 1;
    (line as u32, column as u32)
}
