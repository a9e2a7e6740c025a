//! Owns the running of compiled code on the real node, which these tests require.

// Each test file uses its own part of this one.
#![allow(dead_code)]

use std::process::{Command, Output};

use cofferdam_typescript::{ModuleKind, compile};

pub(crate) fn node_command() -> Command {
    Command::new(std::env::var_os("COFFERDAM_TEST_NODE").unwrap_or_else(|| "node".into()))
}

/// Compiles a source as `main.ts`, runs it in a directory of its own, and gives what node said.
pub(crate) fn run(source: &str) -> Output {
    let compiled = compile(source, "main.ts").unwrap_or_else(|error| panic!("{error}\n{source}"));
    assert_eq!(line_count(source), line_count(&compiled.code), "lines of\n{source}\nbecame\n{}", compiled.code);
    let directory = tempfile::tempdir().unwrap();
    let name = if compiled.module_kind == ModuleKind::EsModule { "main.mjs" } else { "main.cjs" };
    std::fs::write(directory.path().join(name), &compiled.code).unwrap();
    node_command().arg(name).current_dir(directory.path()).output().unwrap()
}

pub(crate) fn line_count(text: &str) -> usize {
    text.split('\n').count()
}

/// Runs a source that must succeed, and gives its output.
pub(crate) fn output_of(source: &str) -> String {
    let output = run(source);
    let problem = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = compile(source, "main.ts").unwrap().code;
    assert!(output.status.success(), "{problem}\nsource:\n{source}\ncompiled:\n{code}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_string()
}
