//! Owns the first pass over a file: which names are used and bound as values, which only name types, and which
//! module system the code is written for. Changes nothing.

use std::cell::Cell;
use std::collections::HashSet;

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_syntax::scope::{ScopeFlags, ScopeId};

/// Names are collected over all scopes at once. A name that is a type in one scope and a value in another counts as
/// a value, so that the worst outcome is an import that is kept needlessly.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) used_as_value: HashSet<String>,
    pub(crate) bound_as_value: HashSet<String>,
    pub(crate) type_names: HashSet<String>,
    /// The file has import or export statements, if only of types.
    pub(crate) is_module: bool,
    /// `await` outside of all functions, or `import.meta`.
    pub(crate) needs_module: bool,
    function_depth: u32,
}

impl Facts {
    pub(crate) fn of(program: &Program<'_>) -> Self {
        let mut facts = Self::default();
        facts.visit_program(program);
        facts
    }

    /// Whether a name of CommonJS is used and not the file's own.
    pub(crate) fn uses_global(&self, name: &str) -> bool {
        self.used_as_value.contains(name) && !self.bound_as_value.contains(name)
    }

    pub(crate) fn is_only_a_type(&self, name: &str) -> bool {
        self.type_names.contains(name) && !self.bound_as_value.contains(name)
    }
}

impl<'a> Visit<'a> for Facts {
    fn enter_scope(&mut self, flags: ScopeFlags, _: &Cell<Option<ScopeId>>) {
        if flags.contains(ScopeFlags::Function) {
            self.function_depth += 1;
        }
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        if it.declare || it.body.is_none() {
            return;
        }
        if it.is_declaration()
            && let Some(id) = &it.id
        {
            self.bound_as_value.insert(id.name.to_string());
        }
        let depth = self.function_depth;
        walk::walk_function(self, it, flags | ScopeFlags::Function);
        self.function_depth = depth;
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        let depth = self.function_depth;
        walk::walk_arrow_function_expression(self, it);
        self.function_depth = depth;
    }

    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        if !self.used_as_value.contains(it.name.as_str()) {
            self.used_as_value.insert(it.name.to_string());
        }
    }

    fn visit_binding_identifier(&mut self, it: &BindingIdentifier<'a>) {
        if !self.bound_as_value.contains(it.name.as_str()) {
            self.bound_as_value.insert(it.name.to_string());
        }
    }

    fn visit_await_expression(&mut self, it: &AwaitExpression<'a>) {
        self.needs_module |= self.function_depth == 0;
        walk::walk_await_expression(self, it);
    }

    fn visit_for_of_statement(&mut self, it: &ForOfStatement<'a>) {
        self.needs_module |= it.r#await && self.function_depth == 0;
        walk::walk_for_of_statement(self, it);
    }

    fn visit_import_meta(&mut self, _: &ImportMeta) {
        self.needs_module = true;
    }

    fn visit_module_declaration(&mut self, it: &ModuleDeclaration<'a>) {
        self.is_module |= !matches!(
            it,
            ModuleDeclaration::TSExportAssignment(_) | ModuleDeclaration::TSNamespaceExportDeclaration(_)
        );
        walk::walk_module_declaration(self, it);
    }

    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        for specifier in it.specifiers.iter().flatten() {
            let only_type = match specifier {
                ImportDeclarationSpecifier::ImportSpecifier(named) if named.import_kind.is_type() => true,
                _ => it.import_kind.is_type(),
            };
            let names = if only_type { &mut self.type_names } else { &mut self.bound_as_value };
            names.insert(specifier.local().name.to_string());
        }
    }

    fn visit_export_named_declaration(&mut self, it: &ExportNamedDeclaration<'a>) {
        if it.export_kind.is_value() {
            walk::walk_export_named_declaration(self, it);
        }
    }

    // Names that are taken from another module are none of this file's.
    fn visit_export_from_declaration(&mut self, _: &ExportFromDeclaration<'a>) {}

    fn visit_export_specifier(&mut self, it: &ExportSpecifier<'a>) {
        if it.export_kind.is_value() {
            self.visit_module_export_name(&it.local);
        }
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        if it.import_kind.is_type() {
            self.type_names.insert(it.id.name.to_string());
        } else {
            walk::walk_ts_import_equals_declaration(self, it);
        }
    }

    fn visit_variable_declaration(&mut self, it: &VariableDeclaration<'a>) {
        if !it.declare {
            walk::walk_variable_declaration(self, it);
        }
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        if !it.declare {
            walk::walk_class(self, it);
        }
    }

    fn visit_ts_enum_declaration(&mut self, it: &TSEnumDeclaration<'a>) {
        if !it.declare {
            walk::walk_ts_enum_declaration(self, it);
        }
    }

    fn visit_ts_namespace_declaration(&mut self, it: &TSNamespaceDeclaration<'a>) {
        if crate::namespaces::has_values(it) {
            // Its exports are properties, not exports of the file.
            let is_module = self.is_module;
            walk::walk_ts_namespace_declaration(self, it);
            self.is_module = is_module;
        } else {
            self.type_names.insert(it.id.name.to_string());
        }
    }

    fn visit_ts_interface_declaration(&mut self, it: &TSInterfaceDeclaration<'a>) {
        self.type_names.insert(it.id.name.to_string());
    }

    fn visit_ts_type_alias_declaration(&mut self, it: &TSTypeAliasDeclaration<'a>) {
        self.type_names.insert(it.id.name.to_string());
    }

    // What stands inside types is no use of a value.
    fn visit_ts_type(&mut self, _: &TSType<'a>) {}
    fn visit_ts_type_annotation(&mut self, _: &TSTypeAnnotation<'a>) {}
    fn visit_ts_type_parameter_declaration(&mut self, _: &TSTypeParameterDeclaration<'a>) {}
    fn visit_ts_type_parameter_instantiation(&mut self, _: &TSTypeParameterInstantiation<'a>) {}
    fn visit_ts_class_implements(&mut self, _: &TSClassImplements<'a>) {}
    fn visit_ts_this_parameter(&mut self, _: &TSThisParameter<'a>) {}
    fn visit_ts_index_signature(&mut self, _: &TSIndexSignature<'a>) {}
    fn visit_ts_external_module_declaration(&mut self, _: &TSExternalModuleDeclaration<'a>) {}
    fn visit_ts_global_declaration(&mut self, _: &TSGlobalDeclaration<'a>) {}
}
