//! What must be true of a job that has ended, whatever happened to its servers: as its plan, its events, its log, its
//! files and its status tell it.

use anyhow::{Context, Result};
use reqwest::StatusCode;
use serde_json::Value;

use crate::api::Api;
use crate::plan::{Plan, PlannedStep};

/// What is counted over all jobs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Steps whose sandbox was gone.
    pub lost_steps: u64,
    /// Steps that were begun again.
    pub repeated_steps: u64,
    /// Changes of hands.
    pub resumes: u64,
    /// The most changes of hands within one attempt at one step.
    pub resumes_of_a_step: u64,
}

/// A job that has ended, with everything there is to know about it.
#[derive(Debug)]
pub struct Ended<'a> {
    pub id: &'a str,
    pub plan: &'a Plan,
    /// As a reader saw them who was cut off with every kill.
    pub seen: &'a [Value],
    pub was_cancelled: bool,
}

impl Ended<'_> {
    /// All that is wrong with it goes to `wrong`.
    pub async fn check(&self, api: &Api, wrong: &mut Vec<String>) -> Result<Facts> {
        let id = self.id;
        let mut found = Vec::new();
        let events = api.events(id).await?;
        let status = api.get(&format!("/jobs/{id}")).await?.json()?;
        let log = api.get(&format!("/jobs/{id}/log")).await?.text;
        let facts = self.check_events(&events, &status, &mut found);
        check_ranges(&events, &log, &mut found);
        self.check_end(&status, facts, &mut found);
        for (number, step) in (1..).zip(&self.plan.steps) {
            self.check_step(api, number, step, &events, &mut found).await?;
        }
        self.check_files(api, &events, &mut found).await?;
        if !found.is_empty() {
            let told: Vec<_> = events.iter().map(Value::to_string).collect();
            wrong.push(format!("job {id}: {}\n  {status}\n  {}", found.join("; "), told.join("\n  ")));
        }
        Ok(facts)
    }

    fn check_events(&self, events: &[Value], status: &Value, wrong: &mut Vec<String>) -> Facts {
        let mut facts = Facts::default();
        if !(1..).zip(events).all(|(seq, event)| event["seq"] == seq) {
            wrong.push("the events are not numbered from 1 without gaps".to_owned());
        }
        if !events.starts_with(self.seen) {
            let seqs: Vec<_> = self.seen.iter().map(|event| event["seq"].to_string()).collect();
            wrong.push(format!("a reader that resumed saw other events than there are: {}", seqs.join(" ")));
        }
        let ended: Vec<_> = events.iter().filter(|event| event["type"] == "ended").collect();
        match ended[..] {
            [ended] => {
                if ended["state"] != status["status"] || ended["reason"] != status["reason"] {
                    wrong.push(format!("the last event says {ended}, the status does not"));
                }
            }
            _ => wrong.push(format!("it has ended {} times", ended.len())),
        }
        let of_owner = |event: &&Value| {
            let others = ["exec_started", "exec_finished", "file_changed", "connection", "cancel_requested"];
            !others.iter().any(|kind| event["type"] == *kind)
        };
        if events.iter().rfind(of_owner).is_none_or(|event| event["type"] != "ended") {
            wrong.push("something happened to it after its end".to_owned());
        }
        if status["last_seq"] != events.len() {
            wrong.push("the status and the events disagree about the number of events".to_owned());
        }
        let finished = events.iter().filter(|event| event["type"] == "step_finished").count();
        if status["steps_done"] != finished {
            wrong.push(format!("{finished} steps have ended, the status says {}", status["steps_done"]));
        }
        let mut resumes = 0;
        let (mut step, mut attempt) = (0, 0);
        for event in events {
            match event["type"].as_str().unwrap_or_default() {
                "resumed" => {
                    facts.resumes += 1;
                    resumes += 1;
                }
                "step_started" if event["step"] == step => {
                    facts.lost_steps += 1;
                    facts.repeated_steps += 1;
                    if event["attempt"] != attempt + 1 || !self.plan.retries {
                        wrong.push(format!("the step {step} was begun again though nobody said so"));
                    }
                    (attempt, resumes) = (attempt + 1, 0);
                }
                "step_started" => {
                    if event["step"] != step + 1 || event["attempt"] != 1 {
                        wrong.push(format!("the step {} was begun after {step}", event["step"]));
                    }
                    (step, attempt, resumes) = (step + 1, 1, 0);
                }
                "step_finished" => {
                    facts.resumes_of_a_step = facts.resumes_of_a_step.max(resumes);
                    facts.lost_steps += u64::from(is_lost(event));
                    if event["step"] != step || event["attempt"] != attempt {
                        wrong.push(format!("a step ended that was not running: {event}"));
                    }
                    if event["ok"] == false && !is_lost(event) && !is_cancelled(event) {
                        wrong.push(format!("the step {step} failed by itself: {event}"));
                    }
                }
                _ => {}
            }
        }
        facts
    }

    fn check_end(&self, status: &Value, facts: Facts, wrong: &mut Vec<String>) {
        let expected: &[&str] = match (self.was_cancelled, facts.lost_steps > 0) {
            (false, false) => &["completed"],
            (true, false) => &["completed", "cancelled"],
            (false, true) => &["completed", "failed"],
            (true, true) => &["completed", "cancelled", "failed"],
        };
        if !expected.iter().any(|expected| status["status"] == *expected) {
            wrong.push(format!("it is {} and should be {}", status["status"], expected.join(" or ")));
        }
        if status["status"] == "completed" && status["steps_done"] != self.plan.steps.len() {
            wrong.push("it is completed, but not all of its steps are".to_owned());
        }
    }

    /// What it printed, and what it left behind.
    async fn check_step(
        &self,
        api: &Api,
        number: u64,
        step: &PlannedStep,
        events: &[Value],
        wrong: &mut Vec<String>,
    ) -> Result<()> {
        let of_step = |event: &&Value, kind: &str| event["type"] == kind && event["step"] == number;
        let printed = api.get(&format!("/jobs/{}/log?step={number}", self.id)).await?.text;
        let ended = events.iter().find(|event| of_step(event, "step_finished"));
        match ended {
            Some(ended) if ended["ok"] == true && printed != step.output => {
                wrong.push(format!("the step {number} should have printed {:?}, not {printed:?}", step.output));
            }
            _ if !step.output.starts_with(&printed) => {
                wrong.push(format!("the step {number} printed {printed:?}, no beginning of {:?}", step.output));
            }
            _ => {}
        }
        let attempts = events.iter().filter(|event| of_step(event, "step_started")).count();
        let least = usize::from(ended.is_some_and(|ended| ended["ok"] == true));
        let path = step.writes.clone().unwrap_or_else(|| self.plan.token_file());
        let content = self.file(api, &path).await?.unwrap_or_default();
        let times = content.lines().filter(|line| *line == step.token).count();
        if times < least || times > attempts {
            wrong.push(format!("the step {number} left its mark {times} times in {attempts} attempts"));
        }
        Ok(())
    }

    /// What it was given, and nothing of ours.
    async fn check_files(&self, api: &Api, events: &[Value], wrong: &mut Vec<String>) -> Result<()> {
        if events.iter().all(|event| event["type"] != "started") {
            return Ok(());
        }
        if let Some(input) = &self.plan.input {
            let expected: String = String::from_utf8_lossy(input).into_owned();
            if self.file(api, "input.bin").await? != Some(expected) {
                wrong.push("its input is not as it was sent".to_owned());
            }
        }
        if let Some((parent, plan)) = &self.plan.parent {
            let path = format!("/jobs/{parent}/files/{}", plan.token_file());
            let original = api.get(&path).await?;
            let copy = self.file(api, &plan.token_file()).await?;
            if (original.status == StatusCode::OK).then_some(original.text) != copy {
                wrong.push("its workspace does not begin as a copy of its parent's".to_owned());
            }
        }
        let tree = api.get(&format!("/jobs/{}/files/?recursive=true", self.id)).await?.text;
        if tree.contains(".cofferdam-") {
            wrong.push(format!("a fragment lies in the workspace: {tree}"));
        }
        Ok(())
    }

    async fn file(&self, api: &Api, path: &str) -> Result<Option<String>> {
        let answer = api.get(&format!("/jobs/{}/files/{path}", self.id)).await?;
        Ok((answer.status == StatusCode::OK).then_some(answer.text))
    }
}

