//! Owns the script that makes node run compiled files in the place of their TypeScript sources. Its run-time half is
//! `preload.cjs` beside this file.
//!
//! The compiled code is part of the script, so nothing is written into the workspace, and node is told that it came
//! from the source's own path: `import.meta.url`, `__dirname`, the search for `node_modules` and stack traces are those
//! of the source. Started as `node <preload_option> <script> <entry> ...`, from node 18.19 on.
//!
//! Before node 22.15, an ES module that imports a compiled CommonJS file reliably gets its default export only: node
//! looks for the named ones in the TypeScript source. And an ES module cannot be required, as in those nodes at all.

use crate::ModuleKind;
use crate::tree::CompiledTree;

/// The text of a file to be named `.cjs` and given to node with [`preload_option`]. `root` is the absolute path, as
/// node sees it and without symbolic links, of the directory that the tree's paths are relative to.
pub fn preload_script(tree: &CompiledTree, root: &str) -> String {
    let files = tree.files.iter().map(|(path, file)| {
        let format = match file.javascript.module_kind {
            ModuleKind::EsModule => "module",
            ModuleKind::CommonJs => "commonjs",
        };
        serde_json::json!([path, format, file.javascript.code, file.resolutions])
    });
    let data = serde_json::json!({ "root": root, "entry": tree.entry, "files": files.collect::<Vec<_>>() });
    format!("const tree = {data};\n{}", include_str!("preload.cjs"))
}

/// Node's option for the script. `--import` makes node load the entry as ES modules are loaded, with all of their rules
/// for `await` and exit codes; `--require` leaves a CommonJS entry to CommonJS, so that it is `require.main`.
pub fn preload_option(tree: &CompiledTree) -> &'static str {
    match tree.files.get(&tree.entry).map(|file| file.javascript.module_kind) {
        Some(ModuleKind::CommonJs) => "--require",
        _ => "--import",
    }
}
