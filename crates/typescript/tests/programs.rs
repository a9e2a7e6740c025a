//! Runs programs of several files on the real node, through the preload script, in a workspace that stays as it was.

mod support;

use std::path::Path;
use std::process::Output;

use cofferdam_typescript::TypeScriptError;
use cofferdam_typescript::preload::{preload_option, preload_script};
use cofferdam_typescript::tree::{CompiledTree, compile_tree};
use support::node_command;

fn tree_of(root: &Path, entry: &str) -> Result<CompiledTree, TypeScriptError> {
    compile_tree(entry, &mut |path| match std::fs::read_to_string(root.join(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    })
}

/// Writes the files, compiles from `src/main.ts`, and runs that with two arguments.
fn run(files: &[(&str, &str)]) -> (Output, String) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap().join("work space");
    for (path, text) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let tree = tree_of(&root, "src/main.ts").unwrap();
    let script = directory.path().join("preload.cjs");
    std::fs::write(&script, preload_script(&tree, root.to_str().unwrap())).unwrap();
    let output = node_command()
        .arg(preload_option(&tree))
        .arg(&script)
        .args(["src/main.ts", "one", "two"])
        .current_dir(&root)
        .output()
        .unwrap();
    (output, root.to_str().unwrap().to_string())
}

fn output_of(files: &[(&str, &str)]) -> String {
    let (output, root) = run(files);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().replace("%20", " ").replace(&root, "ROOT")
}

const PACKAGE: (&str, &str) = ("node_modules/pkg/index.js", "module.exports = { name: 'pkg' }");

#[test]
fn es_modules_import_each_other_in_every_way() {
    let main = "import { a, type T } from './a'\nimport { b } from './b.js'\nimport { c } from '../lib/c.ts'\n\
                import { d } from './d'\nimport pkg from 'pkg'\nimport { join } from 'node:path'\n\
                import { plain } from './plain.js'\nimport old from './old.cjs'\nimport * as again from './main'\n\
                export const me: T = 'me'\nconst { e } = await import('./e.mjs')\n\
                console.log(a, b, c, d, e, pkg.name, plain, old.old, again.me, typeof join, \
                process.argv.slice(2).join())\n\
                console.log(import.meta.url, __dirname, process.argv[1])";
    let files = [
        ("src/main.ts", main),
        ("src/a.ts", "import { I } from './types'\nexport type T = string\nexport const a: I = 1 as any"),
        ("src/types.ts", "export interface I {}"),
        ("src/b.ts", "export enum b { X = 2 }"),
        ("lib/c.ts", "import { me } from '../src/main'\nexport const c: string = typeof (() => me)"),
        ("src/d/index.ts", "export * from '../types'\nexport const d: number = 4"),
        ("src/e.mts", "export const e = 5 as number"),
        ("src/plain.js", "exports.plain = 'plain'"),
        ("src/old.cts", "import os = require('node:os')\nexport = { old: typeof os.cpus }"),
        PACKAGE,
    ];
    assert_eq!(
        output_of(&files),
        "1 { '2': 'X', X: 2 } function 4 5 pkg plain function me function one,two\n\
         file://ROOT/src/main.ts ROOT/src ROOT/src/main.ts"
    );
}

#[test]
fn common_js_files_require_each_other_in_every_way() {
    let main = "import a = require('./a')\nconst b: { b: number } = require('./b.js'), pkg = require('pkg')\n\
                const { d } = require('./d') as { d: number }\n\
                console.log(a.a, b.b, d, pkg.name, __filename, require.main === module, process.argv.length)\n\
                import('./e').then((e: any) => console.log(e.e))";
    let files = [
        ("src/main.ts", main),
        ("src/a.ts", "const a: number = 1\nexport = { a }"),
        ("src/b.ts", "exports.b = 2 as number"),
        ("src/d/index.cts", "exports.d = 4 satisfies number"),
        ("src/e.ts", "export const e: number = 5"),
        PACKAGE,
    ];
    let expected = "1 2 4 pkg ROOT/src/main.ts true 4\n5";
    assert_eq!(output_of(&files), expected);
}

