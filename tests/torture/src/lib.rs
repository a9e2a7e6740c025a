//! A server that is killed at any instant loses nothing, does nothing twice unsaid and leaves nothing behind: shown from
//! the outside, on a real server in a process of its own, with real sandboxes. [`run`] is the whole of it: [`load`]
//! keeps the server busy, [`victim`] is the server, [`check`] says what must be true.

pub mod api;
pub mod check;
pub mod load;
pub mod plan;
pub mod random;
pub mod victim;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Signal, kill_process};

use api::Api;
use check::Facts;
use load::{Counts, Load};
use random::Random;
use victim::Victim;

/// The longest that a server lives.
const LIFE_MAX: Duration = Duration::from_secs(1);
/// How long it may take after the last kill until all jobs have ended.
const CALM_TIMEOUT: Duration = Duration::from_secs(180);
/// Jobs that are looked at after each restart, besides those that are followed anyway.
const LOOKED_AT: usize = 5;
/// One in so many servers finds that a sandbox was killed as well.
const GUEST_KILLS: u64 = 15;

#[derive(Debug, Clone)]
pub struct Options {
    /// Starts a server when `--listen` and `--data` are added.
    pub command: Vec<OsString>,
    pub data: PathBuf,
    pub kills: u64,
    /// How many use the server at once.
    pub people: usize,
    pub seed: u64,
    /// Told of every kill.
    pub progress: fn(u64, &Counts),
}

#[derive(Debug)]
pub struct Summary {
    /// With those that died while they started.
    pub kills: u64,
    pub counts: Counts,
    pub facts: Facts,
    pub elapsed: Duration,
    /// Everything that should not be. Empty if all is well.
    pub wrong: Vec<String>,
}

pub async fn run(options: Options) -> Result<Summary> {
    let started = Instant::now();
    let mut random = Random::new(options.seed);
    fs::create_dir_all(&options.data)?;
    let mut victim = Victim::new(options.command, options.data.canonicalize()?);
    victim.spawn()?;
    victim.is_up().await?;
    let load = Arc::new(Load::new(Api::new(victim.url())?));
    let people: Vec<_> = (0..options.people)
        .map(|person| {
            let (load, random) = (load.clone(), random.fork());
            tokio::spawn(async move { load.work(person, random).await })
        })
        .collect();

    let mut kills = 0;
    for kill in 1..=options.kills {
        wait_for_a_bad_moment(&load, &mut random).await;
        if random.one_in(GUEST_KILLS) {
            kill_a_guest(&victim.data, &load, &mut random);
        }
        victim.kill().await?;
        kills += 1;
        victim.spawn()?;
        // Some die while they are still taking up what the one before has left.
        if random.one_in(4) {
            tokio::time::sleep(random.moment(Duration::from_millis(200))).await;
            victim.kill().await?;
            kills += 1;
            victim.spawn()?;
        }
        victim.is_up().await.with_context(|| format!("after kill {kill}"))?;
        look(&load, &mut random).await?;
        (options.progress)(kill, &load.ledger().counts);
        if !load.ledger().wrong.is_empty() {
            break;
        }
    }
    load.stop.cancel();
    let calm = async {
        for person in people {
            let _ = person.await;
        }
    };
    if tokio::time::timeout(CALM_TIMEOUT, calm).await.is_err() {
        let open = load.ledger().open.clone();
        load.ledger().wrong.push(format!("jobs that do not end: {open:?}"));
    }
    let views = views(&load).await?;
    let status = victim.stop().await?;
    let mut ledger = load.ledger();
    if !status.success() {
        ledger.wrong.push(format!("the server was stopped in order and ended with {status}"));
    }
    let lost = ledger.facts.lost_steps + ledger.counts.sandboxes_lost;
    if lost > ledger.counts.guests_killed {
        let killed = ledger.counts.guests_killed;
        ledger.wrong.push(format!("{lost} sandboxes were lost, and only {killed} were killed"));
    }
    let left = leftovers(&victim.data, &ledger.deleted, &views);
    ledger.wrong.extend(left);
    let (counts, facts, wrong) = (ledger.counts, ledger.facts, std::mem::take(&mut ledger.wrong));
    Ok(Summary { kills, counts, facts, elapsed: started.elapsed(), wrong })
}

