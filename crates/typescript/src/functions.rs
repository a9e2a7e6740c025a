//! Owns the rewriting of arrow functions, classes and their members: modifiers, signatures without a body, and
//! parameter properties. The walk that leads here is the rewriter's.

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::GetSpan;

use crate::rewriter::Rewriter;

const BLANKED_MODIFIERS: [&str; 7] = ["public", "private", "protected", "readonly", "override", "abstract", "declare"];
const KEPT_MODIFIERS: [&str; 5] = ["static", "async", "get", "set", "accessor"];

impl Rewriter<'_> {
    /// JavaScript forbids a line break before `=>` and between `async` and its parameters; types may hold one. The
    /// parentheses then move to the other end of the type.
    pub(crate) fn arrow_function<'a>(&mut self, it: &ArrowFunctionExpression<'a>) {
        let parameters = it.params.span;
        if let Some(types) = &it.type_parameters {
            if self.edits.has_line_break(types.span.start, parameters.start) {
                self.edits.replace(types.span.start, types.span.end, "(");
                self.edits.blank(parameters.start, parameters.start + 1);
            } else {
                self.blank_span(types.span);
            }
        }
        self.visit_formal_parameters(&it.params);
        if let Some(result) = &it.return_type {
            if self.edits.has_line_break(parameters.end, result.span.end) {
                let last = self.edits.text(result.span.start, result.span.end).chars().next_back();
                let last_start = result.span.end - last.map_or(1, char::len_utf8) as u32;
                self.edits.blank(parameters.end - 1, parameters.end);
                self.edits.blank(parameters.end, last_start);
                self.edits.replace(last_start, result.span.end, ")");
            } else {
                self.blank_span(result.span);
            }
        }
        self.declared.push(Default::default());
        self.visit_arrow_function_body(&it.body);
        self.declared.pop();
    }

    pub(crate) fn class<'a>(&mut self, it: &Class<'a>) {
        if it.declare {
            return self.blank_statement(it.span);
        }
        if let Some(id) = it.id.as_ref().filter(|_| it.is_declaration()) {
            self.declare(&id.name);
        }
        if it.r#abstract {
            self.blank_modifiers(it.span.start, it.body.span.start, false);
        }
        if let (Some(first), Some(last)) = (it.implements.first(), it.implements.last()) {
            let mut keyword = it.span.start;
            if let Some(heritage) = &it.heritage {
                keyword = heritage.expression.span().end;
                keyword = heritage.type_arguments.as_ref().map_or(keyword, |arguments| arguments.span.end);
            } else if let Some(types) = &it.type_parameters {
                keyword = types.span.end;
            } else if let Some(id) = &it.id {
                keyword = id.span.end;
            }
            while self.edits.word_at(keyword) != "implements" && keyword < first.span.start {
                keyword = self.edits.token_from(keyword + self.edits.word_at(keyword).len() as u32);
            }
            self.edits.blank(keyword, last.span.end);
        }
        self.visit_decorators(&it.decorators);
        if let Some(types) = &it.type_parameters {
            self.blank_span(types.span);
        }
        if let Some(heritage) = &it.heritage {
            self.visit_class_heritage(heritage);
        }
        self.derived_classes.push(it.heritage.is_some());
        self.visit_class_body(&it.body);
        self.derived_classes.pop();
    }

    pub(crate) fn class_element<'a>(&mut self, it: &ClassElement<'a>) {
        match it {
            ClassElement::TSIndexSignature(signature) => self.blank_statement(signature.span),
            ClassElement::StaticBlock(block) => self.visit_static_block(block),
            ClassElement::AccessorProperty(accessor) if accessor.r#type.is_abstract() => {
                self.blank_statement(accessor.span);
            }
            ClassElement::AccessorProperty(accessor) => {
                self.refuse(accessor.span, "`accessor` is not supported, because node does not run it");
            }
            ClassElement::MethodDefinition(method) => self.method(method),
            ClassElement::PropertyDefinition(property) => self.property(property),
        }
    }

    fn method<'a>(&mut self, it: &MethodDefinition<'a>) {
        if it.value.body.is_none() {
            return self.blank_statement(it.span);
        }
        if it.decorators.is_empty() {
            self.blank_modifiers(it.span.start, it.key.span().start, true);
        }
        if it.optional {
            self.blank_mark(self.end_of_key(&it.key, it.computed), b'?');
        }
        if it.kind.is_constructor() {
            self.parameter_properties(&it.value);
        }
        walk::walk_method_definition(self, it);
    }

    fn property<'a>(&mut self, it: &PropertyDefinition<'a>) {
        if it.declare || it.r#type.is_abstract() {
            return self.blank_statement(it.span);
        }
        if it.decorators.is_empty() {
            self.blank_modifiers(it.span.start, it.key.span().start, true);
        }
        self.visit_decorators(&it.decorators);
        self.visit_property_key(&it.key);
        let key_end = self.end_of_key(&it.key, it.computed);
        let end = match &it.type_annotation {
            Some(annotation) => annotation.span.end,
            None if it.optional || it.definite => self.edits.token_from(key_end) + 1,
            None => key_end,
        };
        if end > key_end {
            // Alone on its line, a field named `get` or `static` would modify the member on the next line.
            self.edits.replace(key_end, end, if it.value.is_none() { ";" } else { "" });
        }
        if let Some(value) = &it.value {
            self.visit_expression(value);
        }
    }

    /// Assigns the constructor's parameters that have a modifier to the fields they declare, where TypeScript does:
    /// first in the body, or right after `super()`.
    fn parameter_properties<'a>(&mut self, constructor: &Function<'a>) {
        let Some(body) = &constructor.body else { return };
        let mut assignments = String::new();
        let mut first = None;
        for parameter in constructor.params.items.iter().filter(|parameter| parameter.has_modifier()) {
            let Some(name) = parameter.pattern.get_identifier_name() else {
                return self.refuse(parameter.span, "a parameter property must have a plain name");
            };
            first = first.or(Some(parameter.span));
            assignments.push_str(&format!("this.{name} = {name};"));
        }
        let Some(first) = first else { return };
        if self.derived_classes.last() == Some(&true) {
            match body.statements.iter().find(|statement| is_super_call(statement)) {
                Some(call) => self.edits.insert(call.span().end, format!(";{assignments}")),
                None => self.refuse(
                    first,
                    "parameter properties of a derived class need `super()` as a statement of the constructor itself",
                ),
            }
        } else if let Some(directive) = body.directives.last() {
            self.edits.insert(directive.span.end, format!(";{assignments}"));
        } else {
            self.edits.insert(body.span.start + 1, assignments);
        }
    }

    /// Blanks TypeScript's own modifiers before a key. Between members of a class, a semicolon takes the place of a
    /// first modifier: a member that begins with `[` or `*` would continue the field on the line before.
    pub(crate) fn blank_modifiers(&mut self, start: u32, end: u32, is_member: bool) {
        let mut position = self.edits.token_from(start);
        while position < end {
            let word = self.edits.word_at(position);
            let word_end = position + word.len() as u32;
            if BLANKED_MODIFIERS.contains(&word) {
                self.edits.replace(position, word_end, if is_member && position == start { ";" } else { "" });
            } else if !KEPT_MODIFIERS.contains(&word) {
                return;
            }
            position = self.edits.token_from(word_end);
        }
    }

    /// Blanks a `?` or `!` that is the next token.
    pub(crate) fn blank_mark(&mut self, position: u32, mark: u8) {
        if let Some(position) = self.edits.punctuation_from(position, mark) {
            self.edits.blank(position, position + 1);
        }
    }

    fn end_of_key(&self, key: &PropertyKey<'_>, computed: bool) -> u32 {
        let end = key.span().end;
        if computed { self.edits.punctuation_from(end, b']').map_or(end, |bracket| bracket + 1) } else { end }
    }
}

fn is_super_call(statement: &Statement<'_>) -> bool {
    let Statement::ExpressionStatement(statement) = statement else { return false };
    matches!(&statement.expression, Expression::CallExpression(call) if matches!(call.callee, Expression::Super(_)))
}
