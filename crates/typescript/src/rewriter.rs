//! Owns the second pass over a file: the walk that blanks types and hands each construct with a run-time meaning of
//! its own (classes, enums, namespaces, imports and exports) to the module that rewrites it in place.

use std::cell::Cell;
use std::collections::HashSet;

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::{ScopeFlags, ScopeId};

use crate::edits::Edits;
use crate::facts::Facts;

pub(crate) struct Rewriter<'source> {
    pub(crate) edits: Edits<'source>,
    pub(crate) facts: Facts,
    /// The first construct that cannot be rewritten.
    pub(crate) unsupported: Option<(Span, String)>,
    /// What the result imports, in order of appearance.
    pub(crate) specifiers: Vec<String>,
    /// The first import or export statement that is left in the result.
    pub(crate) module_syntax: Option<Span>,
    /// The first `export =`.
    pub(crate) export_assignment: Option<Span>,
    /// Names that classes, functions, enums and namespaces of the scopes around have declared so far; a later enum
    /// or namespace of that name adds to it and declares nothing.
    pub(crate) declared: Vec<HashSet<String>>,
    /// Whether each class around has a base class.
    pub(crate) derived_classes: Vec<bool>,
    /// The enums around whose initializers are being walked: the name, and the members so far.
    pub(crate) enums: Vec<(String, HashSet<String>)>,
}

impl<'source> Rewriter<'source> {
    pub(crate) fn new(source: &'source str, facts: Facts) -> Self {
        Self {
            edits: Edits::new(source),
            facts,
            unsupported: None,
            specifiers: Vec::new(),
            module_syntax: None,
            export_assignment: None,
            declared: vec![HashSet::new()],
            derived_classes: Vec::new(),
            enums: Vec::new(),
        }
    }

    pub(crate) fn refuse(&mut self, span: Span, construct: impl Into<String>) {
        if self.unsupported.is_none() {
            self.unsupported = Some((span, construct.into()));
        }
    }

    /// Notes a declaration; tells whether the scope had that name already.
    pub(crate) fn declare(&mut self, name: &str) -> bool {
        self.declared.last_mut().is_some_and(|names| !names.insert(name.to_string()))
    }

    pub(crate) fn blank_span(&mut self, span: Span) {
        self.edits.blank(span.start, span.end);
    }

    pub(crate) fn blank_statement(&mut self, span: Span) {
        self.edits.blank_statement(span.start, span.end);
    }

    /// Blanks the `as T` after an expression. A type cannot be called or indexed across a line break, but the
    /// expression alone can, so the statement is ended if the next line would be taken for its continuation.
    fn blank_type_after(&mut self, expression_end: u32, end: u32) {
        let next = self.edits.token_from(end);
        let continues = matches!(self.edits.source.as_bytes().get(next as usize), Some(b'(' | b'[' | b'`'));
        self.edits.replace(expression_end, end, if continues { ";" } else { "" });
    }
}

impl<'a> Visit<'a> for Rewriter<'_> {
    fn enter_scope(&mut self, _: ScopeFlags, _: &Cell<Option<ScopeId>>) {
        self.declared.push(HashSet::new());
    }

    fn leave_scope(&mut self) {
        self.declared.pop();
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        if it.declare || it.body.is_none() {
            return self.blank_statement(it.span);
        }
        if let Some(id) = it.id.as_ref().filter(|_| it.is_declaration()) {
            self.declare(&id.name);
        }
        if let Some(this) = &it.this_param {
            let following = it.params.items.first().map(|item| item.span.start);
            let following = following.or(it.params.rest.as_ref().map(|rest| rest.span.start));
            self.edits.blank(this.span.start, following.unwrap_or(it.params.span.end - 1));
        }
        walk::walk_function(self, it, flags);
    }

    // Blanked together with its comma in `visit_function`.
    fn visit_ts_this_parameter(&mut self, _: &TSThisParameter<'a>) {}

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        self.arrow_function(it);
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        if it.has_modifier() {
            self.blank_modifiers(it.span.start, it.pattern.span().start, false);
        }
        if it.optional {
            self.blank_mark(it.pattern.span().end, b'?');
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_variable_declaration(&mut self, it: &VariableDeclaration<'a>) {
        if it.declare {
            return self.blank_statement(it.span);
        }
        walk::walk_variable_declaration(self, it);
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite {
            self.blank_mark(it.id.span().end, b'!');
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        self.class(it);
    }

    fn visit_class_element(&mut self, it: &ClassElement<'a>) {
        self.class_element(it);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_type_after(it.expression.span().end, it.span.end);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_type_after(it.expression.span().end, it.span.end);
    }

    fn visit_ts_instantiation_expression(&mut self, it: &TSInstantiationExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_type_after(it.expression.span().end, it.span.end);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.visit_expression(&it.expression);
        self.edits.blank(it.expression.span().end, it.span.end);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        let (start, operand) = (it.span.start, it.expression.span());
        let text = self.edits.text(operand.start, operand.end);
        // `() => <T>{}` must not become a function body, `<T>function () {}` no declaration, and after `return` no
        // line may break.
        let reads_as_statement =
            text.starts_with('{') || ["function", "class", "async", "let"].iter().any(|word| text.starts_with(word));
        let parenthesised = reads_as_statement || self.edits.has_line_break(start, operand.start);
        self.edits.replace(start, operand.start, if parenthesised { "(" } else { "" });
        self.visit_expression(&it.expression);
        if parenthesised {
            self.edits.insert(operand.end, ")");
        }
    }

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.blank_span(it.span);
    }

    fn visit_ts_interface_declaration(&mut self, it: &TSInterfaceDeclaration<'a>) {
        self.blank_statement(it.span);
    }

    fn visit_ts_type_alias_declaration(&mut self, it: &TSTypeAliasDeclaration<'a>) {
        self.blank_statement(it.span);
    }

    fn visit_ts_external_module_declaration(&mut self, it: &TSExternalModuleDeclaration<'a>) {
        self.blank_statement(it.span);
    }

    fn visit_ts_global_declaration(&mut self, it: &TSGlobalDeclaration<'a>) {
        self.blank_statement(it.span);
    }

    fn visit_ts_namespace_export_declaration(&mut self, it: &TSNamespaceExportDeclaration<'a>) {
        self.blank_statement(it.span);
    }

    fn visit_ts_enum_declaration(&mut self, it: &TSEnumDeclaration<'a>) {
        self.enumeration(it, None, None);
    }

    fn visit_ts_namespace_declaration(&mut self, it: &TSNamespaceDeclaration<'a>) {
        self.namespace(it, None, None);
    }

    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        self.enum_member_reference(it);
    }

    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        self.import(it);
    }

    fn visit_module_declaration(&mut self, it: &ModuleDeclaration<'a>) {
        self.module_declaration(it);
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        self.import_equals(it, it.span, false);
    }

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        if let Expression::StringLiteral(source) = &it.source {
            self.specifiers.push(source.value.to_string());
        }
        walk::walk_import_expression(self, it);
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        if let Expression::Identifier(callee) = &it.callee
            && callee.name == "require"
            && let [Argument::StringLiteral(source)] = it.arguments.as_slice()
        {
            self.specifiers.push(source.value.to_string());
        }
        walk::walk_call_expression(self, it);
    }

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.refuse(it.span, "decorators are not supported, because node does not run them");
    }

    fn visit_jsx_element(&mut self, it: &JSXElement<'a>) {
        self.refuse(it.span, "JSX is not supported");
    }

    fn visit_jsx_fragment(&mut self, it: &JSXFragment<'a>) {
        self.refuse(it.span, "JSX is not supported");
    }
}
