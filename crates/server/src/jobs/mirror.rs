//! The files beside a job's workspace, for people: written from the store after it has changed, by one thread of low
//! priority, so that accepting a thousand jobs does not wait for a thousand directories. A job that has ended is
//! marked in the store once its files say so; the next server catches up on what this one did not get to.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use cofferdam_linux::files::{RelativePath, Workspace};
use cofferdam_protocol::event::{Event, EventBody};
use cofferdam_protocol::job::{JobId, JobSpec};
use cofferdam_store::{EVENTS_MAX, Job, Store, StoreError};
use serde_json::json;
use tokio::runtime::Handle;
use tracing::warn;

use super::directory::{JobDirectory, make, write_whole};
use crate::api::view::JobView;
use crate::data::DataDirectory;

/// How long changes are collected: most jobs are short, and their files are then written once.
const DELAY: Duration = Duration::from_millis(100);
/// Below everything that somebody waits for.
const NICE: i32 = 10;
/// The condition variable takes no endless time.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Of each step's output in the memory file.
const MEMORY_OUTPUT_MAX_BYTES: usize = 2_048;

/// Jobs whose files are to be brought up to date, each once, however often it has changed.
#[derive(Debug, Default)]
pub struct Mirror {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// With the time at which each is due.
    order: VecDeque<(JobId, Instant)>,
    jobs: HashMap<JobId, Task>,
    is_closed: bool,
}

#[derive(Debug)]
enum Task {
    Write(Box<Job>),
    /// Its directory goes, then the job itself.
    Remove,
}

impl Mirror {
    pub fn write(&self, job: &Job) {
        self.put(job.id.clone(), Task::Write(Box::new(job.clone())));
    }

    pub fn remove(&self, id: &JobId) {
        self.put(id.clone(), Task::Remove);
    }

    fn put(&self, id: JobId, task: Task) {
        let mut queue = self.lock();
        match queue.jobs.get_mut(&id) {
            // What is to be removed is not written any more.
            Some(Task::Remove) => {}
            Some(waiting) => *waiting = task,
            None => {
                queue.jobs.insert(id.clone(), task);
                queue.order.push_back((id, Instant::now() + DELAY));
                self.changed.notify_one();
            }
        }
    }

    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    fn next(&self) -> Option<(JobId, Task)> {
        let mut queue = self.lock();
        loop {
            let wait = match queue.order.front() {
                Some((_, due)) if !queue.is_closed => due.saturating_duration_since(Instant::now()),
                Some(_) => Duration::ZERO,
                None if queue.is_closed => return None,
                None => Duration::MAX,
            };
            if wait.is_zero() {
                let (id, _) = queue.order.pop_front()?;
                let task = queue.jobs.remove(&id)?;
                return Some((id, task));
            }
            let waited = self.changed.wait_timeout(queue, wait.min(LONGEST_WAIT));
            queue = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Starts the thread; it ends when the mirror is closed and all is written.
pub fn start(
    mirror: Arc<Mirror>,
    store: Arc<dyn Store>,
    data: Arc<DataDirectory>,
    url: String,
) -> std::thread::JoinHandle<()> {
    let runtime = Handle::current();
    std::thread::spawn(move || {
        // Of this thread alone.
        let _ = rustix::process::setpriority_process(None, NICE);
        let scribe = Scribe { store, data, url, runtime };
        while let Some((id, task)) = mirror.next() {
            let done = match task {
                Task::Write(job) => scribe.write(&job),
                Task::Remove => scribe.remove(&id),
            };
            // Deleted in the meantime: its removal follows.
            if let Err(error) = done
                && !matches!(error, ScribeError::Store(StoreError::NotFound(_)))
            {
                warn!(job = %id, "its files cannot be brought up to date: {error}");
            }
        }
    })
}

struct Scribe {
    store: Arc<dyn Store>,
    data: Arc<DataDirectory>,
    url: String,
    runtime: Handle,
}

impl Scribe {
    fn write(&self, job: &Job) -> Result<(), ScribeError> {
        let directory = JobDirectory::new(&self.data, &job.id);
        let root = directory.root();
        let task = root.join("task.json");
        let spec = if task.exists() && !job.state.is_final() {
            None
        } else {
            match self.runtime.block_on(self.store.spec(&job.id)) {
                Ok(spec) => Some(spec),
                // Deleted in the meantime.
                Err(StoreError::NotFound(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        };
        if let Some(spec) = &spec
            && !task.exists()
        {
            make(root)?;
            write_whole(&task, &pretty(spec)?)?;
        }
        write_whole(&root.join("status.json"), &pretty(&JobView::new(job, None, &self.url, &self.data))?)?;
        if let Some(spec) = spec.filter(|_| job.state.is_final()) {
            directory.adopt_input(&self.data, &job.id)?;
            write_whole(&root.join("memory.json"), &pretty(&self.memory(job, &spec)?)?)?;
            if !job.is_mirrored {
                match self.runtime.block_on(self.store.set_mirrored(&job.id, job.last_seq)) {
                    Err(StoreError::NotFound(_)) | Ok(()) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// What was done and what came of it, for whoever goes on from here.
    fn memory(&self, job: &Job, spec: &JobSpec) -> Result<serde_json::Value, ScribeError> {
        let mut history: Vec<serde_json::Value> = Vec::new();
        let (mut after, mut output) = (0, String::new());
        loop {
            let events = self.runtime.block_on(self.store.events(&job.id, after, EVENTS_MAX))?;
            let Some(last) = events.last() else { break };
            after = last.seq;
            for event in &events {
                remember(event, spec, &mut history, &mut output);
            }
        }
        let goal = match &spec.work {
            cofferdam_protocol::job::Work::Goal(goal) => Some(goal),
            _ => None,
        };
        Ok(json!({
            "job_id": job.id, "goal": goal, "status": job.state, "reason": job.reason, "history": history,
        }))
    }

    fn remove(&self, id: &JobId) -> Result<(), ScribeError> {
        for parent in [self.data.tasks(), self.data.incoming()] {
            let path = RelativePath::parse(id.as_str().as_bytes())?;
            match Workspace::open(&parent)?.remove(&path, true) {
                Ok(()) | Err(cofferdam_linux::files::FileError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.runtime.block_on(self.store.purge(id)) {
            // It was purged before, and its directory made again by whoever did not know it yet.
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn remember(event: &Event, spec: &JobSpec, history: &mut Vec<serde_json::Value>, output: &mut String) {
    match &event.body {
        EventBody::StepStarted { .. } => output.clear(),
        EventBody::Output { excerpt, .. } => {
            for part in excerpt {
                let room = MEMORY_OUTPUT_MAX_BYTES.saturating_sub(output.len());
                output.push_str(&part.text[..part.text.floor_char_boundary(room)]);
            }
        }
        EventBody::StepFinished { step, attempt, ok, result, duration_ms, log_from, log_to } => {
            history.push(json!({
                "step": step, "attempt": attempt, "action": spec.work.steps().get(*step as usize - 1), "ok": ok,
                "result": result, "output": std::mem::take(output), "log_from": log_from, "log_to": log_to,
                "duration_ms": duration_ms, "time_ms": event.time_ms,
            }));
        }
        EventBody::ExecFinished { .. } | EventBody::SandboxLost { .. } | EventBody::FileChanged { .. } => {
            history.extend(serde_json::to_value(event).ok());
        }
        _ => {}
    }
}

fn pretty(value: &impl serde::Serialize) -> Result<Vec<u8>, ScribeError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(io::Error::from)?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[derive(Debug, thiserror::Error)]
enum ScribeError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    File(#[from] cofferdam_linux::files::FileError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
