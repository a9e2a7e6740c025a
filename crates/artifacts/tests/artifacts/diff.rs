//! Patches, applied by git and by patch to a copy of the base.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::process::Command;

use cofferdam_artifacts::copy::{CopyLimits, copy_tree};
use cofferdam_artifacts::diff::{PatchOptions, Patched, write_patch};
use proptest::prelude::*;

use crate::{Entry, Tree, run};

fn patch(base: Option<&Tree>, tree: &Tree, options: PatchOptions) -> (Vec<u8>, Patched) {
    let mut patch = Vec::new();
    let base = base.map(Tree::workspace);
    let patched = write_patch(base.as_ref(), &tree.workspace(), &mut patch, options).unwrap();
    assert_eq!(patched.patch_bytes, patch.len() as u64);
    (patch, patched)
}

/// A copy of `base` after the patch.
fn apply(base: &Tree, patch: &[u8], program: &mut Command) -> Tree {
    let applied = Tree::new();
    copy_tree(&base.workspace(), &applied.workspace(), CopyLimits::default()).unwrap();
    let holder = tempfile::tempdir().unwrap();
    let path = holder.path().join("changes.patch");
    std::fs::write(&path, patch).unwrap();
    run(program.current_dir(applied.path()).stdin(File::open(&path).unwrap()));
    applied
}

fn git_apply() -> Command {
    let mut command = Command::new("git");
    command.args(["apply", "--allow-empty", "--whitespace=nowarn", "-"]);
    command
}

/// What git knows of a tree.
fn as_git_sees_it(tree: &Tree) -> BTreeMap<OsString, Entry> {
    tree.entries()
        .into_iter()
        .filter_map(|(path, entry)| match entry {
            Entry::Directory { .. } => None,
            Entry::File { mode, content } => Some((path, Entry::File { mode: mode & 0o100, content })),
            link => Some((path, link)),
        })
        .collect()
}

