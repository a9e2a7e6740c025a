//! Checks errors, module kinds, and that any mixture of constructs keeps its line count and stays valid JavaScript.

mod support;

use cofferdam_typescript::{MAXIMUM_SOURCE_BYTES, ModuleKind, TypeScriptError, compile, module_kind, to_javascript};
use support::{line_count, node_command};

#[test]
fn errors_name_file_line_and_column() {
    for (source, file, expected) in [
        ("let a = 1\nlet = = 2", "a.ts", "a.ts:2:"),
        ("let ü = (;", "b.ts", "b.ts:1:10: "),
        ("\n @dec class A {}", "c.ts", "c.ts:2:2: decorators are not supported"),
        ("class A { accessor x = 1 }", "d.ts", "d.ts:1:11: `accessor` is not supported"),
        ("const x = <div/>", "e.tsx", "e.tsx:1:11: JSX is not supported"),
        ("import a from 'a'\nexport = a", "f.cts", "f.cts:1:1: a .cts file is CommonJS"),
        ("import a from 'a'\nexport = a", "g.ts", "g.ts:2:1: `export =` cannot stand in an ES module"),
        ("enum E { A = 'a', B }", "h.ts", "h.ts:1:19: an enum member after one with a string"),
        (
            "class A extends B { constructor(public x: 1) { if (x) super() } }",
            "i.ts",
            "i.ts:1:33: parameter properties",
        ),
    ] {
        let message = to_javascript(source, file).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn the_module_kind_follows_name_and_code() {
    for (source, file, expected) in [
        ("console.log(1)", "a.ts", ModuleKind::CommonJs),
        ("console.log(1)", "a.mts", ModuleKind::EsModule),
        ("await 1", "a.ts", ModuleKind::EsModule),
        ("async () => { await 1 }", "a.ts", ModuleKind::CommonJs),
        ("import.meta.url", "a.ts", ModuleKind::EsModule),
        ("export interface A {}", "a.ts", ModuleKind::EsModule),
        ("import type { A } from 'a'; require('b')", "a.ts", ModuleKind::CommonJs),
        ("import 'a'; require('b')", "a.ts", ModuleKind::EsModule),
        ("namespace N { export const a = 1 }", "a.ts", ModuleKind::CommonJs),
        ("import a = require('a'); a()", "a.ts", ModuleKind::CommonJs),
        ("import a = require('a'); export = a", "a.cts", ModuleKind::CommonJs),
        ("const f = <T,>(x: T) => x", "a.tsx", ModuleKind::CommonJs),
    ] {
        assert_eq!(module_kind(source, file).unwrap(), expected, "{source}");
    }
}

#[test]
fn deep_nesting_and_great_size_end_in_a_result() {
    for (opening, closing) in
        [("(", ")"), ("[", "]"), ("!", ""), ("a=>", ""), ("{", "}"), ("f(", ")"), ("<T>", ""), ("a+", "")]
    {
        let depth = 20_000;
        let source = format!("{}1{}", opening.repeat(depth), closing.repeat(depth));
        let _ = compile(&source, "deep.ts");
    }
    for unclosed in ["(", "[", "{", "`${", "x as {a:", "class A { x = ", "a?", "function f(a=", "type A = ["] {
        assert!(compile(&unclosed.repeat(20_000), "deep.ts").is_err());
    }
    let large = " ".repeat(MAXIMUM_SOURCE_BYTES + 1);
    assert!(matches!(compile(&large, "large.ts"), Err(TypeScriptError::TooLarge { .. })));
}

/// Pieces that may follow each other in any order; `#` becomes a number, so that names differ.
const PIECES: [&str; 24] = [
    "type A# = {\n  a: string // ;\n}\n",
    "interface B# {\n  (x: number): void\n}\n",
    "enum E# {\n  A, // a\n  B = 2,\n  /* c,\n */ C\n}\n",
    "namespace N# {\n  export const x = 1\n  export let y: number\n  export function f(): void {}\n}\n",
    "class C#<T> {\n  private x?: T\n  constructor(\n    readonly y: number,\n  ) {}\n  public *g() {}\n}\n",
    "const f# = (\n  x: number,\n): {\n  a: number\n} => ({ a: x })\n",
    "const g# = async <\n  T,\n>(x: T) => x\n",
    "let a# = 1 as\n  unknown\n",
    "[1, 2].map((x: number) => x)\n",
    "(0 as number) + 1\n",
    "`t${1 as number}`\n",
    "let s# = `\n ${'x' satisfies string}\n`\n",
    "declare function d#(\n  x: number\n): void\n",
    "function o#(x: string): void\nfunction o#(x: number): void\nfunction o#(x: any) {\n  return <\n    any\n  >x\n}\n",
    "import type {\n  T#\n} from 'x'\n",
    "import {\n  U#,\n  type V#,\n} from 'y'\n",
    "export type {\n  A\n} from 'z'\n",
    "let r# = /[/(]as/.test('' as string)\r\n",
    "abstract class D# {\n  abstract m(): void\n  declare z: number\n  get: any\n  w() {}\n}\n",
    "namespace P#.Q {\n  interface X {}\n  export enum E { A }\n}\n",
    "let n# = a#!\n  .b\nvar a#: any = {}\n",
    "export const x# = <const T,>(y: T): y is T => true\n",
    "if (1 as any) {\n  type L = 1\n}\n",
    "let t#: [\n  number\n]\n",
];

#[test]
fn any_mixture_keeps_its_lines_and_parses() {
    let directory = tempfile::tempdir().unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut names = Vec::new();
    for round in 0..300 {
        let mut source = String::new();
        for index in 0..12 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            source += &PIECES[(state % PIECES.len() as u64) as usize].replace('#', &format!("{round}_{index}"));
        }
        let compiled = compile(&source, "mixture.ts").unwrap_or_else(|error| panic!("{error}\n{source}"));
        assert_eq!(line_count(&source), line_count(&compiled.code), "{source}");
        let again = compile(&compiled.code, "again.ts").unwrap_or_else(|error| panic!("{error}\n{}", compiled.code));
        assert_eq!(again.code, compiled.code, "plain JavaScript must stay as it is");
        let name = directory.path().join(format!("{round}.mjs"));
        std::fs::write(&name, &compiled.code).unwrap();
        names.push(name.display().to_string());
    }
    // One node for all: V8 parses each file as a module.
    let script = "const vm = require('vm'), fs = require('fs'); for (const name of process.argv.slice(1)) \
                  new vm.SourceTextModule(fs.readFileSync(name, 'utf8'), { identifier: name });";
    let output = node_command().args(["--experimental-vm-modules", "-e", script]).args(&names).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
