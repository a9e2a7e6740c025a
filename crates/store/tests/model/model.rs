//! The store as a list in memory: what a reader of the documentation would expect, written down once more without
//! any thought of databases.

use std::collections::BTreeMap;

use cofferdam_protocol::event::{Event, EventBody};
use cofferdam_protocol::job::{JobId, JobSpec, JobState};
use cofferdam_store::conformance::id;
use cofferdam_store::{Idempotency, Job, JobChange, Lease, ListQuery, NewJob, QueuedJob, StoreError};

use crate::request::{self, Answer, Request, bodies, lease, owner_name};

#[derive(Debug, Default)]
pub struct Model {
    jobs: BTreeMap<JobId, Entry>,
    /// Numbers of ids that have been given out.
    created: u64,
    told: Vec<(Job, Vec<Event>)>,
}

#[derive(Debug)]
struct Entry {
    job: Job,
    spec: JobSpec,
    events: Vec<Event>,
    idempotency: Option<Idempotency>,
    is_deleted: bool,
}

impl Model {
    pub fn answer(&mut self, request: &Request, now_ms: u64) -> Answer {
        let job = |answer: Result<Job, StoreError>| answer.map_or_else(Answer::Refused, Answer::Job);
        match request.clone() {
            Request::Create { tenant, label, key, queue_max } => {
                self.create(request::new(self.next_id(), tenant, label, key, queue_max, now_ms))
            }
            Request::Claim { job: number, owner, lease_ms, events, change } => job(self.change(&id(number), |job| {
                only_in(job, &[JobState::Scheduled])?;
                job.state = JobState::Running;
                job.started_ms = Some(now_ms);
                hand_to(job, lease(owner, now_ms, lease_ms));
                apply(job, change, now_ms)?;
                let events = [EventBody::Started].into_iter().chain(bodies(events));
                Ok((now_ms, events.collect()))
            })),
            Request::TakeOver { job: number, owner, lease_ms, is_owner_dead } => job(self.change(&id(number), |job| {
                only_in(job, &[JobState::Running])?;
                let may = is_owner_dead || job.owner == Some(owner_name(owner)) || job.lease_until_ms <= Some(now_ms);
                if !may {
                    return Err(StoreError::Fenced(job.id.clone()));
                }
                hand_to(job, lease(owner, now_ms, lease_ms));
                Ok((now_ms, vec![EventBody::Resumed { reason: "taken".to_owned() }]))
            })),
            Request::Append { job: number, behind, events, change } => job(self.change(&id(number), |job| {
                only_in(job, &[JobState::Running])?;
                if behind > 0 {
                    return Err(StoreError::Fenced(job.id.clone()));
                }
                apply(job, change, now_ms)?;
                Ok((now_ms, bodies(events)))
            })),
            Request::Note { job: number, events } => job(self.change(&id(number), |job| {
                job.is_mirrored = false;
                Ok((now_ms, bodies(events)))
            })),
            Request::Cancel { job: number } => job(self.change(&id(number), |job| {
                only_in(job, &[JobState::Scheduled, JobState::Running, JobState::Cancelled])?;
                if job.cancel_requested || job.state == JobState::Cancelled {
                    return Ok((now_ms, vec![]));
                }
                let mut events = vec![EventBody::CancelRequested];
                job.cancel_requested = true;
                job.reason = Some("cancelled".to_owned());
                if job.state == JobState::Scheduled {
                    job.state = JobState::Cancelled;
                    job.ended_ms = Some(now_ms);
                    events.push(EventBody::Ended { state: job.state, reason: job.reason.clone() });
                }
                Ok((now_ms, events))
            })),
            Request::Renew { owner, lease_ms } => Answer::Count(self.renew(&owner_name(owner), now_ms + lease_ms)),
            Request::Delete { job: number } => match self.found(&id(number)) {
                Err(error) => Answer::Refused(error),
                Ok(entry) if !entry.job.state.is_final() => Answer::Refused(wrong_state(&entry.job)),
                Ok(entry) => {
                    entry.is_deleted = true;
                    Answer::Done
                }
            },
            Request::Purge { job: number } => match self.jobs.get(&id(number)) {
                None => Answer::Refused(StoreError::NotFound(id(number))),
                Some(entry) if !entry.is_deleted => Answer::Refused(wrong_state(&entry.job)),
                Some(_) => {
                    self.jobs.remove(&id(number));
                    Answer::Done
                }
            },
            Request::SetMirrored { job: number } => {
                if let Ok(entry) = self.found(&id(number))
                    && entry.job.state.is_final()
                {
                    entry.job.is_mirrored = true;
                }
                Answer::Done
            }
        }
    }