#[test]
fn a_patch_reads_as_one_of_git() {
    let (base, tree) = (Tree::new(), Tree::new());
    base.file("changed", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n", 0o644)
        .file("made executable", "same\n", 0o644)
        .file("removed", "gone\n", 0o644)
        .file("unchanged", "same\n", 0o644)
        .file("a file", "content\n", 0o644);
    tree.file("changed", "1\ntwo\n3\n4\n5\n6\n7\n8\n9\n10\n11\nend", 0o644)
        .file("made executable", "same\n", 0o755)
        .file("unchanged", "same\n", 0o644)
        .file("ü/new", "x\n", 0o644)
        .file("bytes", "\0\u{1}\u{2}", 0o644)
        .file(".git/config", "left out", 0o644)
        .symlink("a file", "changed");
    let (patch, patched) = patch(Some(&base), &tree, PatchOptions::default());
    assert_eq!(String::from_utf8(patch.clone()).unwrap(), include_str!("expected.patch"));
    let expected =
        Patched { files_changed: 6, insertions: 4, deletions: 4, patch_bytes: patched.patch_bytes, left_out: 0 };
    assert_eq!(patched, expected);
}

#[test]
fn without_a_base_everything_is_new() {
    let tree = Tree::new();
    tree.file("a/b", "text\n", 0o755).file("empty", "", 0o644).symlink("link", "a/b");
    let (patch, patched) = patch(None, &tree, PatchOptions::default());
    assert_eq!(patched.files_changed, 3);
    assert_eq!(as_git_sees_it(&apply(&Tree::new(), &patch, &mut git_apply())), as_git_sees_it(&tree));
}

#[test]
fn text_can_be_applied_without_git() {
    let (base, tree) = (Tree::new(), Tree::new());
    base.file("a", "1\n2\n3\n", 0o644).file("b", "old", 0o644).file("with space", "x\n", 0o644);
    tree.file("a", "1\n2\n3\n4", 0o644).file("c/new", "new\n", 0o644).file("with space", "y\n", 0o644);
    let (patch, _) = patch(Some(&base), &tree, PatchOptions::default());
    let applied = apply(&base, &patch, Command::new("patch").args(["-p1", "-s"]));
    assert_eq!(as_git_sees_it(&applied), as_git_sees_it(&tree));
}

#[test]
fn what_is_too_large_is_named_and_the_rest_still_applies() {
    let (base, tree) = (Tree::new(), Tree::new());
    base.file("large and same", vec![b'x'; 200], 0o644).file("large and changed", vec![b'x'; 200], 0o644);
    tree.file("large and same", vec![b'x'; 200], 0o755)
        .file("large and changed", vec![b'y'; 200], 0o644)
        .file("new\nlarge", vec![b'y'; 200], 0o644)
        .file("git~1/x", "x", 0o644)
        .file("small", "s\n", 0o644);
    let (patch, patched) = patch(Some(&base), &tree, PatchOptions { file_bytes: 100, ..PatchOptions::default() });
    assert_eq!(
        String::from_utf8(patch.clone()).unwrap(),
        "# Left out: git~1: git takes nothing of this name from a patch\n\
         # Left out: large and changed: it is larger than 100 bytes\n\
         diff --git a/large and same b/large and same\nold mode 100644\nnew mode 100755\n\
         # Left out: \"new\\nlarge\": it is larger than 100 bytes\n\
         diff --git a/small b/small\nnew file mode 100644\n\
         index 0000000000000000000000000000000000000000..b4785957bc986dc39c629de9fac9df46972c00fc\n\
         --- /dev/null\n+++ b/small\n@@ -0,0 +1 @@\n+s\n"
    );
    assert_eq!((patched.files_changed, patched.left_out), (2, 3));
    let applied = apply(&base, &patch, &mut git_apply());
    assert_eq!(std::fs::read(applied.at("small")).unwrap(), b"s\n");
}

#[test]
fn a_patch_does_not_outgrow_its_limit() {
    let tree = Tree::new();
    tree.file("a", "a\n", 0o644).file("b", "long\n".repeat(200), 0o644).file("c", "c\n", 0o644);
    let (patch, patched) = patch(None, &tree, PatchOptions { patch_bytes: 600, ..PatchOptions::default() });
    let text = String::from_utf8(patch).unwrap();
    assert!(text.contains("# Left out: b: the patch would be larger than 600 bytes\n"), "{text}");
    assert!(text.contains("+++ b/c"), "{text}");
    assert_eq!((patched.files_changed, patched.left_out), (2, 1));
}

/// Inputs on which finding the smallest difference would take minutes.
#[test]
fn large_files_that_share_little_are_replaced_in_reasonable_time() {
    let numbers = |range: Vec<usize>| range.iter().map(|number| format!("{number}\n")).collect::<String>();
    for (old, new) in [
        (numbers((0..700_000).collect()), numbers((700_000..1_400_000).collect())),
        (
            numbers((0..100_000).map(|index| index % 97).collect()),
            numbers((0..100_000).map(|index| index % 89).collect()),
        ),
        ("\n".repeat(8_000_000), "x\n".repeat(4_000_000)),
    ] {
        let (base, tree) = (Tree::new(), Tree::new());
        base.file("lines", &old, 0o644);
        tree.file("lines", &new, 0o644);
        let started = std::time::Instant::now();
        let (patch, patched) = patch(Some(&base), &tree, PatchOptions::default());
        assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
        assert_eq!(patched.files_changed, 1);
        assert_eq!(as_git_sees_it(&apply(&base, &patch, &mut git_apply())), as_git_sees_it(&tree));
    }
}

/// Some are directories in one tree and files in another.
const PATHS: [&[u8]; 14] = [
    b"a",
    b"a/b",
    b"a/b/c",
    b"a/d",
    b"dir with space/x y",
    b"trailing ",
    b"tab\tname",
    b"new\nline",
    b"quo\"te\\",
    "ü☃".as_bytes(),
    b"\xff\xfe",
    b"-dash",
    b"a.b",
    b"..dots/...",
];

#[derive(Debug, Clone)]
enum Node {
    File { content: Vec<u8>, executable: bool },
    Link(Vec<u8>),
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        5 => (0..6u8).prop_map(|digit| format!("{digit}\n")),
        1 => (0..3u8).prop_map(|digit| format!("{digit}\r\n")),
        1 => Just("\n".to_owned()),
        1 => Just("-- \n".to_owned()),
        1 => Just("@@ -1 +1 @@\n".to_owned()),
        1 => "[ -~]{0,20}".prop_map(|text| text + "\n"),
    ];
    prop_oneof![
        6 => (prop::collection::vec(line, 0..40), prop::option::of("[a-z]{1,5}"))
            .prop_map(|(lines, last)| (lines.concat() + &last.unwrap_or_default()).into_bytes()),
        2 => prop::collection::vec(any::<u8>(), 0..300),
        1 => Just(Vec::new()),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    prop_oneof![
        5 => (content(), any::<bool>()).prop_map(|(content, executable)| Node::File { content, executable }),
        1 => prop_oneof![Just("missing"), Just("../../etc/passwd"), Just("ü\n\"x"), Just("/")]
            .prop_map(|target| Node::Link(target.into())),
    ]
}

type Nodes = BTreeMap<usize, Node>;

/// A tree, and what became of it: per path nothing, a removal, a small edit, or something new.
fn trees() -> impl Strategy<Value = (Nodes, Nodes)> {
    let nodes = || prop::collection::btree_map(0..PATHS.len(), node(), 0..8);
    (nodes(), nodes(), prop::collection::vec(any::<u8>(), PATHS.len())).prop_map(|(base, fresh, choices)| {
        let mut target = base.clone();
        for (index, choice) in choices.into_iter().enumerate() {
            match (choice % 5, fresh.get(&index), target.get_mut(&index)) {
                (0, _, _) => drop(target.remove(&index)),
                (1 | 2, Some(node), _) => drop(target.insert(index, node.clone())),
                (3, _, Some(Node::File { content, .. })) => {
                    let position = usize::from(choice) * content.len() / 256;
                    content.splice(position..position, *b"edit\n");
                }
                (4, _, Some(Node::File { executable, .. })) => *executable = !*executable,
                _ => {}
            }
        }
        (base, target)
    })
}

fn build(nodes: &Nodes) -> Tree {
    let tree = Tree::new();
    for (index, node) in nodes {
        let path = PATHS[*index];
        // A file is where this one's directory would have to be, or the other way round.
        let mut above = tree.at(path);
        if above.symlink_metadata().is_ok() {
            continue;
        }
        let mut is_blocked = false;
        while above.pop() && above != tree.path() {
            is_blocked |= above.symlink_metadata().is_ok_and(|metadata| !metadata.is_dir());
        }
        if is_blocked {
            continue;
        }
        match node {
            Node::File { content, executable } => {
                tree.file(path, content, if *executable { 0o755 } else { 0o644 });
            }
            Node::Link(target) => {
                std::fs::create_dir_all(tree.at(path).parent().unwrap()).unwrap();
                tree.symlink(path, target);
            }
        }
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn git_turns_the_base_into_the_workspace((base, target) in trees()) {
        let (base, target) = (build(&base), build(&target));
        let (patch, patched) = patch(Some(&base), &target, PatchOptions::default());
        prop_assert_eq!(patched.left_out, 0);
        prop_assert_eq!(patch.is_empty(), as_git_sees_it(&base) == as_git_sees_it(&target));
        let applied = apply(&base, &patch, &mut git_apply());
        prop_assert_eq!(as_git_sees_it(&applied), as_git_sees_it(&target));
    }
}
