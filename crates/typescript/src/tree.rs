//! Owns the following of imports from file to file: which TypeScript files a program consists of, and which file each
//! import means. Reads through the caller, who decides what may be read, and writes nothing.

use std::collections::{BTreeMap, HashMap};

use crate::{JavaScript, TypeScriptError, compile};

/// A program's TypeScript files, compiled. Paths are relative to the root that the caller reads from, with `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledTree {
    pub entry: String,
    pub files: BTreeMap<String, CompiledFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledFile {
    pub javascript: JavaScript,
    /// The file of this tree that each relative import means. What is not here is left to node.
    pub resolutions: BTreeMap<String, String>,
}

/// Compiles a TypeScript file and all TypeScript files that it imports by a literal relative path, directly or not.
/// `read` gives the text of a file beneath the root, or nothing if there is no such file; it is asked for each file
/// once. As `tsc` has it, `./a`, `./a.js` and `./a.ts` may all mean `a.ts`, and `./a` also `a/index.ts`.
pub fn compile_tree(
    entry: &str,
    read: &mut dyn FnMut(&str) -> std::io::Result<Option<String>>,
) -> Result<CompiledTree, TypeScriptError> {
    let unreadable = |file: &str, problem: &dyn ToString| TypeScriptError::Unreadable {
        file: file.to_string(),
        problem: problem.to_string(),
    };
    let entry = join("", entry).ok_or_else(|| unreadable(entry, &"the path leaves the workspace"))?;
    let mut sources: HashMap<String, Option<String>> = HashMap::new();
    let mut files = BTreeMap::new();
    let mut pending = vec![entry.clone()];
    while let Some(path) = pending.pop() {
        if files.contains_key(&path) {
            continue;
        }
        let source = match sources.remove(&path) {
            Some(source) => source,
            None => read(&path).map_err(|error| unreadable(&path, &error))?,
        };
        let source = source.ok_or_else(|| unreadable(&path, &"no such file"))?;
        let javascript = compile(&source, &path)?;
        let mut resolutions = BTreeMap::new();
        for specifier in javascript.specifiers.iter().filter(|name| name.starts_with("./") || name.starts_with("../")) {
            for candidate in candidates(&path, specifier) {
                if !files.contains_key(&candidate) && candidate != path && !sources.contains_key(&candidate) {
                    let text = read(&candidate).map_err(|error| unreadable(&candidate, &error))?;
                    sources.insert(candidate.clone(), text);
                }
                if sources.get(&candidate).is_none_or(Option::is_some) {
                    resolutions.insert(specifier.clone(), candidate.clone());
                    pending.push(candidate);
                    break;
                }
            }
        }
        files.insert(path, CompiledFile { javascript, resolutions });
    }
    Ok(CompiledTree { entry, files })
}

/// The TypeScript files that an import can mean, the likeliest first.
fn candidates(importer: &str, specifier: &str) -> Vec<String> {
    let directory = importer.rsplit_once('/').map_or("", |(directory, _)| directory);
    let Some(path) = join(directory, specifier) else { return Vec::new() };
    if [".ts", ".mts", ".cts", ".tsx"].iter().any(|ending| path.ends_with(ending)) {
        return vec![path];
    }
    for (ending, replacements) in [(".js", &["ts", "tsx"][..]), (".mjs", &["mts"]), (".cjs", &["cts"])] {
        if let Some(stem) = path.strip_suffix(ending) {
            return replacements.iter().map(|ending| format!("{stem}.{ending}")).collect();
        }
    }
    let index = if path.is_empty() { "index".to_string() } else { format!("{path}/index") };
    let mut found = Vec::new();
    for stem in [path, index].iter().filter(|stem| !stem.is_empty()) {
        found.extend(["ts", "tsx", "mts", "cts"].map(|ending| format!("{stem}.{ending}")));
    }
    found
}

/// A relative path from a directory, both beneath the root; nothing if it leaves the root.
fn join(directory: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}
