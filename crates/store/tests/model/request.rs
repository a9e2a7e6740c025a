//! The requests of a random history, and how the real store is asked.

use cofferdam_protocol::event::{EventBody, FileAction};
use cofferdam_protocol::job::{JobId, JobState};
use cofferdam_store::conformance::{id, new_job};
use cofferdam_store::{Idempotency, Job, JobChange, Lease, NewJob, SqliteStore, Store, StoreError};
use proptest::prelude::*;

use crate::model::Model;

/// A job is named by a number below [`JOBS`]; those that have not been created yet are asked for as well.
const JOBS: u64 = 6;

#[derive(Debug, Clone)]
pub enum Request {
    Create {
        tenant: u8,
        label: u8,
        key: Option<(u8, u8)>,
        queue_max: u64,
    },
    Claim {
        job: u64,
        owner: u8,
        lease_ms: u64,
        events: usize,
        change: JobChange,
    },
    TakeOver {
        job: u64,
        owner: u8,
        lease_ms: u64,
        is_owner_dead: bool,
    },
    /// `behind`: how many generations ago the writer was the owner.
    Append {
        job: u64,
        behind: u64,
        events: usize,
        change: JobChange,
    },
    Note {
        job: u64,
        events: usize,
    },
    Cancel {
        job: u64,
    },
    Renew {
        owner: u8,
        lease_ms: u64,
    },
    Delete {
        job: u64,
    },
    Purge {
        job: u64,
    },
    SetMirrored {
        job: u64,
    },
}

/// Whatever the store answers, in one type.
#[derive(Debug, PartialEq)]
pub enum Answer {
    Created(Job, bool),
    Job(Job),
    Count(u64),
    Done,
    Refused(StoreError),
}

impl Answer {
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        match self {
            Self::Created(job, _) | Self::Job(job) => Some(job),
            Self::Count(_) | Self::Done | Self::Refused(_) => None,
        }
        .into_iter()
    }
}

pub fn any() -> impl Strategy<Value = Request> {
    let key = prop::option::weighted(0.3, (0..2_u8, 0..2_u8));
    let (lease, owner, job, events) = (0..12_u64, 0..2_u8, 0..JOBS, 0..4_usize);
    let behind = prop_oneof![8 => Just(0), 1 => 1..3_u64];
    prop_oneof![
        6 => (0..2_u8, 0..2_u8, key, 3..8_u64)
            .prop_map(|(tenant, label, key, queue_max)| Request::Create { tenant, label, key, queue_max }),
        6 => (job.clone(), owner.clone(), lease.clone(), events.clone(), change(1)).prop_map(
            |(job, owner, lease_ms, events, change)| Request::Claim { job, owner, lease_ms, events, change }
        ),
        3 => (job.clone(), owner.clone(), lease.clone(), prop::bool::weighted(0.2)).prop_map(
            |(job, owner, lease_ms, is_owner_dead)| Request::TakeOver { job, owner, lease_ms, is_owner_dead }
        ),
        8 => (job.clone(), behind, events.clone(), change(6))
            .prop_map(|(job, behind, events, change)| Request::Append { job, behind, events, change }),
        2 => (job.clone(), events).prop_map(|(job, events)| Request::Note { job, events }),
        2 => job.clone().prop_map(|job| Request::Cancel { job }),
        2 => (owner, lease).prop_map(|(owner, lease_ms)| Request::Renew { owner, lease_ms }),
        3 => job.clone().prop_map(|job| Request::Delete { job }),
        2 => job.clone().prop_map(|job| Request::Purge { job }),
        2 => job.prop_map(|job| Request::SetMirrored { job }),
    ]
}

/// `end_weight`: how often it ends the job, against 20 times that it does not.
fn change(end_weight: u32) -> impl Strategy<Value = JobChange> {
    let state = prop_oneof![
        18 => Just(None),
        1 => Just(Some(JobState::Running)),
        1 => Just(Some(JobState::Scheduled)),
        end_weight => prop::sample::select(&JobState::ALL[2..]).prop_map(Some),
    ];
    let sandbox = prop::option::of(prop::option::of(Just("sandbox".to_owned())));
    (state, prop::option::of(Just("because".to_owned())), prop::option::of(0..9_u32), sandbox)
        .prop_map(|(state, reason, steps_done, sandbox)| JobChange { state, reason, steps_done, sandbox })
}

impl Request {
    pub async fn ask(&self, store: &SqliteStore, model: &Model, now_ms: u64) -> Answer {
        let job = |answer: Result<Job, StoreError>| answer.map_or_else(Answer::Refused, Answer::Job);
        let done = |answer: Result<(), StoreError>| answer.map_or_else(Answer::Refused, |()| Answer::Done);
        match self.clone() {
            Self::Create { tenant, label, key, queue_max } => {
                let new = new(model.next_id(), tenant, label, key, queue_max, now_ms);
                let created = store.create(new).await;
                created.map_or_else(Answer::Refused, |created| Answer::Created(created.job, created.is_new))
            }
            Self::Claim { job: number, owner, lease_ms, events, change } => {
                job(store.claim(&id(number), &lease(owner, now_ms, lease_ms), bodies(events), change).await)
            }
            Self::TakeOver { job: number, owner, lease_ms, is_owner_dead } => {
                let lease = lease(owner, now_ms, lease_ms);
                job(store.take_over(&id(number), &lease, "taken", is_owner_dead).await)
            }
            Self::Append { job: number, behind, events, change } => {
                let generation = model.generation(&id(number)).saturating_sub(behind);
                job(store.append(&id(number), generation, now_ms, bodies(events), change).await)
            }
            Self::Note { job: number, events } => job(store.note(&id(number), now_ms, bodies(events)).await),
            Self::Cancel { job: number } => job(store.cancel(&id(number), now_ms, "cancelled").await),
            Self::Renew { owner, lease_ms } => {
                let renewed = store.renew(&owner_name(owner), now_ms + lease_ms).await;
                renewed.map_or_else(Answer::Refused, Answer::Count)
            }
            Self::Delete { job } => done(store.delete(&id(job)).await),
            Self::Purge { job } => done(store.purge(&id(job)).await),
            Self::SetMirrored { job } => {
                let last_seq = store.job(&id(job)).await.map_or(0, |job| job.last_seq);
                done(store.set_mirrored(&id(job), last_seq).await)
            }
        }
    }
}

pub fn new(id: JobId, tenant: u8, label: u8, key: Option<(u8, u8)>, queue_max: u64, now_ms: u64) -> NewJob {
    let idempotency = key.map(|(key, print)| Idempotency { key: key.to_string(), fingerprint: print.to_string() });
    let mut new = NewJob { id, tenant: format!("tenant {tenant}"), now_ms, idempotency, queue_max, ..new_job(0) };
    new.spec.labels.insert("label".to_owned(), label.to_string());
    new.kind = if label == 0 { "goal".to_owned() } else { new.kind };
    new
}

pub fn lease(owner: u8, now_ms: u64, lease_ms: u64) -> Lease {
    Lease { owner: owner_name(owner), now_ms, until_ms: now_ms + lease_ms }
}

pub fn owner_name(owner: u8) -> String {
    format!("owner {owner}")
}

pub fn bodies(count: usize) -> Vec<EventBody> {
    (0..count).map(|number| EventBody::FileChanged { path: number.to_string(), action: FileAction::Written }).collect()
}
