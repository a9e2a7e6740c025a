//! People who use the server while it is being killed: each sends a job, follows it, perhaps cancels it, looks at what
//! came of it, perhaps deletes it, and begins again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::multipart::{Form, Part};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::check::{Ended, Facts};
use crate::plan::Plan;
use crate::random::Random;

/// How long somebody waits for a sandbox to be there; then it is looked for.
const SANDBOX_PATIENCE: Duration = Duration::from_secs(10);
/// Until an interactive sandbox that nobody ended ends itself.
const SANDBOX_TTL: &str = "5m";

#[derive(Debug)]
pub struct Load {
    pub api: Api,
    /// Nothing new is begun.
    pub stop: CancellationToken,
    /// Something has just happened: a good moment to be killed.
    pub happened: Notify,
    pub ledger: Mutex<Ledger>,
}

/// What all of them have done and seen.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Accepted and not ended.
    pub open: Vec<String>,
    /// Ended and not deleted.
    pub kept: Vec<(String, Plan)>,
    /// Those of them that have a workspace to start from.
    pub parents: Vec<(String, Plan)>,
    pub deleted: Vec<String>,
    pub counts: Counts,
    pub facts: Facts,
    pub wrong: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub jobs: u64,
    pub steps: u64,
    /// Jobs whose request had to be sent again under its key.
    pub resent: u64,
    pub cancelled: u64,
    pub sandboxes: u64,
    pub execs: u64,
    /// Events that were followed.
    pub events: u64,
    /// Sandboxes killed on purpose.
    pub guests_killed: u64,
    pub sandboxes_lost: u64,
}

