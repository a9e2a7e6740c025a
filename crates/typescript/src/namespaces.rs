//! Owns the rewriting of namespaces into functions that fill an object, and which namespaces hold values at all.

use oxc_ast::ast::*;
use oxc_ast_visit::Visit;
use oxc_span::{GetSpan, Span};

use crate::enums::closing_of_object;
use crate::rewriter::Rewriter;

/// Whether anything of a namespace is left at run time.
pub(crate) fn has_values(namespace: &TSNamespaceDeclaration<'_>) -> bool {
    if namespace.declare {
        return false;
    }
    match &namespace.body {
        TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => has_values(inner),
        TSNamespaceDeclarationBody::TSModuleBlock(block) => block.body.iter().any(|statement| match statement {
            Statement::ExportDeclaration(export) => is_value(&export.declaration),
            other => other.as_declaration().is_none_or(is_value),
        }),
    }
}

fn is_value(declaration: &Declaration<'_>) -> bool {
    match declaration {
        Declaration::VariableDeclaration(it) => !it.declare,
        Declaration::FunctionDeclaration(it) => !it.declare && it.body.is_some(),
        Declaration::ClassDeclaration(it) => !it.declare,
        Declaration::TSEnumDeclaration(it) => !it.declare,
        Declaration::TSNamespaceDeclaration(it) => has_values(it),
        Declaration::TSImportEqualsDeclaration(it) => it.import_kind.is_value(),
        _ => false,
    }
}

impl Rewriter<'_> {
    /// `exported` is the span of the export statement around; `owner` the namespace whose property this one becomes.
    pub(crate) fn namespace<'a>(
        &mut self,
        it: &TSNamespaceDeclaration<'a>,
        exported: Option<Span>,
        owner: Option<&str>,
    ) {
        if !has_values(it) {
            return self.blank_statement(exported.unwrap_or(it.span));
        }
        let mut opening = String::new();
        let mut closing = String::new();
        let mut owner = owner.map(str::to_string);
        let mut current = it;
        let depth = self.declared.len();
        // `namespace A.B {` is one namespace in another.
        let block = loop {
            let name = current.id.name.as_str();
            let block = match &current.body {
                TSNamespaceDeclarationBody::TSNamespaceDeclaration(_) => None,
                TSNamespaceDeclarationBody::TSModuleBlock(block) => Some(block),
            };
            // Inside, a declaration of the namespace's own name hides the namespace.
            let is_hidden = block.is_some_and(|block| declared_names(block).iter().any(|declared| declared == name));
            let parameter = if is_hidden { format!("{name}_1") } else { name.to_string() };
            let outer_export = if self.declared.len() == depth { exported } else { None };
            opening += &self.declaration_of_object(name, &parameter, it.span, outer_export, owner.as_deref());
            closing.insert_str(0, &closing_of_object(name, owner.as_deref()));
            self.declared.push(Default::default());
            owner = Some(parameter);
            match &current.body {
                TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => current = inner,
                TSNamespaceDeclarationBody::TSModuleBlock(block) => break block,
            }
        };
        self.edits.replace(it.span.start, block.span.start + 1, opening);
        let owner = owner.unwrap_or_default();
        for statement in &block.body {
            match statement {
                Statement::ExportDeclaration(export) => self.namespace_export(export, &owner),
                Statement::ImportDeclaration(import) => {
                    self.refuse(import.span, "a namespace cannot hold an import statement");
                }
                other => self.visit_statement(other),
            }
        }
        self.declared.truncate(depth);
        self.edits.replace(block.span.end - 1, block.span.end, closing);
    }

    fn namespace_export<'a>(&mut self, export: &ExportDeclaration<'a>, owner: &str) {
        if !is_value(&export.declaration) {
            return self.blank_statement(export.span);
        }
        let inner = export.declaration.span();
        match &export.declaration {
            Declaration::TSEnumDeclaration(it) => return self.enumeration(it, Some(export.span), Some(owner)),
            Declaration::TSNamespaceDeclaration(it) => return self.namespace(it, Some(export.span), Some(owner)),
            Declaration::TSImportEqualsDeclaration(it) => {
                self.import_equals(it, export.span, true);
                let text = format!(";{owner}.{0} = {0};", it.id.name);
                return self.edits.insert(export.span.end, text);
            }
            _ => self.edits.blank_statement(export.span.start, inner.start),
        }
        self.visit_declaration(&export.declaration);
        let mut text = String::from(";");
        let mut names = Vec::new();
        let mut can_change = false;
        match &export.declaration {
            Declaration::VariableDeclaration(it) => {
                can_change = !it.kind.is_const();
                it.declarations.iter().for_each(|declarator| names.extend(names_of(&declarator.id)));
            }
            Declaration::FunctionDeclaration(it) => names.extend(it.id.iter().map(|id| id.name.to_string())),
            Declaration::ClassDeclaration(it) => names.extend(it.id.iter().map(|id| id.name.to_string())),
            _ => {}
        }
        for name in names {
            // A variable that changes later must change for both: the code inside reads the variable, the code
            // outside the property.
            text += &match can_change {
                false => format!("{owner}.{name} = {name};"),
                true => format!(
                    "Object.defineProperty({owner}, \"{name}\", {{ enumerable: true, configurable: true, \
                     get: () => {name}, set: ($) => {{ {name} = $; }} }});"
                ),
            };
        }
        self.edits.insert(export.span.end, text);
    }
}

fn names_of(pattern: &BindingPattern<'_>) -> Vec<String> {
    pattern.get_binding_identifiers().iter().map(|identifier| identifier.name.to_string()).collect()
}

fn declared_names(block: &TSModuleBlock<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for statement in &block.body {
        let declaration = match statement {
            Statement::ExportDeclaration(export) => Some(&export.declaration),
            other => other.as_declaration(),
        };
        match declaration.filter(|declaration| is_value(declaration)) {
            Some(Declaration::VariableDeclaration(it)) => {
                it.declarations.iter().for_each(|declarator| names.extend(names_of(&declarator.id)));
            }
            Some(other) => names.extend(other.id().map(|id| id.name.to_string())),
            None => {}
        }
    }
    names
}
