//! From `scheduled` over `running` to the end: what claiming and appending do to the row, and what they refuse.

use cofferdam_protocol::event::{Event, EventBody};
use cofferdam_protocol::job::JobState;

use super::{Open, Subject, file_changed, id, lease, new_row, wrong_state};
use crate::{Job, JobChange, StoreError};

pub(super) async fn run(open: Open<'_>) {
    claiming_starts_a_job(open).await;
    only_a_scheduled_job_is_claimed(open).await;
    one_of_many_claims_wins(open).await;
    appending_adds_events_and_changes_the_row(open).await;
    appending_nothing_changes_nothing(open).await;
    a_final_state_is_the_last(open).await;
    a_job_may_end_as_it_is_claimed(open).await;
    appending_needs_a_running_job_and_its_generation(open).await;
    nothing_leads_back_to_scheduled(open).await;
    notes_are_taken_in_every_state(open).await;
    mirrored_jobs_leave_the_list_in_the_end(open).await;
}

fn started(number: u64) -> Job {
    Job {
        state: JobState::Running,
        started_ms: Some(1_000),
        generation: 1,
        owner: Some("one".to_owned()),
        lease_until_ms: Some(2_000),
        last_seq: 2,
        ..new_row(number)
    }
}

async fn claiming_starts_a_job(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.scheduled(1).await;
    subject.told();
    let sandbox = EventBody::SandboxStarted { sandbox: "s".to_owned() };
    let change = JobChange { sandbox: Some(Some("s".to_owned())), ..JobChange::default() };
    let claimed = subject.store.claim(&id(1), &lease("one", 1_000, 2_000), vec![sandbox.clone()], change).await;
    let expected = Job { sandbox: Some("s".to_owned()), last_seq: 3, ..started(1) };
    assert_eq!(claimed.as_ref(), Ok(&expected));
    assert_eq!(subject.store.job(&id(1)).await.as_ref(), Ok(&expected));
    let events = vec![
        Event { seq: 2, time_ms: 1_000, body: EventBody::Started },
        Event { seq: 3, time_ms: 1_000, body: sandbox },
    ];
    assert_eq!(subject.store.events(&id(1), 1, 10).await.as_ref(), Ok(&events));
    assert_eq!(subject.told(), [(expected.clone(), events)]);
    assert_eq!(subject.store.running().await, Ok(vec![expected]));
    assert_eq!(subject.store.queued().await, Ok(vec![]));
}

async fn only_a_scheduled_job_is_claimed(open: Open<'_>) {
    let subject = Subject::new(open);
    let mut jobs = vec![subject.running(1).await];
    for (number, state) in [(2, JobState::Completed), (3, JobState::Failed), (4, JobState::Cancelled)] {
        jobs.push(subject.ended(number, state).await);
    }
    for job in jobs {
        let again = lease("one", 3_000, 4_000);
        let claim = subject.store.claim(&job.id, &again, vec![], JobChange::default());
        subject.refuses(&job, claim, wrong_state(&job.id, job.state)).await;
    }
}

async fn one_of_many_claims_wins(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.scheduled(1).await;
    let mut claims = tokio::task::JoinSet::new();
    for number in 0..20 {
        let store = subject.store.clone();
        let lease = lease(&format!("server {number}"), 1_000, 2_000);
        claims.spawn(async move { store.claim(&id(1), &lease, vec![], JobChange::default()).await });
    }
    let answers = claims.join_all().await;
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(won, [subject.store.job(&id(1)).await]);
    assert_eq!(lost, vec![Err(wrong_state(&id(1), JobState::Running)); 19]);
}

async fn appending_adds_events_and_changes_the_row(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.running(1).await;
    subject.told();
    let change = JobChange {
        state: Some(JobState::Running),
        reason: Some("soon".to_owned()),
        steps_done: Some(1),
        sandbox: Some(Some("s".to_owned())),
    };
    let bodies = vec![file_changed("a"), file_changed("b")];
    let appended = subject.store.append(&id(1), 1, 1_100, bodies.clone(), change).await;
    let expected = Job {
        reason: Some("soon".to_owned()),
        steps_done: 1,
        sandbox: Some("s".to_owned()),
        last_seq: 4,
        ..started(1)
    };
    assert_eq!(appended.as_ref(), Ok(&expected));
    let events: Vec<Event> = (3..).zip(bodies).map(|(seq, body)| Event { seq, time_ms: 1_100, body }).collect();
    assert_eq!(subject.store.events(&id(1), 2, 10).await.as_ref(), Ok(&events));
    assert_eq!(subject.told(), [(expected.clone(), events)]);

    // `None` leaves a field as it is, `Some(None)` clears the sandbox; the lease having run out is no matter.
    let change = JobChange { sandbox: Some(None), ..JobChange::default() };
    let appended = subject.store.append(&id(1), 1, 9_000, vec![], change).await;
    assert_eq!(appended, Ok(Job { sandbox: None, ..expected }));
}

async fn appending_nothing_changes_nothing(open: Open<'_>) {
    let subject = Subject::new(open);
    let job = subject.running(1).await;
    subject.told();
    assert_eq!(subject.store.append(&id(1), 1, 1_100, vec![], JobChange::default()).await.as_ref(), Ok(&job));
    assert_eq!(subject.store.note(&id(1), 1_100, vec![]).await, Ok(job));
    assert_eq!(subject.told(), []);
}

