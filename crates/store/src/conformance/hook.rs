//! The hook: after the change is there for every reader, before its answer, and in the order of the changes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc;

use cofferdam_protocol::event::Event;
use cofferdam_protocol::job::JobId;

use super::{Open, Subject, file_changed, id, new_job, new_row};
use crate::{Job, JobChange};

pub(super) async fn run(open: Open<'_>) {
    an_answer_waits_for_the_hook(open).await;
    each_job_is_told_in_order(open).await;
}

async fn an_answer_waits_for_the_hook(open: Open<'_>) {
    let (entered, mut is_entered) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let store = open(Box::new(move |job: &Job, _: &[Event]| {
        let _ = entered.send(job.clone());
        let _ = released.lock().expect("one caller").recv();
    }));
    let creating = tokio::spawn({
        let store = store.clone();
        async move { store.create(new_job(1)).await }
    });
    assert_eq!(is_entered.recv().await, Some(new_row(1)));
    assert_eq!(store.job(&id(1)).await, Ok(new_row(1)));
    assert!(!creating.is_finished());
    release.send(()).expect("the hook waits");
    assert_eq!(creating.await.expect("an answer").map(|created| created.job), Ok(new_row(1)));
}

async fn each_job_is_told_in_order(open: Open<'_>) {
    const JOBS: u64 = 8;
    const EACH: u64 = 20;
    let subject = Subject::new(open);
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..JOBS {
        subject.running(number).await;
        for _ in 0..2 {
            let (store, told) = (subject.store.clone(), subject.told.clone());
            writers.spawn(async move {
                for _ in 0..EACH {
                    let more = vec![file_changed("a")];
                    let answer = store.append(&id(number), 1, 1_100, more, JobChange::default()).await;
                    let job = answer.expect("appended");
                    let told = told.lock().expect("no panic");
                    assert!(told.iter().any(|(row, _)| *row == job), "told before it is answered");
                }
            });
        }
    }
    writers.join_all().await;
    let mut last: BTreeMap<JobId, u64> = BTreeMap::new();
    for (job, events) in subject.told() {
        let last = last.entry(job.id.clone()).or_default();
        assert!(events.iter().map(|event| event.seq).eq(*last + 1..=job.last_seq), "{job:?} after {last}");
        *last = job.last_seq;
    }
    assert_eq!(last, (0..JOBS).map(|number| (id(number), 2 + 2 * EACH)).collect());
}
