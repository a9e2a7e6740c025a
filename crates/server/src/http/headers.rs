//! The headers that keep browsers from doing more with an answer than show it to who asked. Handlers whose answers
//! need another Content-Security-Policy set it themselves; the rest is the same for all. There are no CORS headers:
//! no other origin has business here.

use axum::http::HeaderValue;
use axum::http::header::{
    CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

const NOTHING_BUT_ITSELF: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

pub(super) fn close_to_browsers(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(NOTHING_BUT_ITSELF);
}