    fn create(&mut self, new: NewJob) -> Answer {
        let same_key = |entry: &&Entry| {
            let keys = (&entry.idempotency, &new.idempotency);
            matches!(keys, (Some(one), Some(other)) if one.key == other.key) && entry.job.tenant == new.tenant
        };
        if let Some(entry) = self.jobs.values().find(same_key) {
            if entry.idempotency == new.idempotency && !entry.is_deleted {
                return Answer::Created(entry.job.clone(), false);
            }
            let key = new.idempotency.unwrap().key;
            return Answer::Refused(StoreError::KeyReused { key, id: entry.job.id.clone() });
        }
        let waiting = self.queued().len() as u64;
        if waiting >= new.queue_max {
            return Answer::Refused(StoreError::QueueFull { waiting });
        }
        let job = Job {
            id: new.id.clone(),
            tenant: new.tenant,
            state: JobState::Scheduled,
            reason: None,
            title: new.title,
            kind: new.kind,
            labels: new.spec.labels.clone(),
            created_ms: new.now_ms,
            started_ms: None,
            ended_ms: None,
            steps_total: new.spec.work.steps().len() as u32,
            steps_done: 0,
            sandbox: None,
            cancel_requested: false,
            generation: 0,
            owner: None,
            lease_until_ms: None,
            last_seq: 1,
            is_mirrored: false,
        };
        let events = vec![Event { seq: 1, time_ms: new.now_ms, body: EventBody::Scheduled }];
        self.told.push((job.clone(), events.clone()));
        let entry = Entry { job: job.clone(), spec: new.spec, events, idempotency: new.idempotency, is_deleted: false };
        self.jobs.insert(new.id, entry);
        self.created += 1;
        Answer::Created(job, true)
    }

    fn change(
        &mut self,
        id: &JobId,
        change: impl FnOnce(&mut Job) -> Result<(u64, Vec<EventBody>), StoreError>,
    ) -> Result<Job, StoreError> {
        let entry = self.found(id)?;
        let mut job = entry.job.clone();
        let (time_ms, bodies) = change(&mut job)?;
        let events: Vec<Event> =
            (job.last_seq + 1..).zip(bodies).map(|(seq, body)| Event { seq, time_ms, body }).collect();
        job.last_seq += events.len() as u64;
        if job != entry.job {
            entry.job = job.clone();
            entry.events.extend(events.clone());
            self.told.push((job.clone(), events));
        }
        Ok(job)
    }

    fn renew(&mut self, owner: &str, until_ms: u64) -> u64 {
        let mut count = 0;
        for entry in self.jobs.values_mut().filter(|entry| entry.job.owner.as_deref() == Some(owner)) {
            count += 1;
            if entry.job.lease_until_ms < Some(until_ms) {
                entry.job.lease_until_ms = Some(until_ms);
                self.told.push((entry.job.clone(), vec![]));
            }
        }
        count
    }

    fn found(&mut self, id: &JobId) -> Result<&mut Entry, StoreError> {
        let entry = self.jobs.get_mut(id).filter(|entry| !entry.is_deleted);
        entry.ok_or_else(|| StoreError::NotFound(id.clone()))
    }