async fn a_final_state_is_the_last(open: Open<'_>) {
    let subject = Subject::new(open);
    for (number, state) in [(1, JobState::Completed), (2, JobState::Failed), (3, JobState::Cancelled)] {
        subject.running(number).await;
        let sandbox = JobChange { sandbox: Some(Some("s".to_owned())), ..JobChange::default() };
        subject.store.append(&id(number), 1, 1_100, vec![], sandbox).await.expect("in a sandbox");
        let change = JobChange { state: Some(state), reason: Some("over".to_owned()), ..JobChange::default() };
        let end = EventBody::Ended { state, reason: Some("over".to_owned()) };
        let ended = subject.store.append(&id(number), 1, 1_500, vec![end], change).await;
        let expected = Job {
            state,
            reason: Some("over".to_owned()),
            ended_ms: Some(1_500),
            owner: None,
            lease_until_ms: None,
            last_seq: 3,
            ..started(number)
        };
        assert_eq!(ended.as_ref(), Ok(&expected));
        let more = subject.store.append(&expected.id, 1, 1_600, vec![file_changed("a")], JobChange::default());
        subject.refuses(&expected, more, wrong_state(&id(number), state)).await;
    }
    assert_eq!(subject.store.running().await, Ok(vec![]));
}

async fn a_job_may_end_as_it_is_claimed(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.scheduled(1).await;
    let change = JobChange { state: Some(JobState::Failed), ..JobChange::default() };
    let ended = subject.store.claim(&id(1), &lease("one", 1_000, 2_000), vec![], change).await;
    let expected =
        Job { state: JobState::Failed, ended_ms: Some(1_000), owner: None, lease_until_ms: None, ..started(1) };
    assert_eq!(ended, Ok(expected));
}

async fn appending_needs_a_running_job_and_its_generation(open: Open<'_>) {
    let subject = Subject::new(open);
    let scheduled = subject.scheduled(1).await;
    let more = || vec![file_changed("a")];
    let early = subject.store.append(&scheduled.id, 0, 1_000, more(), JobChange::default());
    subject.refuses(&scheduled, early, wrong_state(&id(1), JobState::Scheduled)).await;
    let running = subject.running(2).await;
    for generation in [0, 2] {
        let change = JobChange { state: Some(JobState::Failed), ..JobChange::default() };
        let others = subject.store.append(&running.id, generation, 1_000, more(), change);
        subject.refuses(&running, others, StoreError::Fenced(id(2))).await;
    }
}

async fn nothing_leads_back_to_scheduled(open: Open<'_>) {
    let subject = Subject::new(open);
    let job = subject.running(1).await;
    let change = JobChange { state: Some(JobState::Scheduled), steps_done: Some(1), ..JobChange::default() };
    // Nor do the events of the same request remain.
    let back = subject.store.append(&job.id, 1, 1_100, vec![file_changed("a")], change);
    subject.refuses(&job, back, wrong_state(&id(1), JobState::Running)).await;
}

async fn notes_are_taken_in_every_state(open: Open<'_>) {
    let subject = Subject::new(open);
    let mut jobs = vec![subject.scheduled(1).await, subject.running(2).await];
    for (number, state) in [(3, JobState::Completed), (4, JobState::Failed), (5, JobState::Cancelled)] {
        jobs.push(subject.ended(number, state).await);
    }
    subject.told();
    for job in jobs {
        let noted = subject.store.note(&job.id, 7_000, vec![file_changed("a"), file_changed("b")]).await;
        let expected = Job { last_seq: job.last_seq + 2, ..job.clone() };
        assert_eq!(noted.as_ref(), Ok(&expected));
        let events = vec![
            Event { seq: job.last_seq + 1, time_ms: 7_000, body: file_changed("a") },
            Event { seq: job.last_seq + 2, time_ms: 7_000, body: file_changed("b") },
        ];
        assert_eq!(subject.store.events(&job.id, job.last_seq, 10).await.as_ref(), Ok(&events));
        assert_eq!(subject.told(), [(expected, events)]);
    }
}

async fn mirrored_jobs_leave_the_list_in_the_end(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.running(1).await;
    for number in 2..=4 {
        subject.ended(number, JobState::Completed).await;
    }
    assert_eq!(subject.store.unmirrored().await, Ok(vec![id(2), id(3), id(4)]));
    // Those that run, and those that are not there, stay as they are.
    for number in [1, 2, 3, 9] {
        let last_seq = subject.store.job(&id(number)).await.map_or(0, |job| job.last_seq);
        subject.store.set_mirrored(&id(number), last_seq).await.expect("a mark");
    }
    super::eventually("two jobs are marked", || async { subject.store.unmirrored().await == Ok(vec![id(4)]) }).await;
    let marked = async |number| subject.store.job(&id(number)).await.expect("a job").is_mirrored;
    assert_eq!((marked(1).await, marked(2).await, marked(3).await, marked(4).await), (false, true, true, false));
    // What is noted afterwards is not in the files yet, and a mark that is late does not say so.
    let noted = subject.store.note(&id(2), 900, vec![EventBody::CancelRequested]).await.expect("a note");
    subject.store.set_mirrored(&id(2), noted.last_seq - 1).await.expect("a mark");
    subject.store.renew("nobody", 1).await.expect("a commit for the mark to ride along with");
    assert_eq!(subject.store.unmirrored().await, Ok(vec![id(2), id(4)]));
}
