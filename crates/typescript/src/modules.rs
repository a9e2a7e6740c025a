//! Owns the rewriting of import and export statements: types are left out, and TypeScript's own forms become
//! JavaScript. An import whose name no value uses is left out too, as `tsc` does by default, because most code
//! imports types without saying so and node would not find them.

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};

use crate::rewriter::Rewriter;

impl Rewriter<'_> {
    pub(crate) fn import(&mut self, it: &ImportDeclaration<'_>) {
        if it.import_kind.is_type() {
            return self.blank_statement(it.span);
        }
        let specifiers = it.specifiers.as_ref().map_or(&[][..], |list| list.as_slice());
        let dropped: Vec<bool> = specifiers.iter().map(|specifier| self.is_import_dropped(specifier)).collect();
        if !specifiers.is_empty() && dropped.iter().all(|dropped| *dropped) {
            return self.blank_statement(it.span);
        }
        self.keeps_module_syntax(it.span);
        self.specifiers.push(it.source.value.to_string());
        for (index, specifier) in specifiers.iter().enumerate().filter(|(index, _)| dropped[*index]) {
            match specifier {
                // Nothing but the default import can stand before `* as`.
                ImportDeclarationSpecifier::ImportNamespaceSpecifier(all) if index == 1 => {
                    self.edits.blank(specifiers[0].span().end, all.span.end);
                }
                other => self.blank_list_item(other.span()),
            }
        }
    }

    fn is_import_dropped(&self, specifier: &ImportDeclarationSpecifier<'_>) -> bool {
        let is_type =
            matches!(specifier, ImportDeclarationSpecifier::ImportSpecifier(named) if named.import_kind.is_type());
        is_type || !self.facts.used_as_value.contains(specifier.local().name.as_str())
    }

    fn blank_list_item(&mut self, item: Span) {
        self.blank_span(item);
        if let Some(comma) = self.edits.punctuation_from(item.end, b',') {
            self.edits.blank(comma, comma + 1);
        }
    }

    fn keeps_module_syntax(&mut self, span: Span) {
        self.module_syntax.get_or_insert(span);
    }

    pub(crate) fn module_declaration<'a>(&mut self, it: &ModuleDeclaration<'a>) {
        match it {
            ModuleDeclaration::ExportDeclaration(export) => self.export_declaration(export),
            ModuleDeclaration::ExportDefaultDeclaration(export) => self.export_default(export),
            ModuleDeclaration::ExportNamedDeclaration(export) => {
                let local = |specifier: &ExportSpecifier<'_>| specifier.local.name().to_string();
                self.export_list(export.span, &export.specifiers, export.export_kind, Some(&local));
            }
            ModuleDeclaration::ExportFromDeclaration(export) => {
                if self.export_list(export.span, &export.specifiers, export.export_kind, None) {
                    self.specifiers.push(export.source.value.to_string());
                }
            }
            ModuleDeclaration::ExportAllDeclaration(export) if export.export_kind.is_type() => {
                self.blank_statement(export.span);
            }
            ModuleDeclaration::ExportAllDeclaration(export) => {
                self.keeps_module_syntax(export.span);
                self.specifiers.push(export.source.value.to_string());
            }
            ModuleDeclaration::TSExportAssignment(export) => {
                self.edits.replace(export.span.start, export.expression.span().start, "module.exports = ");
                self.export_assignment.get_or_insert(export.span);
                self.visit_expression(&export.expression);
            }
            other => walk::walk_module_declaration(self, other),
        }
    }

    /// Tells whether the statement is kept. Without `from`, names that only are types here are left out.
    fn export_list(
        &mut self,
        span: Span,
        specifiers: &[ExportSpecifier<'_>],
        kind: ImportOrExportKind,
        local_name: Option<&dyn Fn(&ExportSpecifier<'_>) -> String>,
    ) -> bool {
        let is_dropped = |rewriter: &Self, specifier: &ExportSpecifier<'_>| {
            specifier.export_kind.is_type()
                || local_name.is_some_and(|name| rewriter.facts.is_only_a_type(&name(specifier)))
        };
        let dropped: Vec<bool> = specifiers.iter().map(|specifier| is_dropped(self, specifier)).collect();
        if kind.is_type() || (!dropped.is_empty() && dropped.iter().all(|dropped| *dropped)) {
            self.blank_statement(span);
            return false;
        }
        self.keeps_module_syntax(span);
        for (specifier, _) in specifiers.iter().zip(&dropped).filter(|(_, dropped)| **dropped) {
            self.blank_list_item(specifier.span);
        }
        true
    }

    fn export_declaration<'a>(&mut self, it: &ExportDeclaration<'a>) {
        let is_blanked = match &it.declaration {
            Declaration::VariableDeclaration(inner) => inner.declare,
            Declaration::FunctionDeclaration(inner) => inner.declare || inner.body.is_none(),
            Declaration::ClassDeclaration(inner) => inner.declare,
            Declaration::TSEnumDeclaration(inner) => inner.declare,
            Declaration::TSNamespaceDeclaration(inner) => !crate::namespaces::has_values(inner),
            Declaration::TSImportEqualsDeclaration(inner) => inner.import_kind.is_type(),
            _ => true,
        };
        if is_blanked {
            return self.blank_statement(it.span);
        }
        self.keeps_module_syntax(it.span);
        match &it.declaration {
            Declaration::TSEnumDeclaration(inner) => self.enumeration(inner, Some(it.span), None),
            Declaration::TSNamespaceDeclaration(inner) => self.namespace(inner, Some(it.span), None),
            Declaration::TSImportEqualsDeclaration(inner) => self.import_equals(inner, inner.span, true),
            other => self.visit_declaration(other),
        }
    }

    fn export_default<'a>(&mut self, it: &ExportDefaultDeclaration<'a>) {
        let is_blanked = match &it.declaration {
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => true,
            ExportDefaultDeclarationKind::FunctionDeclaration(function) => function.body.is_none(),
            ExportDefaultDeclarationKind::Identifier(name) => self.facts.is_only_a_type(&name.name),
            _ => false,
        };
        if is_blanked {
            return self.blank_statement(it.span);
        }
        self.keeps_module_syntax(it.span);
        walk::walk_export_default_declaration(self, it);
    }

    /// `import a = b.c` and `import a = require("c")`. `span` is what is replaced, up to the statement's end.
    pub(crate) fn import_equals(&mut self, it: &TSImportEqualsDeclaration<'_>, span: Span, is_exported: bool) {
        let name = it.id.name.as_str();
        if it.import_kind.is_type() || (!is_exported && !self.facts.used_as_value.contains(name)) {
            return self.blank_statement(span);
        }
        if let TSModuleReference::ExternalModuleReference(reference) = &it.module_reference {
            self.specifiers.push(reference.expression.value.to_string());
            self.facts.used_as_value.insert("require".to_string());
        }
        self.edits.replace(span.start, it.module_reference.span().start, format!("const {name} = "));
    }
}
