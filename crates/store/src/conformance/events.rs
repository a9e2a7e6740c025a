//! Reading events back: in order, and in pieces.

use cofferdam_protocol::event::{Event, EventBody, OutputPart, OutputStream};

use super::{Open, Subject, file_changed, id};
use crate::{EVENTS_MAX, JobChange};

pub(super) async fn run(open: Open<'_>) {
    events_come_in_pieces(open).await;
    an_answer_is_bounded(open).await;
    many_writers_leave_no_gaps(open).await;
}

async fn events_come_in_pieces(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.running(1).await;
    // Another job's events lie between.
    subject.running(2).await;
    let output = EventBody::Output {
        step: 1,
        position: 9,
        log_from: 0,
        log_to: 9,
        excerpt: vec![OutputPart { stream: OutputStream::Stderr, text: "\u{0}\"ü\n".to_owned() }],
        omitted_bytes: 3,
    };
    subject.store.append(&id(1), 1, 1_100, vec![output.clone()], JobChange::default()).await.expect("appended");
    let all = [
        Event { seq: 1, time_ms: 500, body: EventBody::Scheduled },
        Event { seq: 2, time_ms: 1_000, body: EventBody::Started },
        Event { seq: 3, time_ms: 1_100, body: output },
    ];
    for (after, limit, expected) in [
        (0, 10, &all[..]),
        (0, 2, &all[..2]),
        (1, 1, &all[1..2]),
        (2, 10, &all[2..]),
        (3, 10, &[]),
        (u64::MAX, 10, &[]),
        (0, 0, &[]),
    ] {
        assert_eq!(subject.store.events(&id(1), after, limit).await.as_deref(), Ok(expected), "{after} {limit}");
    }
}

async fn an_answer_is_bounded(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.scheduled(1).await;
    let many = (0..EVENTS_MAX).map(|number| file_changed(&number.to_string())).collect();
    subject.store.note(&id(1), 600, many).await.expect("noted");
    let events = subject.store.events(&id(1), 0, usize::MAX).await.expect("events");
    assert_eq!(events.len(), EVENTS_MAX);
    let rest = subject.store.events(&id(1), EVENTS_MAX as u64, usize::MAX).await.expect("the rest");
    assert_eq!(rest.iter().map(|event| event.seq).collect::<Vec<_>>(), [EVENTS_MAX as u64 + 1]);
}

async fn many_writers_leave_no_gaps(open: Open<'_>) {
    const WRITERS: u64 = 16;
    const EACH: u64 = 10;
    let subject = Subject::new(open);
    subject.running(1).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = subject.store.clone();
        writers.spawn(async move {
            for number in 0..EACH {
                let pair = [0, 1].map(|half| file_changed(&format!("{writer}/{number}/{half}")));
                let job = store.append(&id(1), 1, 1_100, pair.to_vec(), JobChange::default()).await.expect("appended");
                // Both lie together, where the answer says.
                let events = store.events(&id(1), job.last_seq - 2, 2).await.expect("events");
                assert_eq!(events.into_iter().map(|event| event.body).collect::<Vec<_>>(), pair);
            }
        });
    }
    writers.join_all().await;
    let events = subject.store.events(&id(1), 0, usize::MAX).await.expect("events");
    assert!(events.iter().map(|event| event.seq).eq(1..=2 + 2 * WRITERS * EACH));
}
