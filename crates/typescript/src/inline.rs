//! Owns the short way to run a program of one ES module: as text on node's command line. Older nodes start a thread
//! for module hooks, which takes longer than the rest of their start; a module that needs no hooks need not wait for it.

use crate::ModuleKind;
use crate::tree::CompiledTree;

/// Longer programs go the long way: the kernel bounds a single argument at 128 KiB.
const CODE_MAX_BYTES: usize = 64 * 1024;

/// The program as text for `node --input-type=module --eval`, run in `root`, or nothing if it needs more: other files
/// of its own, or a place that is not `root`, or an unusual name. Lines stay where they were, and errors name the source's own path.
pub fn inline_module(tree: &CompiledTree, root: &str) -> Option<String> {
    let file = tree.files.get(&tree.entry)?;
    let javascript = &file.javascript;
    let is_own = |specifier: &String| {
        specifier.starts_with('.')
            || specifier.starts_with('/')
            || specifier.contains(':') && !specifier.starts_with("node:")
    };
    let fits = tree.files.len() == 1
        && javascript.module_kind == ModuleKind::EsModule
        && javascript.code.len() <= CODE_MAX_BYTES
        && !javascript.code.starts_with("#!")
        && tree.entry.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && !javascript.specifiers.iter().any(is_own);
    if !fits {
        return None;
    }
    let path = format!("{root}/{}", tree.entry);
    // On the first line, in front of what stands there.
    let prologue = format!(
        "process.argv.splice(1,0,\"{path}\");Object.assign(import.meta,\
         {{url:\"file://{path}\",filename:\"{path}\",dirname:\"{root}\"}});"
    );
    Some(format!("{prologue}{}\n//# sourceURL=file://{path}\n", javascript.code))
}
