//! How the small parts of a request to the guest are written: parameters of the query, the range of a read, the two
//! paths of a move. Bodies of commands are in [`crate::exec`]; what a request does is the guest's.

use std::ops::Range;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("{name}={value} is not a whole number")]
    Number { name: String, value: String },
    #[error("mode={0} is not a file's mode; write its permission bits as a decimal number, 420 for rw-r--r--")]
    Mode(u64),
    #[error("a range is written bytes=FIRST-LAST or bytes=FIRST-")]
    Range,
}

/// Both percent-encoded, as in the path of any other request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRequest {
    pub from: String,
    pub to: String,
}

/// A parameter of the query, not decoded: the guest's parameters are numbers and flags. A flag's value is empty.
pub fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| match pair.split_once('=') {
        Some((key, value)) if key == name => Some(value),
        None if pair == name => Some(""),
        _ => None,
    })
}

pub fn number_parameter(query: &str, name: &str) -> Result<Option<u64>, ParameterError> {
    let Some(value) = parameter(query, name) else { return Ok(None) };
    let wrong = || ParameterError::Number { name: name.to_owned(), value: value.to_owned() };
    digits(value).map(Some).ok_or_else(wrong)
}

/// A file's mode; which of its bits are taken over is decided where the file is written.
pub fn mode_parameter(query: &str) -> Result<Option<u32>, ParameterError> {
    let Some(mode) = number_parameter(query, "mode")? else { return Ok(None) };
    u32::try_from(mode).map(Some).map_err(|_| ParameterError::Mode(mode))
}

/// `bytes=first-` or `bytes=first-last`; what HTTP allows beyond that nobody here asks for.
pub fn range(text: &str) -> Result<Range<u64>, ParameterError> {
    let parse = || {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        let first = digits(first)?;
        let end = if last.is_empty() { u64::MAX } else { digits(last)?.checked_add(1)? };
        (first <= end).then_some(first..end)
    };
    parse().ok_or(ParameterError::Range)
}

/// The library's own parsing takes a leading plus, which is a space in a query and no number in a range.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_by_their_whole_name() {
        let query = "append&mode=420&from=";
        assert_eq!(parameter(query, "append"), Some(""));
        assert_eq!(parameter(query, "mod"), None);
        assert_eq!(number_parameter(query, "mode"), Ok(Some(420)));
        assert_eq!(number_parameter(query, "to"), Ok(None));
        assert_eq!(mode_parameter(query), Ok(Some(420)));
        assert_eq!(mode_parameter("mode=4294967296"), Err(ParameterError::Mode(1 << 32)));
        assert!(number_parameter("to=+5", "to").is_err());
        let error = number_parameter(query, "from").unwrap_err();
        assert_eq!(error.to_string(), "from= is not a whole number");
    }

    #[test]
    fn ranges_have_a_first_byte_and_perhaps_a_last_one() {
        assert_eq!(range("bytes=0-0"), Ok(0..1));
        assert_eq!(range("bytes=7-"), Ok(7..u64::MAX));
        for mistake in [
            "",
            "bytes=",
            "bytes=-5",
            "bytes=9-3",
            "lines=1-2",
            "bytes=0-18446744073709551615",
            "bytes=1-2,4-5",
            "bytes=+1-2",
            "bytes=1-+2",
        ] {
            assert_eq!(range(mistake), Err(ParameterError::Range), "{mistake}");
        }
    }
}
