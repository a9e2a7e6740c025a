//! The API as a document for programs, and as a page for people. The page loads nothing from elsewhere.

use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Redirect};

use super::State;

/// The page's own style and script, and what it asks the API for.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

const PAGE: &str = include_str!("docs/docs.html");
const STYLE: &str = include_str!("docs/docs.css");
const SCRIPT: &str = include_str!("docs/docs.js");

/// Gives this document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "server",
    responses((status = 200, description = "The document, OpenAPI 3.1.", body = Object)),
)]
pub async fn document(axum::extract::State(api): State) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")], api.document.clone())
}

/// Shows this document in a browser.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "docs",
    tag = "server",
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")),
)]
pub async fn page() -> impl IntoResponse {
    let headers =
        [(CONTENT_TYPE, "text/html; charset=utf-8"), (CACHE_CONTROL, "no-cache"), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers, PAGE)
}

pub async fn style() -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, "no-cache")];
    (headers, STYLE)
}

pub async fn script() -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, "text/javascript; charset=utf-8"), (CACHE_CONTROL, "no-cache")];
    (headers, SCRIPT)
}

pub async fn root() -> Redirect {
    Redirect::temporary("/docs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_page_loads_nothing_from_elsewhere_and_runs_nothing_inline() {
        for text in [PAGE, STYLE, SCRIPT] {
            assert!(!text.contains("://"), "{text}");
        }
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
        for inline in ["<style", "style=", "<script>", "onload=", "onclick="] {
            assert!(!PAGE.contains(inline), "{inline}");
        }
        let response = page().await.into_response();
        assert_eq!(response.headers()[CONTENT_SECURITY_POLICY], POLICY);
        assert!(!POLICY.contains("unsafe") && !POLICY.contains("http"), "{POLICY}");
    }
}
