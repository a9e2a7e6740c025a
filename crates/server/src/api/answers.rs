//! The refusals of the API as its document names them: each once, with its status and the headers that come with it.
//! Handlers list those that they can give; what is in them is decided in [`crate::http::problem`].

use std::collections::BTreeMap;

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{Object, Ref, Type};
use utoipa::openapi::{ContentBuilder, RefOr};
use utoipa::{IntoResponses, ToSchema};

use crate::http::problem::Problem;

/// A refusal, and what the document says of it.
#[derive(Debug)]
struct Refusal {
    name: &'static str,
    description: &'static str,
    /// Besides those that every answer has.
    header: Option<&'static str>,
}

macro_rules! refusals {
    ($($name:ident $status:literal $(with $header:literal)?: $description:literal;)*) => {
        $(
            #[derive(Debug)]
            pub struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    [($status.to_owned(), Ref::from_response_name(stringify!($name)).into())].into()
                }
            }
        )*

        const ALL: &[Refusal] = &[$(Refusal {
            name: stringify!($name),
            description: $description,
            header: refusals!(@header $($header)?),
        }),*];
    };
    (@header) => { None };
    (@header $header:literal) => { Some($header) };
}

refusals! {
    Malformed "400": "The request cannot be read.";
    ForeignOrigin "403": "It comes from a web page of another origin.";
    NotFound "404": "There is no such job, or no such file.";
    Stalled "408": "The body stopped arriving before its end.";
    Conflict "409": "The state of the job, or of its files, does not allow it.";
    TooLarge "413": "The body, or what it unpacks to, is too large.";
    WrongType "415": "The body is of no type that is understood here.";
    BehindTheEnd "416" with "Content-Range": "The range lies behind the end.";
    WrongHost "421": "The server does not go by the name in the Host header.";
    Invalid "422": "A value is not accepted; `field` says which.";
    NotWebSocket "426" with "Upgrade": "This is reached by WebSocket alone.";
    TooMany "429" with "Retry-After": "There are too many already.";
    Failed "500": "The server failed; its log says why.";
    Unavailable "503" with "Retry-After": "Not at the moment.";
    NoSpace "507": "The disk is full.";
}

pub fn components() -> BTreeMap<String, RefOr<Response>> {
    ALL.iter().map(|refusal| (refusal.name.to_owned(), refusal.response().into())).collect()
}

/// What every operation can answer: the first three come before any handler, the others when the store fails.
pub fn always() -> impl Iterator<Item = (String, RefOr<Response>)> {
    let refusals = [
        Malformed::responses(),
        ForeignOrigin::responses(),
        WrongHost::responses(),
        Failed::responses(),
        Unavailable::responses(),
    ];
    refusals.into_iter().flatten()
}

impl Refusal {
    fn response(&self) -> Response {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name())));
        let response =
            ResponseBuilder::new().description(self.description).content("application/problem+json", content.build());
        let text = || HeaderBuilder::new().schema(Some(Object::with_type(Type::String))).build();
        self.header.into_iter().fold(response, |response, name| response.header(name, text())).build()
    }
}

/// Bytes of any kind.
#[derive(Debug, utoipa::ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct Raw(#[expect(dead_code, reason = "it describes a body, and is never made")] Vec<u8>);
