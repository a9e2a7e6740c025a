//! The document that says what the API is, as `GET /openapi.json` gives it. Operations and types describe themselves
//! where they are; here is what belongs to all of them, and what their attributes cannot say.

use serde_json::{Map, Value, json};
use utoipa::openapi::path::{Operation, PathItem, Paths};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::UtoipaMethodRouter;

use super::answers;
use crate::http::problem::Problem;

const DESCRIPTION: &str = "Jobs in sandboxes. Errors are `application/problem+json`, each with one sentence that says \
    what to do. Times are RFC 3339 in UTC; names that end in `_ms` or `_bytes` are numbers.";

const TAGS: [(&str, &str); 4] = [
    ("jobs", "Scheduling, following and ending jobs."),
    ("files", "The workspace of a job, while it runs and after."),
    ("sandboxes", "Sandboxes used by hand, and commands in the sandbox of any running job."),
    ("server", "The server itself."),
];

/// The document before any operation is in it.
pub fn empty() -> OpenApi {
    let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title("Cofferdam")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(license));
    let tags = TAGS.map(|(name, description)| TagBuilder::new().name(name).description(Some(description)).build());
    OpenApiBuilder::new().info(info.build()).tags(Some(tags)).build()
}

/// The same operations under another path than `/jobs`, with names of their own.
pub fn at<S>(path: &str, (schemas, paths, router): UtoipaMethodRouter<S>) -> UtoipaMethodRouter<S> {
    let name = path.trim_start_matches('/');
    let mut moved = Paths::new();
    for (old, mut item) in paths.paths {
        for operation in operations(&mut item) {
            operation.operation_id = operation.operation_id.take().map(|id| format!("{name}_{id}"));
            for tag in operation.tags.iter_mut().flatten() {
                *tag = tag.replace("jobs", if path == "/sandboxes" { "sandboxes" } else { "jobs" });
            }
        }
        moved.paths.insert(old.replacen("/jobs", path, 1), item);
    }
    (schemas, moved, router)
}

/// The whole document, once every route is in it.
pub fn finish(mut document: OpenApi) -> Value {
    let components = document.components.get_or_insert_default();
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    components.responses.extend(answers::components());
    // The router marks what takes the rest of a path; the document has no word for it.
    let paths = std::mem::take(&mut document.paths.paths);
    document.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    for operation in document.paths.paths.values_mut().flat_map(operations) {
        operation.responses.responses.extend(answers::always());
    }
    let mut document = serde_json::to_value(document).expect("a document is JSON");
    let schemas = &mut document["components"]["schemas"];
    for name in ["JobRequest", "SandboxRequest"] {
        schemas[name] = flat(schemas, name);
    }
    schemas.as_object_mut().map(|schemas| schemas.remove("Options"));
    schemas["JobRequest"]["oneOf"] = one_of(&[("steps", "array"), ("task", "string"), ("prompt", "string")]);
    schemas["FileRequest"]["oneOf"] = one_of(&[("content", "string"), ("content_base64", "string")]);
    schemas["ExecBody"]["oneOf"] = one_of(&[("command", "string"), ("argv", "array")]);
    schemas["StepRequest"]["oneOf"] = steps();
    document["paths"]["/sandboxes"]["post"]["requestBody"]["required"] = json!(false);
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten()
}

/// One object instead of several that all must fit, since only one object can say that it has no other fields.
fn flat(schemas: &Value, name: &str) -> Value {
    let whole = &schemas[name];
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for part in whole["allOf"].as_array().into_iter().flatten() {
        let reference = part["$ref"].as_str().and_then(|text| text.rsplit('/').next());
        let part = reference.map_or(part, |name| &schemas[name]);
        properties.extend(part["properties"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
        required.extend(part["required"].as_array().into_iter().flatten().cloned());
    }
    let mut object = json!({
        "type": "object",
        "description": whole["description"],
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        object["required"] = required.into();
    }
    object
}

/// Exactly one of these fields is given; `null` is as good as nothing.
fn one_of(fields: &[(&str, &str)]) -> Value {
    let given =
        |(field, kind): &(&str, &str)| json!({ "properties": { *field: { "type": kind } }, "required": [field] });
    fields.iter().map(given).collect()
}

/// Which tool needs what.
fn steps() -> Value {
    let tools: [(&[&str], &[&str]); 4] = [
        (&["shell", "bash", "gui", "xdotool", "xdot"], &["command"]),
        (&["python", "javascript", "typescript"], &["code"]),
        (&["read_file"], &["path"]),
        (&["write_file"], &["path", "content"]),
    ];
    let fields = ["command", "code", "path", "content"];
    let choice = |(tools, needed): (&[&str], &[&str])| {
        let mut properties = json!({ "tool": { "enum": tools } });
        for field in fields {
            properties[field] = json!({ "type": if needed.contains(&field) { "string" } else { "null" } });
        }
        json!({ "properties": properties, "required": needed })
    };
    tools.into_iter().map(choice).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

    #[test]
    fn the_document_is_the_one_that_is_kept() {
        let document = finish(crate::api::routes().into_openapi());
        let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
        if std::env::var_os("RENEW_OPENAPI").is_some() {
            std::fs::write(KEPT, &text).unwrap();
        }
        let kept = std::fs::read_to_string(KEPT).unwrap_or_default();
        let difference = kept.lines().zip(text.lines()).find(|(kept, now)| kept != now);
        assert!(
            kept == text,
            "the API is not what crates/server/openapi.json says, first in {difference:?}; if that is meant, run \
             `make openapi` and commit the file"
        );
    }

    #[test]
    fn operations_have_names_of_their_own_and_are_described() {
        let document = finish(crate::api::routes().into_openapi());
        assert_eq!(document["openapi"], "3.1.0");
        let mut names = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                assert!(names.insert(operation["operationId"].to_string()), "{method} {path}");
                assert!(operation["summary"].as_str().unwrap().ends_with('.'), "{method} {path}");
                let tag = operation["tags"][0].as_str().unwrap();
                assert!(TAGS.iter().any(|(name, _)| *name == tag), "{method} {path}: {tag}");
            }
        }
    }
}
