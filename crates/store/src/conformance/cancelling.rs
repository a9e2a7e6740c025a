//! Cancelling, in every state that a job can be in.

use cofferdam_protocol::event::{Event, EventBody};
use cofferdam_protocol::job::JobState;

use super::{Open, Subject, id, new_row, wrong_state};
use crate::{Job, JobChange};

pub(super) async fn run(open: Open<'_>) {
    a_scheduled_job_is_cancelled_at_once(open).await;
    a_running_job_is_marked(open).await;
    a_job_that_ended_otherwise_stays_as_it_is(open).await;
}

async fn a_scheduled_job_is_cancelled_at_once(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.scheduled(1).await;
    subject.told();
    let cancelled = subject.store.cancel(&id(1), 700, "not needed").await;
    let expected = Job {
        state: JobState::Cancelled,
        reason: Some("not needed".to_owned()),
        ended_ms: Some(700),
        cancel_requested: true,
        last_seq: 3,
        ..new_row(1)
    };
    assert_eq!(cancelled.as_ref(), Ok(&expected));
    let ended = EventBody::Ended { state: JobState::Cancelled, reason: Some("not needed".to_owned()) };
    let events = vec![
        Event { seq: 2, time_ms: 700, body: EventBody::CancelRequested },
        Event { seq: 3, time_ms: 700, body: ended },
    ];
    assert_eq!(subject.store.events(&id(1), 1, 10).await.as_ref(), Ok(&events));
    assert_eq!(subject.told(), [(expected.clone(), events)]);
    assert_eq!(subject.store.queued().await, Ok(vec![]));

    assert_eq!(subject.store.cancel(&id(1), 800, "again").await.as_ref(), Ok(&expected));
    assert_eq!(subject.store.job(&id(1)).await, Ok(expected));
    assert_eq!(subject.told(), []);
}

async fn a_running_job_is_marked(open: Open<'_>) {
    let subject = Subject::new(open);
    let job = subject.running(1).await;
    subject.told();
    let marked = subject.store.cancel(&id(1), 1_100, "not needed").await;
    let expected =
        Job { reason: Some("not needed".to_owned()), cancel_requested: true, last_seq: job.last_seq + 1, ..job };
    assert_eq!(marked.as_ref(), Ok(&expected));
    let events = vec![Event { seq: 3, time_ms: 1_100, body: EventBody::CancelRequested }];
    assert_eq!(subject.store.events(&id(1), 2, 10).await.as_ref(), Ok(&events));
    assert_eq!(subject.told(), [(expected.clone(), events)]);

    assert_eq!(subject.store.cancel(&id(1), 1_200, "again").await.as_ref(), Ok(&expected));
    assert_eq!(subject.told(), []);

    // Its owner sees to it; asking once more is then no mistake either.
    let change = JobChange { state: Some(JobState::Cancelled), ..JobChange::default() };
    let ended = subject.store.append(&id(1), 1, 1_300, vec![], change).await.expect("ended");
    assert_eq!(subject.store.cancel(&id(1), 1_400, "again").await, Ok(ended));
}

async fn a_job_that_ended_otherwise_stays_as_it_is(open: Open<'_>) {
    let subject = Subject::new(open);
    for (number, state) in [(1, JobState::Completed), (2, JobState::Failed)] {
        let job = subject.ended(number, state).await;
        subject.refuses(&job, subject.store.cancel(&job.id, 1_600, "late"), wrong_state(&job.id, state)).await;
    }
}