fn message(event: &Value) -> &str {
    event["result"]["message"].as_str().unwrap_or_default()
}

fn is_lost(event: &Value) -> bool {
    message(event).starts_with("was lost with its sandbox")
}

fn is_cancelled(event: &Value) -> bool {
    message(event) == "cancelled by request"
}

/// The ranges of a step's output follow one another, and the log has in them what the events show.
fn check_ranges(events: &[Value], log: &str, wrong: &mut Vec<String>) {
    let mut end = 0;
    for event in events {
        let number = |name: &str| event[name].as_u64().unwrap_or(u64::MAX);
        match event["type"].as_str().unwrap_or_default() {
            "step_started" => {
                if number("log_from") < end {
                    wrong.push(format!("a step begins inside of the one before it: {event}"));
                }
                end = number("log_from");
            }
            "output" => {
                let shown: String = event["excerpt"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|part| part["text"].as_str())
                    .collect();
                let range = number("log_from") as usize..number("log_to") as usize;
                if number("log_from") != end || log.get(range).is_none_or(|text| !text.starts_with(&shown)) {
                    wrong.push(format!("the log does not have what {event} says"));
                }
                end = number("log_to");
            }
            "step_finished" if number("log_to") != end => {
                wrong.push(format!("the step's end is not where its output ends: {event}"));
            }
            _ => {}
        }
    }
}

/// What the files beside the workspace say of a job must be what the API says.
pub fn check_mirror(directory: &std::path::Path, view: &Value) -> Result<()> {
    let read = |name: &str| -> Result<Value> {
        let path = directory.join(name);
        let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    };
    let status = read("status.json")?;
    let memory = read("memory.json")?;
    read("task.json")?;
    for (name, value) in view.as_object().into_iter().flatten() {
        // Each server listens elsewhere.
        if !name.ends_with("_url") && status[name] != *value {
            anyhow::bail!("status.json of {} has {} for {name}, the API {value}", view["job_id"], status[name]);
        }
    }
    if memory["status"] != view["status"] || memory["reason"] != view["reason"] {
        anyhow::bail!("memory.json of {} says {}, the API {}", view["job_id"], memory["status"], view["status"]);
    }
    Ok(())
}
