//! Owns the rewriting of enums into the objects that TypeScript makes of them, each member on its own line.

use oxc_ast::ast::*;
use oxc_ast_visit::Visit;
use oxc_span::Span;

use crate::rewriter::Rewriter;

impl Rewriter<'_> {
    /// `exported` is the span of the export statement around; `owner` the namespace whose property the enum becomes.
    pub(crate) fn enumeration<'a>(&mut self, it: &TSEnumDeclaration<'a>, exported: Option<Span>, owner: Option<&str>) {
        if it.declare {
            return self.blank_statement(exported.unwrap_or(it.span));
        }
        let name = it.id.name.as_str();
        let opening = self.declaration_of_object(name, name, it.span, exported, owner);
        self.edits.replace(it.span.start, it.body.span.start + 1, opening);

        self.enums.push((name.to_string(), Default::default()));
        let mut string_members = Vec::new();
        let mut previous: Option<String> = None;
        for member in &it.body.members {
            let Some(key) = key_of(&member.id) else {
                self.refuse(member.span, "an enum member's name cannot be computed");
                break;
            };
            let quoted = serde_json::Value::from(key.as_str()).to_string();
            let is_string = member.initializer.as_ref().is_some_and(|value| is_string(value, name, &string_members));
            match &member.initializer {
                Some(value) => {
                    // The `=` of the source stays where it is.
                    let key_end = self.end_of_member_name(member);
                    let target =
                        if is_string { format!("{name}[{quoted}]") } else { format!("{name}[{name}[{quoted}]") };
                    self.edits.replace(member.span.start, key_end, target);
                    self.visit_expression(value);
                    let closing = if is_string { ";".to_string() } else { format!("] = {quoted};") };
                    self.edits.insert(member.span.end, closing);
                }
                None => {
                    let value = match &previous {
                        None => "0".to_string(),
                        Some(previous) if string_members.contains(previous) => {
                            self.refuse(member.span, "an enum member after one with a string needs a value");
                            break;
                        }
                        Some(previous) => format!("{name}[{}] + 1", serde_json::Value::from(previous.as_str())),
                    };
                    let text = format!("{name}[{name}[{quoted}] = {value}] = {quoted};");
                    self.edits.replace(member.span.start, member.span.end, text);
                }
            }
            if let Some(comma) = self.edits.punctuation_from(member.span.end, b',') {
                self.edits.blank(comma, comma + 1);
            }
            if is_string {
                string_members.push(key.clone());
            }
            if let Some((_, members)) = self.enums.last_mut() {
                members.insert(key.clone());
            }
            previous = Some(key);
        }
        self.enums.pop();
        let closing = closing_of_object(name, owner);
        self.edits.replace(it.body.span.end - 1, it.body.span.end, closing);
    }

    /// The beginning of an enum's or namespace's function: declares the variable, unless something of that name is
    /// there already to be added to.
    pub(crate) fn declaration_of_object(
        &mut self,
        name: &str,
        parameter: &str,
        declaration: Span,
        exported: Option<Span>,
        owner: Option<&str>,
    ) -> String {
        let is_top_level = self.declared.len() == 2;
        let is_known = self.declare(name);
        if let Some(export) = exported
            && (is_known || owner.is_some())
        {
            self.edits.blank_statement(export.start, declaration.start);
        }
        let keyword = if is_top_level { "var" } else { "let" };
        if is_known {
            format!(";(function ({parameter}) {{")
        } else {
            format!("{keyword} {name};(function ({parameter}) {{")
        }
    }

    /// A member's bare name inside an initializer means the member.
    pub(crate) fn enum_member_reference(&mut self, it: &IdentifierReference<'_>) {
        let found = self.enums.iter().rev().find(|(_, members)| members.contains(it.name.as_str()));
        if let Some((name, _)) = found {
            let text = format!("{name}.{}", it.name);
            self.edits.replace(it.span.start, it.span.end, text);
        }
    }

    fn end_of_member_name(&self, member: &TSEnumMember<'_>) -> u32 {
        let end = oxc_span::GetSpan::span(&member.id).end;
        self.edits.punctuation_from(end, b']').map_or(end, |bracket| bracket + 1)
    }
}

/// The end of an enum's or namespace's function and its call.
pub(crate) fn closing_of_object(name: &str, owner: Option<&str>) -> String {
    match owner {
        Some(owner) => format!("}})({name} = {owner}.{name} || ({owner}.{name} = {{}}));"),
        None => format!("}})({name} || ({name} = {{}}));"),
    }
}

fn key_of(name: &TSEnumMemberName<'_>) -> Option<String> {
    match name {
        TSEnumMemberName::Identifier(identifier) => Some(identifier.name.to_string()),
        TSEnumMemberName::String(string) | TSEnumMemberName::ComputedString(string) => Some(string.value.to_string()),
        TSEnumMemberName::ComputedTemplateString(template) => template.single_quasi().map(|text| text.to_string()),
    }
}

/// Whether an initializer is a string, as far as its syntax tells: string members have no entry for their value.
fn is_string(value: &Expression<'_>, enum_name: &str, string_members: &[String]) -> bool {
    let is_known = |name: &str| string_members.iter().any(|member| member == name);
    match value.get_inner_expression() {
        Expression::StringLiteral(_) | Expression::TemplateLiteral(_) => true,
        Expression::BinaryExpression(sum) if sum.operator == BinaryOperator::Addition => {
            is_string(&sum.left, enum_name, string_members) || is_string(&sum.right, enum_name, string_members)
        }
        Expression::Identifier(identifier) => is_known(&identifier.name),
        Expression::StaticMemberExpression(access) => {
            matches!(&access.object, Expression::Identifier(object) if object.name == enum_name)
                && is_known(&access.property.name)
        }
        _ => false,
    }
}
