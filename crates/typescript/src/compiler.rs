//! Owns the order of work on one file: room on the stack, parsing, the two passes, and the choice of module system.

use oxc_allocator::Allocator;
use oxc_ast_visit::Visit;
use oxc_parser::{ParseOptions, Parser};
use oxc_span::{GetSpan, SourceType};

use crate::error::line_and_column;
use crate::facts::Facts;
use crate::rewriter::Rewriter;
use crate::{JavaScript, MAXIMUM_SOURCE_BYTES, ModuleKind, TypeScriptError};

/// Parser and passes recurse into nested code, and a source of nothing but brackets or `!` nests once per byte. A stack
/// that is too small would end the whole process, so it is sized for that; untouched pages cost nothing. The numbers
/// were found by trial: 1024 per byte alone overflows on `(` and `[` in a release build. Bracket
/// depth is not counted but bounded by the number of opening brackets, which strings and comments cannot hide.
const STACK_BYTES_PER_SOURCE_BYTE: usize = 1024;
const STACK_BYTES_PER_OPENING_BRACKET: usize = 8192;
const SMALLEST_STACK_BYTES: usize = 16 << 20;

pub(crate) fn compile_with_room(source: &str, file_name: &str) -> Result<JavaScript, TypeScriptError> {
    let file = file_name.to_string();
    if source.len() > MAXIMUM_SOURCE_BYTES {
        return Err(TypeScriptError::TooLarge { file, bytes: source.len(), limit: MAXIMUM_SOURCE_BYTES });
    }
    let opening_brackets = source.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'<')).count();
    let stack_size = SMALLEST_STACK_BYTES
        + source.len() * STACK_BYTES_PER_SOURCE_BYTE
        + opening_brackets * STACK_BYTES_PER_OPENING_BRACKET;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("typescript".to_string()).stack_size(stack_size);
        match thread.spawn_scoped(scope, || compile(source, file_name)) {
            Ok(handle) => handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(TypeScriptError::NoThread { file, problem: error.to_string() }),
        }
    })
}

fn compile(source: &str, file_name: &str) -> Result<JavaScript, TypeScriptError> {
    let allocator = Allocator::default();
    let source_type = match file_name.rsplit('.').next() {
        Some("cts") => SourceType::ts().with_commonjs(true),
        Some("tsx") => SourceType::tsx().with_module(true),
        _ => SourceType::ts().with_module(true),
    };
    // CommonJS may return from the file itself.
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    let parsed = Parser::new(&allocator, source, source_type).with_options(options).parse();
    if let Some(error) = parsed.diagnostics.errors().next() {
        let offset = error.labels.first().map_or(0, |label| label.offset());
        let (line, column) = line_and_column(source, offset);
        let problem = error.message.lines().collect::<Vec<_>>().join(" ");
        return Err(TypeScriptError::Syntax { file: file_name.to_string(), line, column, problem });
    }

    let program = parsed.program;
    let mut rewriter = Rewriter::new(source, Facts::of(&program));
    rewriter.visit_program(&program);
    let module_kind = module_kind(&mut rewriter, file_name);
    if let Some((span, construct)) = rewriter.unsupported {
        let (line, column) = line_and_column(source, span.start);
        return Err(TypeScriptError::Unsupported { file: file_name.to_string(), line, column, construct });
    }
    if module_kind == ModuleKind::EsModule {
        let beginning = program.body.first().map_or(source.len() as u32, |statement| statement.span().start);
        provide_common_js_names(&mut rewriter, beginning);
    }
    Ok(JavaScript { code: rewriter.edits.apply(), module_kind, specifiers: rewriter.specifiers })
}

fn module_kind(rewriter: &mut Rewriter<'_>, file_name: &str) -> ModuleKind {
    let facts = &rewriter.facts;
    let uses_common_js = rewriter.export_assignment.is_some()
        || ["require", "module", "exports", "__dirname", "__filename"].iter().any(|name| facts.uses_global(name));
    let is_module = file_name.ends_with(".mts")
        || rewriter.module_syntax.is_some()
        || facts.needs_module
        || (facts.is_module && !uses_common_js);
    if file_name.ends_with(".cts") {
        if let Some(span) = rewriter.module_syntax {
            rewriter.refuse(span, "a .cts file is CommonJS: it needs `import x = require()` and `export =`");
        }
        return ModuleKind::CommonJs;
    }
    if !is_module {
        return ModuleKind::CommonJs;
    }
    if let Some(span) = rewriter.export_assignment {
        rewriter.refuse(span, "`export =` cannot stand in an ES module");
    }
    ModuleKind::EsModule
}

/// Much TypeScript is written with `import` and yet for CommonJS, where `require` and `__dirname` exist. They are
/// provided to an ES module that uses them, on the line of its first statement.
fn provide_common_js_names(rewriter: &mut Rewriter<'_>, position: u32) {
    let [require, directory, file] =
        ["require", "__dirname", "__filename"].map(|name| rewriter.facts.uses_global(name));
    if !(require || directory || file) {
        return;
    }
    let mut text = String::from(
        "import { createRequire as $cofferdamRequire } from \"node:module\";\
         const require = $cofferdamRequire(import.meta.url);",
    );
    if !require {
        text = text.replace("const require =", "const $cofferdamLocal =");
    }
    let local = if require { "require" } else { "$cofferdamLocal" };
    if directory || file {
        text += &format!("const __filename = {local}(\"node:url\").fileURLToPath(import.meta.url);");
    }
    if directory {
        text += &format!("const __dirname = {local}(\"node:path\").dirname(__filename);");
    }
    rewriter.edits.insert(position, text);
}
