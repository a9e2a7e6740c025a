//! The two steps of forgetting a job, and what is left between them.

use cofferdam_protocol::job::JobState;

use super::{Open, Subject, file_changed, id, lease, new_job, wrong_state};
use crate::{Idempotency, JobChange, ListQuery, NewJob, StoreError};

pub(super) async fn run(open: Open<'_>) {
    a_deleted_job_is_not_found(open).await;
    only_a_job_that_has_ended_is_deleted(open).await;
    only_a_deleted_job_is_purged(open).await;
    a_key_is_free_after_the_purge(open).await;
}

async fn a_deleted_job_is_not_found(open: Open<'_>) {
    let subject = Subject::new(open);
    let store = &subject.store;
    let kept = subject.ended(1, JobState::Failed).await;
    for (number, state) in [(2, JobState::Completed), (3, JobState::Failed), (4, JobState::Cancelled)] {
        subject.ended(number, state).await;
        subject.told();
        assert_eq!(store.delete(&id(number)).await, Ok(()));
        assert_eq!(subject.told(), []);
        let missing = StoreError::NotFound(id(number));
        assert_eq!(store.job(&id(number)).await, Err(missing.clone()));
        assert_eq!(store.spec(&id(number)).await, Err(missing.clone()));
        assert_eq!(store.events(&id(number), 0, 1).await, Err(missing.clone()));
        assert_eq!(store.note(&id(number), 1, vec![file_changed("a")]).await, Err(missing.clone()));
        assert_eq!(store.cancel(&id(number), 1, "why").await, Err(missing.clone()));
        let claim = store.claim(&id(number), &lease("one", 1, 2), vec![], JobChange::default()).await;
        assert_eq!(claim, Err(missing.clone()));
        assert_eq!(store.delete(&id(number)).await, Err(missing));
    }
    assert_eq!(store.deleted().await, Ok(vec![id(2), id(3), id(4)]));
    assert_eq!(store.unmirrored().await, Ok(vec![id(1)]));
    let query = ListQuery { tenant: "acme".to_owned(), limit: 10, ..ListQuery::default() };
    assert_eq!(store.list(&query).await, Ok(vec![kept.clone()]));
    let failed = ListQuery { states: vec![JobState::Failed], ..query };
    assert_eq!(store.list(&failed).await, Ok(vec![kept]));
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts[&JobState::Completed], counts[&JobState::Failed], counts[&JobState::Cancelled]), (0, 1, 0));

    assert_eq!(store.purge(&id(3)).await, Ok(()));
    assert_eq!(store.deleted().await, Ok(vec![id(2), id(4)]));
    assert_eq!(store.purge(&id(3)).await, Err(StoreError::NotFound(id(3))));
    assert_eq!(store.counts().await, Ok(counts));
}

async fn only_a_job_that_has_ended_is_deleted(open: Open<'_>) {
    let subject = Subject::new(open);
    for job in [subject.scheduled(1).await, subject.running(2).await] {
        subject.refuses(&job, subject.store.delete(&job.id), wrong_state(&job.id, job.state)).await;
    }
    assert_eq!(subject.store.deleted().await, Ok(vec![]));
}

async fn only_a_deleted_job_is_purged(open: Open<'_>) {
    let subject = Subject::new(open);
    let job = subject.ended(1, JobState::Completed).await;
    subject.refuses(&job, subject.store.purge(&job.id), wrong_state(&job.id, job.state)).await;
}

async fn a_key_is_free_after_the_purge(open: Open<'_>) {
    let subject = Subject::new(open);
    let idempotency = Idempotency { key: "k".to_owned(), fingerprint: "f".to_owned() };
    let with_key = |number| NewJob { idempotency: Some(idempotency.clone()), ..new_job(number) };
    subject.store.create(with_key(1)).await.expect("the first");
    subject.store.cancel(&id(1), 600, "why").await.expect("cancelled");
    subject.store.delete(&id(1)).await.expect("deleted");
    // There is no job to answer with.
    let reused = StoreError::KeyReused { key: "k".to_owned(), id: id(1) };
    assert_eq!(subject.store.create(with_key(2)).await, Err(reused));
    subject.store.purge(&id(1)).await.expect("purged");
    assert!(subject.store.create(with_key(2)).await.expect("the second").is_new);
}
