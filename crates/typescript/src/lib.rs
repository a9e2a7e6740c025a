//! Makes JavaScript of TypeScript in place: types become spaces, and enums, namespaces and parameter properties
//! become JavaScript on their own lines, so that a stack trace of the result names the lines of the source.
//! [`compile`] does one file, [`tree::compile_tree`] a file and what it imports, and [`preload::preload_script`] writes
//! the script that hands the results to node. Checks no types, reads no `tsconfig.json`, and runs nothing.
//!
//! Refused with an error that says where: decorators, `accessor`, JSX, `export =` beside ES module syntax, and
//! parameter properties after a `super()` that is no statement of its own. Fields are defined as JavaScript does it
//! (`useDefineForClassFields`), so an initializer does not see parameter properties. A second block of a namespace
//! reaches exports of the first through the namespace's name only. A re-export of another file's type
//! (`export { T } from`, or `export { T }` of an import) needs the word `type`.

mod compiler;
mod edits;
mod enums;
mod error;
mod facts;
mod functions;
pub mod inline;
mod modules;
mod namespaces;
pub mod preload;
mod rewriter;
pub mod tree;

pub use error::TypeScriptError;

/// The module system that a file's code is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleKind {
    /// Node runs it as `.mjs`.
    EsModule,
    /// Node runs it as `.cjs`.
    CommonJs,
}

/// One compiled file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaScript {
    /// Has as many lines as the source.
    pub code: String,
    pub module_kind: ModuleKind,
    /// What the code imports or requires by a literal name, in order of appearance, duplicates included.
    pub specifiers: Vec<String>,
}

/// The largest source that is compiled. Machine-written data of that size belongs into JSON, and the parser's stack
/// grows with the source.
pub const MAXIMUM_SOURCE_BYTES: usize = 4 << 20;

/// The JavaScript of one TypeScript file. The name's ending decides as it does for node: `.mts` is an ES module,
/// `.cts` is CommonJS, and of all others the code itself decides.
pub fn to_javascript(source: &str, file_name: &str) -> Result<String, TypeScriptError> {
    compile(source, file_name).map(|compiled| compiled.code)
}

/// The module system of one TypeScript file.
pub fn module_kind(source: &str, file_name: &str) -> Result<ModuleKind, TypeScriptError> {
    compile(source, file_name).map(|compiled| compiled.module_kind)
}

/// The JavaScript of one TypeScript file, with its module system and its imports.
pub fn compile(source: &str, file_name: &str) -> Result<JavaScript, TypeScriptError> {
    compiler::compile_with_room(source, file_name)
}
