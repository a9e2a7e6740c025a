//! How jobs enter: their first row and event, idempotency keys, and the bound of the queue.

use cofferdam_protocol::event::{Event, EventBody};
use cofferdam_protocol::job::JobState;

use super::{Open, Subject, file_changed, id, new_job, new_row};
use crate::{Created, Idempotency, NewJob, QueuedJob, StoreError};

pub(super) async fn run(open: Open<'_>) {
    a_new_job_is_scheduled_with_one_event(open).await;
    the_specification_is_kept_whole(open).await;
    what_is_not_there_is_not_found(open).await;
    the_queue_is_bounded(open).await;
    a_key_answers_with_the_first_job(open).await;
    a_key_for_another_request_is_refused(open).await;
    keys_of_tenants_are_apart(open).await;
    one_of_many_with_the_same_key_is_new(open).await;
}

async fn a_new_job_is_scheduled_with_one_event(open: Open<'_>) {
    let subject = Subject::new(open);
    let created = subject.store.create(new_job(1)).await;
    assert_eq!(created, Ok(Created { job: new_row(1), is_new: true }));
    assert_eq!(subject.store.job(&id(1)).await, Ok(new_row(1)));
    let event = Event { seq: 1, time_ms: 500, body: EventBody::Scheduled };
    assert_eq!(subject.store.events(&id(1), 0, 10).await, Ok(vec![event.clone()]));
    assert_eq!(subject.told(), [(new_row(1), vec![event])]);
    let limits = new_job(1).spec.limits;
    let queued = QueuedJob {
        id: id(1),
        tenant: "acme".to_owned(),
        cpu_milli: limits.cpu_milli,
        memory_bytes: limits.memory_bytes,
    };
    assert_eq!(subject.store.queued().await, Ok(vec![queued]));
}

async fn the_specification_is_kept_whole(open: Open<'_>) {
    let subject = Subject::new(open);
    let mut new = new_job(1);
    new.spec.labels = [("team".to_owned(), "ü \"quoted\" \u{0}".to_owned())].into();
    new.spec.env.insert("LARGE".to_owned(), "x".repeat(1 << 20));
    let job = subject.store.create(new.clone()).await.expect("a new job").job;
    assert_eq!(subject.store.spec(&id(1)).await, Ok(new.spec.clone()));
    assert_eq!(job.labels, new.spec.labels);
    assert_eq!(subject.store.job(&id(1)).await, Ok(job));
}

async fn what_is_not_there_is_not_found(open: Open<'_>) {
    let subject = Subject::new(open);
    let store = &subject.store;
    let missing = StoreError::NotFound(id(1));
    let lease = super::lease("one", 1, 2);
    assert_eq!(store.job(&id(1)).await, Err(missing.clone()));
    assert_eq!(store.spec(&id(1)).await, Err(missing.clone()));
    assert_eq!(store.events(&id(1), 0, 1).await, Err(missing.clone()));
    assert_eq!(store.claim(&id(1), &lease, vec![], Default::default()).await, Err(missing.clone()));
    assert_eq!(store.take_over(&id(1), &lease, "why", true).await, Err(missing.clone()));
    assert_eq!(store.append(&id(1), 0, 1, vec![], Default::default()).await, Err(missing.clone()));
    assert_eq!(store.note(&id(1), 1, vec![file_changed("a")]).await, Err(missing.clone()));
    assert_eq!(store.cancel(&id(1), 1, "why").await, Err(missing.clone()));
    assert_eq!(store.delete(&id(1)).await, Err(missing.clone()));
    assert_eq!(store.purge(&id(1)).await, Err(missing));
    assert_eq!(subject.told(), []);
}

async fn the_queue_is_bounded(open: Open<'_>) {
    let subject = Subject::new(open);
    let bounded = |number| NewJob { queue_max: 2, ..new_job(number) };
    subject.store.create(NewJob { tenant: "other".to_owned(), ..bounded(1) }).await.expect("the first");
    subject.store.create(bounded(2)).await.expect("the second");
    let full = StoreError::QueueFull { waiting: 2 };
    assert_eq!(subject.store.create(bounded(3)).await, Err(full));
    assert_eq!(subject.store.job(&id(3)).await, Err(StoreError::NotFound(id(3))));
    assert_eq!(subject.store.counts().await.expect("counts")[&JobState::Scheduled], 2);
    // Only those that wait are counted.
    subject.store.claim(&id(1), &super::lease("one", 1, 2), vec![], Default::default()).await.expect("claimed");
    subject.store.create(bounded(3)).await.expect("the third");
    assert_eq!(subject.store.create(bounded(4)).await, Err(StoreError::QueueFull { waiting: 2 }));
}

fn with_key(number: u64, fingerprint: &str) -> NewJob {
    let idempotency = Idempotency { key: "k".to_owned(), fingerprint: fingerprint.to_owned() };
    NewJob { idempotency: Some(idempotency), ..new_job(number) }
}

async fn a_key_answers_with_the_first_job(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.store.create(with_key(1, "f")).await.expect("the first");
    let ended = subject.store.cancel(&id(1), 600, "why").await.expect("cancelled");
    subject.told();
    // As it is now, whatever has become of it, and even when the queue is full.
    let again = subject.store.create(NewJob { queue_max: 0, ..with_key(2, "f") }).await;
    assert_eq!(again, Ok(Created { job: ended, is_new: false }));
    assert_eq!(subject.store.job(&id(2)).await, Err(StoreError::NotFound(id(2))));
    assert_eq!(subject.told(), []);
}

async fn a_key_for_another_request_is_refused(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.store.create(with_key(1, "f")).await.expect("the first");
    let reused = StoreError::KeyReused { key: "k".to_owned(), id: id(1) };
    subject.refuses(&new_row(1), subject.store.create(with_key(2, "g")), reused).await;
}

async fn keys_of_tenants_are_apart(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.store.create(with_key(1, "f")).await.expect("the first");
    let others = NewJob { tenant: "other".to_owned(), ..with_key(2, "g") };
    assert!(subject.store.create(others).await.expect("the other's").is_new);
}

async fn one_of_many_with_the_same_key_is_new(open: Open<'_>) {
    let subject = Subject::new(open);
    let mut requests = tokio::task::JoinSet::new();
    for number in 1..=20 {
        let store = subject.store.clone();
        requests.spawn(async move { store.create(with_key(number, "f")).await.expect("an answer") });
    }
    let answers = requests.join_all().await;
    assert_eq!(answers.iter().filter(|created| created.is_new).count(), 1);
    assert!(answers.iter().all(|created| created.job == answers[0].job));
    assert_eq!(subject.store.counts().await.expect("counts")[&JobState::Scheduled], 1);
}
