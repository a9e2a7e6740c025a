//! Which job is meant: a whole id, the beginning or the end of one, or `last` (also `-`) for the newest.

use cofferdam_protocol::job::JobId;

use super::view::{Job, JobList};
use crate::client::Client;
use crate::exec::Failure;
use crate::exit_code;

/// An abbreviation is looked for among this many of the newest jobs.
const JOBS_SEARCHED_MAX: usize = 20_000;
const PAGE: usize = 1_000;
/// How many of several are named.
const MATCHES_SHOWN: usize = 5;

pub async fn find(client: &Client, text: &str) -> Result<String, Failure> {
    if JobId::try_from(text.to_owned()).is_ok() {
        return Ok(text.to_owned());
    }
    let none = |message: String| Err(Failure::new(exit_code::NO_SUCH_JOB, message));
    if matches!(text, "-" | "last") {
        let list: JobList = client.get("/jobs?limit=1").await?;
        return match list.jobs.into_iter().next() {
            Some(job) => Ok(job.job_id),
            None => none("there is no job yet; start one with: cofferdam run".to_owned()),
        };
    }
    let part = text.to_ascii_lowercase();
    let mut found: Vec<Job> = Vec::new();
    let mut cursor: Option<String> = None;
    let mut searched = 0;
    while !part.is_empty() && searched < JOBS_SEARCHED_MAX {
        let behind = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let list: JobList = client.get(&format!("/jobs?limit={PAGE}{behind}")).await?;
        searched += list.jobs.len();
        let matching = |job: &Job| job.job_id.starts_with(&part) || job.job_id.ends_with(&part);
        found.extend(list.jobs.into_iter().filter(matching));
        cursor = list.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    match found.as_slice() {
        [job] => Ok(job.job_id.clone()),
        [] => none(format!("there is no job {text}; all of them are shown by: cofferdam ps --all")),
        several => {
            let shown: Vec<&str> = several.iter().take(MATCHES_SHOWN).map(|job| job.job_id.as_str()).collect();
            let more = if several.len() > MATCHES_SHOWN { ", …" } else { "" };
            none(format!("{text} stands for {} jobs: {}{more}; write more of the id", several.len(), shown.join(", ")))
        }
    }
}