    /// Marks as mirrored may show late, but never where nobody made them.
    pub fn forgive_late_marks<'j>(&self, jobs: impl IntoIterator<Item = &'j mut Job>) {
        for job in jobs {
            job.is_mirrored |= self.jobs.get(&job.id).is_some_and(|entry| entry.job.is_mirrored);
        }
    }

    pub fn take_told(&mut self) -> Vec<(Job, Vec<Event>)> {
        std::mem::take(&mut self.told)
    }

    pub fn created(&self) -> u64 {
        self.created
    }

    pub fn next_id(&self) -> JobId {
        id(self.created)
    }

    pub fn generation(&self, id: &JobId) -> u64 {
        self.jobs.get(id).map_or(0, |entry| entry.job.generation)
    }

    fn entry(&self, id: &JobId) -> Result<&Entry, StoreError> {
        let entry = self.jobs.get(id).filter(|entry| !entry.is_deleted);
        entry.ok_or_else(|| StoreError::NotFound(id.clone()))
    }

    /// In the order of their ids.
    fn present(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.jobs.values().filter(|entry| !entry.is_deleted).map(|entry| &entry.job)
    }

    pub fn job(&self, id: &JobId) -> Result<Job, StoreError> {
        Ok(self.entry(id)?.job.clone())
    }

    pub fn spec(&self, id: &JobId) -> Result<JobSpec, StoreError> {
        Ok(self.entry(id)?.spec.clone())
    }

    pub fn events(&self, id: &JobId, after: u64, limit: usize) -> Result<Vec<Event>, StoreError> {
        let events = self.entry(id)?.events.iter().filter(|event| event.seq > after);
        Ok(events.take(limit).cloned().collect())
    }

    pub fn last_event(&self, id: &JobId, kind: &str) -> Result<Option<Event>, StoreError> {
        Ok(self.entry(id)?.events.iter().rfind(|event| event.body.kind() == kind).cloned())
    }

    pub fn list(&self, query: &ListQuery) -> Vec<Job> {
        let fits = |job: &&Job| {
            job.tenant == query.tenant
                && (query.states.is_empty() || query.states.contains(&job.state))
                && query.kind.as_ref().is_none_or(|kind| *kind == job.kind)
                && query.labels.iter().all(|(name, value)| job.labels.get(name) == Some(value))
                && query.before.as_ref().is_none_or(|before| job.id < *before)
        };
        self.present().rev().filter(fits).take(query.limit).cloned().collect()
    }

    pub fn queued(&self) -> Vec<QueuedJob> {
        let scheduled = self.jobs.values().filter(|entry| entry.job.state == JobState::Scheduled);
        scheduled
            .map(|Entry { job, spec, .. }| QueuedJob {
                id: job.id.clone(),
                tenant: job.tenant.clone(),
                cpu_milli: spec.limits.cpu_milli,
                memory_bytes: spec.limits.memory_bytes,
            })
            .collect()
    }

    pub fn running(&self) -> Vec<Job> {
        self.present().filter(|job| job.state == JobState::Running).cloned().collect()
    }

    pub fn counts(&self) -> BTreeMap<JobState, u64> {
        let mut counts: BTreeMap<JobState, u64> = JobState::ALL.map(|state| (state, 0)).into();
        self.present().for_each(|job| *counts.entry(job.state).or_default() += 1);
        counts
    }

    pub fn deleted(&self) -> Vec<JobId> {
        self.jobs.iter().filter(|(_, entry)| entry.is_deleted).map(|(id, _)| id.clone()).collect()
    }

    pub fn unmirrored(&self) -> Vec<JobId> {
        self.present().filter(|job| job.state.is_final() && !job.is_mirrored).map(|job| job.id.clone()).collect()
    }
}

fn only_in(job: &Job, states: &[JobState]) -> Result<(), StoreError> {
    if states.contains(&job.state) { Ok(()) } else { Err(wrong_state(job)) }
}

fn wrong_state(job: &Job) -> StoreError {
    StoreError::State { id: job.id.clone(), state: job.state }
}

fn hand_to(job: &mut Job, lease: Lease) {
    job.generation += 1;
    job.owner = Some(lease.owner);
    job.lease_until_ms = Some(lease.until_ms);
}

fn apply(job: &mut Job, change: JobChange, now_ms: u64) -> Result<(), StoreError> {
    if change.state == Some(JobState::Scheduled) {
        return Err(wrong_state(job));
    }
    job.state = change.state.unwrap_or(job.state);
    if change.reason.is_some() || change.state.is_some_and(JobState::is_final) {
        job.reason = change.reason;
    }
    job.steps_done = change.steps_done.unwrap_or(job.steps_done);
    job.sandbox = change.sandbox.unwrap_or(job.sandbox.take());
    if job.state.is_final() {
        job.ended_ms = Some(now_ms);
        (job.owner, job.lease_until_ms, job.sandbox) = (None, None, None);
    }
    Ok(())
}
