//! Names as git writes them in a patch, and the names that git would not take from one.

/// As git does with core.quotePath: in quotes if any byte needs an escape, otherwise as it is.
pub(super) fn quote(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| (b' '..0x7f).contains(byte) && *byte != b'"' && *byte != b'\\';
    if name.iter().all(is_plain) {
        return [prefix, name].concat();
    }
    let mut quoted = vec![b'"'];
    quoted.extend_from_slice(prefix);
    for byte in name {
        match byte {
            0x07 => quoted.extend_from_slice(b"\\a"),
            0x08 => quoted.extend_from_slice(b"\\b"),
            b'\t' => quoted.extend_from_slice(b"\\t"),
            b'\n' => quoted.extend_from_slice(b"\\n"),
            0x0b => quoted.extend_from_slice(b"\\v"),
            0x0c => quoted.extend_from_slice(b"\\f"),
            b'\r' => quoted.extend_from_slice(b"\\r"),
            b'"' => quoted.extend_from_slice(b"\\\""),
            b'\\' => quoted.extend_from_slice(b"\\\\"),
            byte if is_plain(byte) => quoted.push(*byte),
            byte => quoted.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    quoted.push(b'"');
    quoted
}

/// `git apply` refuses the whole patch for one such name: whatever Windows would take for `.git`, and a link in the
/// place of `.gitmodules`.
pub(super) fn is_refused_by_git(name: &[u8], is_symlink: bool) -> bool {
    let name = name.to_ascii_lowercase();
    let is_alias = |part: &[u8], alias: &[u8]| {
        part.strip_prefix(alias).is_some_and(|rest| rest.iter().all(|byte| b" .".contains(byte)))
    };
    for part in name.split(|byte| *byte == b'\\') {
        let stream = part.iter().position(|byte| *byte == b':');
        let part = &part[..stream.unwrap_or(part.len())];
        if is_alias(part, b".git") || is_alias(part, b"git~1") {
            return true;
        }
        if stream.is_some() {
            break;
        }
    }
    is_symlink && [b".gitmodules".as_slice(), b"gitmod~", b"gi7eba~"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_git_does() {
        for (name, written) in [
            ("plain name", "a/plain name"),
            ("tab\tand\nline", r#""a/tab\tand\nline""#),
            ("say \"\\\"", r#""a/say \"\\\"""#),
            ("ü", r#""a/\303\274""#),
            ("\u{1}\u{7f}", r#""a/\001\177""#),
        ] {
            assert_eq!(String::from_utf8(quote(b"a/", name.as_bytes())).unwrap(), written);
        }
    }

    #[test]
    fn names_that_git_refuses_are_known() {
        for name in [".git", ".GIT", "git~1", ".git .", ".git::$INDEX", "a\\.git"] {
            assert!(is_refused_by_git(name.as_bytes(), false), "{name}");
        }
        for name in [".gitignore", ".gitmodules", "git", "a.git", ".gita", "git~10", "a:.git"] {
            assert!(!is_refused_by_git(name.as_bytes(), false), "{name}");
        }
        assert!(is_refused_by_git(b".gitmodules", true));
    }
}