impl Load {
    pub fn new(api: Api) -> Self {
        Self { api, stop: CancellationToken::new(), happened: Notify::new(), ledger: Mutex::default() }
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One person's jobs, one after the other. The first does nothing but long ones.
    pub async fn work(&self, person: usize, mut random: Random) {
        let mut number = 0;
        while !self.stop.is_cancelled() {
            number += 1;
            let name = format!("{person}x{number}");
            let done = match person {
                0 => self.job(Plan::long(name), &mut random).await,
                1 => self.sandbox(&name, &mut random).await,
                _ => {
                    let parent = random.one_in(6).then(|| random.pick(&self.ledger().parents).cloned()).flatten();
                    self.job(Plan::random(&mut random, name, parent), &mut random).await
                }
            };
            if let Err(error) = done {
                self.ledger().wrong.push(format!("person {person}, job {number}: {error:#}"));
                return;
            }
        }
    }

    async fn job(&self, plan: Plan, random: &mut Random) -> Result<()> {
        let id = self.submit(&plan, random).await?;
        let follow = self.api.follow(&id, |_| self.happened.notify_waiters());
        let cancel = async {
            let Some(after) = plan.cancel_after else { return Ok(false) };
            tokio::time::sleep(after).await;
            self.cancel(&id).await
        };
        let (seen, was_cancelled) = tokio::join!(follow, cancel);
        let (seen, was_cancelled) = (seen?, was_cancelled?);
        let mut wrong = Vec::new();
        if random.one_in(6) && seen.iter().any(|event| event["type"] == "started") {
            self.write_afterwards(&id).await?;
        }
        let facts = Ended { id: &id, plan: &plan, seen: &seen, was_cancelled }.check(&self.api, &mut wrong).await?;
        {
            let mut ledger = self.ledger();
            ledger.counts.events += seen.len() as u64;
            ledger.counts.cancelled += u64::from(was_cancelled);
            ledger.counts.steps += seen.iter().filter(|event| event["type"] == "step_started").count() as u64;
            ledger.facts.lost_steps += facts.lost_steps;
            ledger.facts.repeated_steps += facts.repeated_steps;
            ledger.facts.resumes += facts.resumes;
            ledger.facts.resumes_of_a_step = ledger.facts.resumes_of_a_step.max(facts.resumes_of_a_step);
            ledger.wrong.extend(wrong);
            ledger.open.retain(|open| *open != id);
            if !plan.is_deleted {
                if seen.iter().any(|event| event["type"] == "started") {
                    ledger.parents.push((id.clone(), plan.clone()));
                }
                ledger.kept.push((id, plan));
                return Ok(());
            }
        }
        self.delete(&id).await
    }

    /// Sends a job until it is accepted. However often it is sent, it is one job.
    async fn submit(&self, plan: &Plan, random: &mut Random) -> Result<String> {
        if random.one_in(8) {
            let after = random.moment(Duration::from_millis(20));
            self.api.hang_up("/schedule", after, |request| submission(request, plan)).await;
        }
        loop {
            let answer = self.api.ask(Method::POST, "/schedule", |request| submission(request, plan)).await?;
            self.happened.notify_waiters();
            match answer.status {
                StatusCode::ACCEPTED => {
                    let id = answer.json()?["job_id"].as_str().context("a job without an id")?.to_owned();
                    let mut ledger = self.ledger();
                    ledger.counts.jobs += 1;
                    ledger.counts.resent += u64::from(answer.unanswered > 0);
                    ledger.open.push(id.clone());
                    return Ok(id);
                }
                StatusCode::TOO_MANY_REQUESTS => tokio::time::sleep(Duration::from_millis(50)).await,
                status => bail!("a job was answered with {status}: {}", answer.text),
            }
        }
    }

    /// Whether the job has taken notice.
    async fn cancel(&self, id: &str) -> Result<bool> {
        let answer = self.api.ask(Method::POST, &format!("/jobs/{id}/cancel"), |request| request).await?;
        self.happened.notify_waiters();
        match answer.status {
            StatusCode::ACCEPTED | StatusCode::OK => Ok(true),
            // It had ended; perhaps because of an earlier request whose answer was lost.
            StatusCode::CONFLICT => Ok(answer.unanswered > 0),
            status => bail!("cancelling {id} was answered with {status}: {}", answer.text),
        }
    }

    /// A file changed through the API after the job's end, which its files have to tell as well.
    async fn write_afterwards(&self, id: &str) -> Result<()> {
        let path = format!("/jobs/{id}/files/afterwards.txt");
        let answer = self.api.ask(Method::PUT, &path, |request| request.body("afterwards")).await?;
        self.happened.notify_waiters();
        if !answer.status.is_success() {
            bail!("writing {path} was answered with {}: {}", answer.status, answer.text);
        }
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<()> {
        let answer = self.api.ask(Method::DELETE, &format!("/jobs/{id}"), |request| request).await?;
        self.happened.notify_waiters();
        let is_gone = answer.status == StatusCode::NOT_FOUND && answer.unanswered > 0;
        if answer.status != StatusCode::NO_CONTENT && !is_gone {
            bail!("deleting {id} was answered with {}: {}", answer.status, answer.text);
        }
        let again = self.api.get(&format!("/jobs/{id}")).await?;
        if again.status != StatusCode::NOT_FOUND {
            bail!("the job {id} is there after it was deleted: {}", again.text);
        }
        self.ledger().deleted.push(id.to_owned());
        Ok(())
    }

    /// A sandbox used by hand: some commands, then its end.
    async fn sandbox(&self, name: &str, random: &mut Random) -> Result<()> {
        let body = json!({ "ttl": SANDBOX_TTL, "labels": { "name": name } });
        // There is no key to send it again under: it is sent once, and looked for.
        self.api.hang_up("/sandboxes", SANDBOX_PATIENCE, |request| request.json(&body)).await;
        let list = self.api.get(&format!("/jobs?label=name={name}")).await?.json()?;
        let ids: Vec<String> = list["jobs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|job| job["job_id"].as_str().map(str::to_owned))
            .collect();
        self.ledger().counts.sandboxes += ids.len() as u64;
        for id in ids {
            self.ledger().open.push(id.clone());
            for number in 1..=random.between(0, 3) {
                self.exec(&id, number).await?;
                tokio::time::sleep(random.moment(Duration::from_millis(300))).await;
            }
            self.cancel(&id).await?;
            let events = self.api.follow(&id, |_| self.happened.notify_waiters()).await?;
            self.check_sandbox(&id, &events);
            self.ledger().open.retain(|open| *open != id);
            self.delete(&id).await?;
        }
        Ok(())
    }

    /// A command that prints; what its client sees is all of it, unless the connection breaks.
    async fn exec(&self, id: &str, number: u64) -> Result<()> {
        let body = json!({ "command": format!("echo {number} >> execs; sleep 0.05; echo said {number}") });
        let path = format!("/sandboxes/{id}/exec");
        let answer = self.api.ask(Method::POST, &path, |request| request.json(&body)).await?;
        self.ledger().counts.execs += 1;
        let lines: Vec<Value> = answer.text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let said: String = lines.iter().filter_map(|line| line["text"].as_str()).collect();
        let end = lines.last().cloned().unwrap_or_default();
        match answer.status {
            StatusCode::OK if end["outcome"]["kind"] == "lost" => Ok(()),
            StatusCode::OK if end["exit_code"] == 0 && said == format!("said {number}\n") => Ok(()),
            StatusCode::OK if end["exit_code"].is_null() => Ok(()),
            // Its sandbox was killed, or is not attached to yet.
            StatusCode::CONFLICT => Ok(()),
            status => bail!("a command was answered with {status}: {}", answer.text),
        }
    }

    fn check_sandbox(&self, id: &str, events: &[Value]) {
        let mut ledger = self.ledger();
        let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        let lost = count("sandbox_lost");
        let ended = events.iter().find(|event| event["type"] == "ended").cloned().unwrap_or_default();
        let expected = if lost > 0 { "failed" } else { "completed" };
        let is_right =
            ended["state"] == expected || lost > 0 && ended["state"] == "completed" || ended["state"] == "cancelled";
        if !(1..).zip(events).all(|(seq, event)| event["seq"] == seq) || !is_right || count("sandbox_started") > 1 {
            let told: Vec<_> = events.iter().map(Value::to_string).collect();
            ledger.wrong.push(format!("the sandbox {id} should have {expected}:\n  {}", told.join("\n  ")));
        }
        ledger.facts.resumes += count("resumed") as u64;
        ledger.counts.sandboxes_lost += lost as u64;
        ledger.counts.events += events.len() as u64;
    }
}

fn submission(request: RequestBuilder, plan: &Plan) -> RequestBuilder {
    let request = request.header("Idempotency-Key", &plan.name);
    match &plan.input {
        None => request.json(&plan.body),
        Some(input) => {
            let file = Part::bytes(input.clone()).file_name("input.bin");
            request.multipart(Form::new().text("job", plan.body.to_string()).part("file", file))
        }
    }
}
