//! A job's log, or a part of it, passed on as it comes. A connection that breaks is made again behind the last byte
//! that was passed on.

use std::ops::Range;

use reqwest::{Method, Response, StatusCode, header};

use super::{Client, Patience};
use crate::exec::Failure;
use crate::exit_code;
use crate::job::view::Job;

/// What to read.
#[derive(Debug, Clone, Default)]
pub struct LogPart {
    /// One step's output only.
    pub step: Option<u32>,
    /// Stay until the job has ended.
    pub follow: bool,
    /// Bytes of the whole log.
    pub range: Option<Range<u64>>,
}

impl LogPart {
    fn path(&self, job: &str) -> String {
        let step = self.step.map(|step| format!("&step={step}")).unwrap_or_default();
        format!("/jobs/{job}/log?follow={}{step}", self.follow)
    }
}

/// Ends with the log, or with the first error of `sink`.
pub async fn read_log(
    client: &Client,
    job: &str,
    part: &LogPart,
    mut sink: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let start = part.range.as_ref().map_or(0, |range| range.start);
    let end = part.range.as_ref().map(|range| range.end);
    let mut position = start;
    let mut patience = Patience::for_stream(client);
    loop {
        let mut request = client.request(Method::GET, &part.path(job));
        if position > 0 || end.is_some() {
            let last = end.map(|end| (end - 1).to_string()).unwrap_or_default();
            request = request.header(header::RANGE, format!("bytes={position}-{last}"));
        }
        let response = match request.send().await {
            Ok(response) if response.status() == StatusCode::RANGE_NOT_SATISFIABLE => return Ok(()),
            Ok(response) => super::accepted(response).await,
            Err(error) => Err(client.unreachable(&error)),
        };
        let response = match response {
            Ok(response) => response,
            Err(failure) => {
                patience.wait(failure).await?;
                continue;
            }
        };
        // The whole again, where a part was asked for.
        let skip = if response.status() == StatusCode::PARTIAL_CONTENT { 0 } else { position };
        let before = position;
        let broken = pass_on(client, response, skip, &mut position, &mut sink).await?;
        if position > before {
            patience.renew();
        }
        match broken {
            // A server that stops ends its answers in good order, too.
            None if part.follow && !client.get::<Job>(&format!("/jobs/{job}")).await?.status.is_final() => {
                patience.wait(Failure::new(exit_code::SERVER, "the server has closed the log before its end")).await?;
            }
            None => return Ok(()),
            Some(broken) => patience.wait(broken).await?,
        }
    }
}

/// What broke the connection, if something did.
async fn pass_on(
    client: &Client,
    mut response: Response,
    mut skip: u64,
    position: &mut u64,
    sink: &mut impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<Option<Failure>, Failure> {
    loop {
        match response.chunk().await {
            Ok(Some(bytes)) => {
                let passed = skip.min(bytes.len() as u64);
                skip -= passed;
                let bytes = &bytes[passed as usize..];
                sink(bytes)?;
                *position += bytes.len() as u64;
            }
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(client.unreachable(&error))),
        }
    }
}