#[test]
fn a_package_type_does_not_matter_and_nothing_is_left_behind() {
    for package in [r#"{ "type": "module" }"#, r#"{ "type": "commonjs" }"#] {
        for main in ["import fs from 'fs'\nlet x: 1\n", "const fs = require('fs')\nlet x: 1\n"] {
            let main = format!("{main}console.log(fs.readdirSync('.').join(), fs.readdirSync('src').join())");
            let files = [("package.json", package), ("src/main.ts", main.as_str())];
            assert_eq!(output_of(&files), "package.json,src main.ts");
        }
    }
}

#[test]
fn stack_traces_name_the_sources() {
    for (import, export) in
        [("import { f } from './f'", "export"), ("import { f } from './f.js'", "type X = 1; export")]
    {
        let main = format!("interface I {{\n  a: 1\n}}\n{import}\nf<I>()");
        let other = format!("type T =\n  | 1\n\n{export} function f<T>(): void {{\n  throw new Error('here')\n}}");
        let (output, root) = run(&[("src/main.ts", &main), ("src/f.ts", &other)]);
        let problem = String::from_utf8(output.stderr).unwrap().replace("%20", " ");
        assert_eq!(output.status.code(), Some(1));
        assert!(problem.contains(&format!("{root}/src/f.ts:5:9")), "{problem}");
        assert!(problem.contains(&format!("{root}/src/main.ts:5:1")), "{problem}");
    }
    let (output, root) = run(&[
        ("src/main.ts", "const x: number = 1\nenum E {\n A }\nrequire('./f')"),
        ("src/f.ts", "\n\nthrow new Error('x' as string)"),
    ]);
    let problem = String::from_utf8(output.stderr).unwrap();
    assert!(problem.contains(&format!("{root}/src/f.ts:3:7")), "{problem}");
    assert!(problem.contains(&format!("{root}/src/main.ts:4:1")), "{problem}");
}

#[test]
fn a_snippet_without_a_file_runs_at_a_path_of_the_workspace() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap().join("root");
    std::fs::create_dir_all(root.join("node_modules/pkg")).unwrap();
    std::fs::write(root.join(PACKAGE.0), PACKAGE.1).unwrap();
    for (source, expected) in [
        (
            "import pkg from 'pkg'; const x: string = pkg.name; console.log(x, \
            import.meta.url.endsWith('/root/snippet.ts'))",
            "pkg true\n",
        ),
        (
            "const x: string = require('pkg').name; console.log(x, __filename.endsWith('/root/snippet.ts'))",
            "pkg true\n",
        ),
    ] {
        let mut read = |path: &str| Ok((path == "snippet.ts").then(|| source.to_string()));
        let tree = compile_tree("snippet.ts", &mut read).unwrap();
        let script = directory.path().join("preload.cjs");
        std::fs::write(&script, preload_script(&tree, root.to_str().unwrap())).unwrap();
        let output = node_command()
            .arg(preload_option(&tree))
            .arg(&script)
            .arg("snippet.ts")
            .current_dir(&root)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn imports_do_not_leave_the_root_and_errors_name_their_file() {
    let mut asked = Vec::new();
    let tree = compile_tree("main.ts", &mut |path| {
        asked.push(path.to_string());
        Ok((path == "main.ts").then(|| "import '../secret'; import './missing'; import './x.json'".to_string()))
    });
    assert!(tree.unwrap().files["main.ts"].resolutions.is_empty());
    assert!(asked.iter().all(|path| !path.contains("secret")), "{asked:?}");

    let mut read = |path: &str| {
        Ok(match path {
            "src/main.ts" => Some("import './bad'".to_string()),
            "src/bad.ts" => Some("let x =\n  ;".to_string()),
            _ => None,
        })
    };
    let message = compile_tree("src/main.ts", &mut read).unwrap_err().to_string();
    assert!(message.starts_with("src/bad.ts:2:3: "), "{message}");
    assert!(matches!(compile_tree("gone.ts", &mut |_| Ok(None)), Err(TypeScriptError::Unreadable { .. })));
    assert!(matches!(compile_tree("../x.ts", &mut |_| Ok(None)), Err(TypeScriptError::Unreadable { .. })));
}
