//! What each request does to a job: the row as it was goes in, the row as it becomes and the new events come out, or
//! the reason of the refusal. The same for every database; reading and writing the rows is theirs.

use cofferdam_protocol::event::{Event, EventBody};
use cofferdam_protocol::job::JobState;

use crate::{Job, JobChange, Lease, NewJob, StoreError};

/// A job after a change, and the events that tell it.
#[derive(Debug, Clone)]
pub(crate) struct Update {
    pub job: Job,
    pub events: Vec<Event>,
}

pub(crate) fn create(new: &NewJob) -> Update {
    let mut update = Update::of(Job {
        id: new.id.clone(),
        tenant: new.tenant.clone(),
        state: JobState::Scheduled,
        reason: None,
        title: new.title.clone(),
        kind: new.kind.clone(),
        labels: new.spec.labels.clone(),
        created_ms: new.now_ms,
        started_ms: None,
        ended_ms: None,
        steps_total: u32::try_from(new.spec.work.steps().len()).unwrap_or(u32::MAX),
        steps_done: 0,
        sandbox: None,
        cancel_requested: false,
        generation: 0,
        owner: None,
        lease_until_ms: None,
        last_seq: 0,
        is_mirrored: false,
    });
    update.add(new.now_ms, [EventBody::Scheduled]);
    update
}

pub(crate) fn claim(job: Job, lease: &Lease, events: Vec<EventBody>, change: JobChange) -> Result<Update, StoreError> {
    if job.state != JobState::Scheduled {
        return Err(refused_by_state(&job));
    }
    let mut update = Update::of(job);
    update.job.state = JobState::Running;
    update.job.started_ms = Some(lease.now_ms);
    update.hand_to(lease);
    update.add(lease.now_ms, [EventBody::Started]);
    update.add(lease.now_ms, events);
    update.change(lease.now_ms, change)?;
    Ok(update)
}

pub(crate) fn take_over(job: Job, lease: &Lease, reason: &str, is_owner_dead: bool) -> Result<Update, StoreError> {
    if job.state != JobState::Running {
        return Err(refused_by_state(&job));
    }
    let is_others = job.owner.as_ref() != Some(&lease.owner);
    let runs = job.lease_until_ms.is_some_and(|until_ms| lease.now_ms < until_ms);
    if is_others && runs && !is_owner_dead {
        return Err(StoreError::Fenced(job.id));
    }
    let mut update = Update::of(job);
    update.hand_to(lease);
    update.add(lease.now_ms, [EventBody::Resumed { reason: reason.to_owned() }]);
    Ok(update)
}

pub(crate) fn append(
    job: Job,
    generation: u64,
    now_ms: u64,
    events: Vec<EventBody>,
    change: JobChange,
) -> Result<Update, StoreError> {
    if job.state != JobState::Running {
        return Err(refused_by_state(&job));
    }
    if job.generation != generation {
        return Err(StoreError::Fenced(job.id));
    }
    let mut update = Update::of(job);
    update.add(now_ms, events);
    update.change(now_ms, change)?;
    Ok(update)
}

pub(crate) fn note(job: Job, now_ms: u64, events: Vec<EventBody>) -> Update {
    let mut update = Update::of(job);
    update.job.is_mirrored = false;
    update.add(now_ms, events);
    update
}

pub(crate) fn cancel(job: Job, now_ms: u64, reason: &str) -> Result<Update, StoreError> {
    let mut update = Update::of(job);
    let reason = Some(reason.to_owned());
    match update.job.state {
        JobState::Completed | JobState::Failed => return Err(refused_by_state(&update.job)),
        JobState::Cancelled => {}
        JobState::Running if update.job.cancel_requested => {}
        JobState::Running => {
            update.job.cancel_requested = true;
            update.job.reason = reason;
            update.add(now_ms, [EventBody::CancelRequested]);
        }
        JobState::Scheduled => {
            update.job.cancel_requested = true;
            let ended = EventBody::Ended { state: JobState::Cancelled, reason: reason.clone() };
            update.add(now_ms, [EventBody::CancelRequested, ended]);
            update.job.reason = reason;
            update.end(now_ms, JobState::Cancelled);
        }
    }
    Ok(update)
}

/// Only what has ended can be deleted: what runs has an owner who writes to it.
pub(crate) fn delete(job: &Job) -> Result<(), StoreError> {
    if job.state.is_final() { Ok(()) } else { Err(refused_by_state(job)) }
}

pub(crate) fn refused_by_state(job: &Job) -> StoreError {
    StoreError::State { id: job.id.clone(), state: job.state }
}

impl Update {
    fn of(job: Job) -> Self {
        Self { job, events: Vec::new() }
    }

    fn hand_to(&mut self, lease: &Lease) {
        self.job.generation += 1;
        self.job.owner = Some(lease.owner.clone());
        self.job.lease_until_ms = Some(lease.until_ms);
    }

    fn add(&mut self, time_ms: u64, bodies: impl IntoIterator<Item = EventBody>) {
        for body in bodies {
            self.job.last_seq += 1;
            self.events.push(Event { seq: self.job.last_seq, time_ms, body });
        }
    }

    /// Of a running job. Nothing leads back to `scheduled`.
    fn change(&mut self, now_ms: u64, change: JobChange) -> Result<(), StoreError> {
        // The end has its own reason or none: a cancellation that came too late is not it.
        if change.reason.is_some() || change.state.is_some_and(JobState::is_final) {
            self.job.reason = change.reason;
        }
        if let Some(steps_done) = change.steps_done {
            self.job.steps_done = steps_done;
        }
        if let Some(sandbox) = change.sandbox {
            self.job.sandbox = sandbox;
        }
        match change.state {
            None | Some(JobState::Running) => {}
            Some(JobState::Scheduled) => return Err(refused_by_state(&self.job)),
            Some(state) => self.end(now_ms, state),
        }
        Ok(())
    }

    fn end(&mut self, now_ms: u64, state: JobState) {
        self.job.state = state;
        self.job.ended_ms = Some(now_ms);
        self.job.owner = None;
        self.job.lease_until_ms = None;
        self.job.sandbox = None;
    }
}