/// Any time, or right after something has happened: there the windows are in which things go wrong.
async fn wait_for_a_bad_moment(load: &Load, random: &mut Random) {
    if random.one_in(2) {
        let _ = tokio::time::timeout(LIFE_MAX, load.happened.notified()).await;
        tokio::time::sleep(random.moment(Duration::from_millis(20))).await;
    } else {
        tokio::time::sleep(Duration::from_millis(random.between(0, LIFE_MAX.as_millis() as u64))).await;
    }
}

fn kill_a_guest(data: &Path, load: &Load, random: &mut Random) {
    if let Some(guest) = random.pick(&victim::guests(data)) {
        load.ledger().counts.guests_killed += u64::from(kill_process(*guest, Signal::KILL).is_ok());
    }
}

/// What was accepted is there.
async fn look(load: &Load, random: &mut Random) -> Result<()> {
    let known: Vec<String> = {
        let ledger = load.ledger();
        ledger.open.iter().cloned().chain(ledger.kept.iter().map(|(id, _)| id.clone())).collect()
    };
    for _ in 0..LOOKED_AT {
        let Some(id) = random.pick(&known) else { return Ok(()) };
        let answer = load.api.get(&format!("/jobs/{id}")).await?;
        let is_deleted = !load.ledger().open.contains(id) && !load.ledger().kept.iter().any(|(kept, _)| kept == id);
        if answer.status != reqwest::StatusCode::OK && !is_deleted {
            load.ledger().wrong.push(format!("the job {id} was accepted and is answered with {}", answer.status));
        }
    }
    Ok(())
}

/// All jobs as the API shows them at last.
async fn views(load: &Load) -> Result<Vec<serde_json::Value>> {
    let mut views = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = load.api.get(&format!("/jobs?limit=1000{cursor}")).await?.json()?;
        views.extend(page["jobs"].as_array().context("a page without jobs")?.iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(views),
        }
    }
}

/// What should not be in a data directory whose jobs have all ended and whose server has stopped.
fn leftovers(data: &Path, deleted: &[String], views: &[serde_json::Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let names = |path: &Path| -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    for directory in ["sandboxes", "incoming", "spool"] {
        let left = names(&data.join(directory));
        if !left.is_empty() {
            wrong.push(format!("{directory} is not empty: {left:?}"));
        }
    }
    let guests = victim::guests(data);
    if !guests.is_empty() {
        wrong.push(format!("guests that nobody ended: {guests:?}"));
    }
    for id in names(&data.join("tasks")) {
        if !views.iter().any(|view| view["job_id"] == id.as_str()) {
            let why = if deleted.contains(&id) { "was deleted" } else { "is not known" };
            wrong.push(format!("there is a directory of the job {id}, which {why}"));
        }
    }
    for view in views {
        let directory = data.join("tasks").join(view["job_id"].as_str().unwrap_or_default());
        if let Err(error) = check::check_mirror(&directory, view) {
            wrong.push(format!("{error:#}"));
        }
        let known = ["task.json", "status.json", "memory.json", "agent.log", "workspace", "input"];
        let strange: Vec<_> = names(&directory).into_iter().filter(|name| !known.contains(&name.as_str())).collect();
        if !strange.is_empty() {
            wrong.push(format!("fragments in the directory of {}: {strange:?}", view["job_id"]));
        }
    }
    wrong
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kills, counts, facts, elapsed, wrong } = self;
        let rows = [
            ("servers killed", *kills),
            ("sandboxes killed", counts.guests_killed),
            ("jobs", counts.jobs),
            ("sandboxes by hand", counts.sandboxes),
            ("commands in them", counts.execs),
            ("steps", counts.steps),
            ("events followed", counts.events),
            ("requests sent again", counts.resent),
            ("jobs cancelled", counts.cancelled),
            ("changes of hands", facts.resumes),
            ("most within one step", facts.resumes_of_a_step),
            ("steps lost", facts.lost_steps),
            ("of these begun again", facts.repeated_steps),
            ("seconds", elapsed.as_secs()),
            ("wrong", wrong.len() as u64),
        ];
        for (name, number) in rows {
            writeln!(f, "{name:<22}{number:>8}")?;
        }
        wrong.iter().try_for_each(|wrong| writeln!(f, "WRONG: {wrong}"))
    }
}
