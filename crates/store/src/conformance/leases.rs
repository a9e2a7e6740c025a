//! Whose a job is: changes of hands, and who is kept out after one.

use cofferdam_protocol::event::{Event, EventBody};
use cofferdam_protocol::job::JobState;

use super::{Open, Subject, file_changed, id, lease, wrong_state};
use crate::{Job, JobChange, StoreError};

pub(super) async fn run(open: Open<'_>) {
    a_lease_that_runs_keeps_others_out(open).await;
    a_lease_that_has_run_out_does_not(open).await;
    a_dead_owner_does_not(open).await;
    an_owner_takes_back_its_own(open).await;
    only_a_running_job_changes_hands(open).await;
    the_former_owner_is_fenced(open).await;
    renewing_extends_what_the_owner_runs(open).await;
    renewing_never_shortens(open).await;
}

async fn a_lease_that_runs_keeps_others_out(open: Open<'_>) {
    let subject = Subject::new(open);
    let job = subject.running(1).await;
    let early = lease("two", 1_999, 3_000);
    subject.refuses(&job, subject.store.take_over(&id(1), &early, "why", false), StoreError::Fenced(id(1))).await;
}

async fn a_lease_that_has_run_out_does_not(open: Open<'_>) {
    let subject = Subject::new(open);
    let job = subject.running(1).await;
    subject.told();
    let taken = subject.store.take_over(&id(1), &lease("two", 2_000, 3_000), "one is silent", false).await;
    let expected = Job {
        generation: 2,
        owner: Some("two".to_owned()),
        lease_until_ms: Some(3_000),
        last_seq: job.last_seq + 1,
        ..job
    };
    assert_eq!(taken.as_ref(), Ok(&expected));
    assert_eq!(subject.store.job(&id(1)).await.as_ref(), Ok(&expected));
    let resumed = EventBody::Resumed { reason: "one is silent".to_owned() };
    let events = vec![Event { seq: 3, time_ms: 2_000, body: resumed }];
    assert_eq!(subject.store.events(&id(1), 2, 10).await.as_ref(), Ok(&events));
    assert_eq!(subject.told(), [(expected, events)]);
}

async fn a_dead_owner_does_not(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.running(1).await;
    let taken = subject.store.take_over(&id(1), &lease("two", 1_001, 3_000), "one is dead", true).await;
    assert_eq!(taken.expect("taken").owner.as_deref(), Some("two"));
}

async fn an_owner_takes_back_its_own(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.running(1).await;
    let taken = subject.store.take_over(&id(1), &lease("one", 1_001, 3_000), "restarted", false).await;
    assert_eq!(taken.expect("taken").generation, 2);
}

async fn only_a_running_job_changes_hands(open: Open<'_>) {
    let subject = Subject::new(open);
    let mut jobs = vec![subject.scheduled(1).await];
    for (number, state) in [(2, JobState::Completed), (3, JobState::Failed), (4, JobState::Cancelled)] {
        jobs.push(subject.ended(number, state).await);
    }
    for job in jobs {
        let late = lease("two", 9_000, 10_000);
        let taking = subject.store.take_over(&job.id, &late, "why", true);
        subject.refuses(&job, taking, wrong_state(&job.id, job.state)).await;
    }
}

async fn the_former_owner_is_fenced(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.running(1).await;
    let two = subject.store.take_over(&id(1), &lease("two", 2_000, 3_000), "why", false).await.expect("taken");
    let append = |generation| {
        let change = JobChange { state: Some(JobState::Completed), ..JobChange::default() };
        subject.store.append(&two.id, generation, 2_500, vec![file_changed("a")], change)
    };
    subject.refuses(&two, append(1), StoreError::Fenced(id(1))).await;
    let ended = append(2).await.expect("the owner's");
    // Once it has ended, that is the reason, for both.
    subject.refuses(&ended, append(1), wrong_state(&id(1), JobState::Completed)).await;
    subject.refuses(&ended, append(2), wrong_state(&id(1), JobState::Completed)).await;
}

async fn renewing_extends_what_the_owner_runs(open: Open<'_>) {
    let subject = Subject::new(open);
    let (first, second) = (subject.running(1).await, subject.running(2).await);
    let scheduled = subject.scheduled(3).await;
    let ended = subject.ended(4, JobState::Completed).await;
    subject.running(5).await;
    let others = subject.store.take_over(&id(5), &lease("two", 2_000, 3_000), "why", false).await.expect("taken");
    subject.told();
    assert_eq!(subject.store.renew("one", 5_000).await, Ok(2));
    let renewed = [first, second].map(|job| Job { lease_until_ms: Some(5_000), ..job });
    let mut told = subject.told();
    told.sort_by(|one, other| one.0.id.cmp(&other.0.id));
    assert_eq!(told, renewed.clone().map(|job| (job, vec![])));
    for job in renewed.into_iter().chain([scheduled, ended, others]) {
        assert_eq!(subject.store.job(&job.id).await, Ok(job));
    }
    assert_eq!(subject.store.renew("nobody", 9_000).await, Ok(0));
}

async fn renewing_never_shortens(open: Open<'_>) {
    let subject = Subject::new(open);
    let job = subject.running(1).await;
    subject.told();
    assert_eq!(subject.store.renew("one", 1_500).await, Ok(1));
    assert_eq!(subject.store.job(&id(1)).await, Ok(job));
    assert_eq!(subject.told(), []);
}
