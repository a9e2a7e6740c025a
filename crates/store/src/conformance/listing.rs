//! The lists: pages of a tenant's jobs, the queue, and the counts.

use std::collections::BTreeMap;

use cofferdam_protocol::job::{JobId, JobState};

use super::{Open, Subject, id, new_job};
use crate::{JobChange, ListQuery, NewJob, PAGE_MAX};

pub(super) async fn run(open: Open<'_>) {
    a_list_is_the_tenants_newest_first(open).await;
    all_conditions_hold_together(open).await;
    pages_stay_whole_while_jobs_are_added(open).await;
    a_page_is_bounded(open).await;
    the_queue_is_oldest_first(open).await;
    counts_follow_every_change(open).await;
}

fn query() -> ListQuery {
    ListQuery { tenant: "acme".to_owned(), limit: 100, ..ListQuery::default() }
}

impl Subject {
    async fn listed(&self, query: &ListQuery) -> Vec<JobId> {
        self.store.list(query).await.expect("a list").into_iter().map(|job| job.id).collect()
    }

    async fn labelled(&self, number: u64, labels: &[(&str, &str)]) {
        let mut new = new_job(number);
        new.spec.labels = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        self.store.create(new).await.expect("a new job");
    }
}

async fn a_list_is_the_tenants_newest_first(open: Open<'_>) {
    let subject = Subject::new(open);
    let first = subject.scheduled(1).await;
    subject.store.create(NewJob { tenant: "other".to_owned(), ..new_job(2) }).await.expect("the other's");
    let third = subject.running(3).await;
    assert_eq!(subject.store.list(&query()).await, Ok(vec![third, first]));
    assert_eq!(subject.listed(&ListQuery { tenant: "other".to_owned(), ..query() }).await, [id(2)]);
    assert_eq!(subject.listed(&ListQuery { tenant: "nobody".to_owned(), ..query() }).await, []);
    assert_eq!(subject.listed(&ListQuery { limit: 0, ..query() }).await, []);
}

async fn all_conditions_hold_together(open: Open<'_>) {
    let subject = Subject::new(open);
    subject.labelled(1, &[("team", "a"), ("we.ird \"key\"", "ü")]).await;
    subject.labelled(2, &[("team", "b")]).await;
    subject.labelled(3, &[("team", "a"), ("nightly", "")]).await;
    subject.labelled(4, &[]).await;
    subject.store.cancel(&id(3), 600, "why").await.expect("cancelled");
    subject.running(5).await;
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    use JobState::{Cancelled, Failed, Running, Scheduled};
    for (states, labels, before, expected) in [
        (vec![], labels(&[("team", "a")]), None, vec![id(3), id(1)]),
        (vec![], labels(&[("team", "a"), ("nightly", "")]), None, vec![id(3)]),
        (vec![], labels(&[("we.ird \"key\"", "ü")]), None, vec![id(1)]),
        (vec![], labels(&[("team", "")]), None, vec![]),
        (vec![Scheduled], labels(&[]), None, vec![id(4), id(2), id(1)]),
        (vec![Cancelled, Running], labels(&[]), None, vec![id(5), id(3)]),
        (vec![Scheduled, Scheduled], labels(&[]), None, vec![id(4), id(2), id(1)]),
        (vec![Failed], labels(&[]), None, vec![]),
        (vec![Scheduled, Cancelled], labels(&[("team", "a")]), None, vec![id(3), id(1)]),
        (vec![Scheduled, Cancelled], labels(&[("team", "a")]), Some(id(3)), vec![id(1)]),
        (JobState::ALL.to_vec(), labels(&[]), Some(id(4)), vec![id(3), id(2), id(1)]),
    ] {
        let query = ListQuery { states, labels, before, ..query() };
        assert_eq!(subject.listed(&query).await, expected, "{query:?}");
        let first = ListQuery { limit: 1, ..query.clone() };
        assert_eq!(subject.listed(&first).await, expected[..expected.len().min(1)], "{first:?}");
    }
    let other = NewJob { kind: "interactive".to_owned(), ..new_job(9) };
    subject.store.create(other).await.expect("created");
    let query = ListQuery { kind: Some("interactive".to_owned()), ..query() };
    assert_eq!(subject.listed(&query).await, [id(9)]);
}

async fn pages_stay_whole_while_jobs_are_added(open: Open<'_>) {
    let subject = Subject::new(open);
    for number in 1..=9 {
        let team = if number % 3 == 0 { "b" } else { "a" };
        subject.labelled(number, &[("team", team)]).await;
    }
    for number in [2, 4, 6] {
        subject.store.cancel(&id(number), 600, "why").await.expect("cancelled");
    }
    let filtered = ListQuery {
        states: vec![JobState::Scheduled, JobState::Cancelled],
        labels: [("team".to_owned(), "a".to_owned())].into(),
        limit: 2,
        ..query()
    };
    let mut page = filtered.clone();
    let mut seen = Vec::new();
    loop {
        let ids = subject.listed(&page).await;
        let Some(last) = ids.last() else { break };
        page.before = Some(last.clone());
        seen.extend(ids);
        subject.labelled(100 + seen.len() as u64, &[("team", "a")]).await;
    }
    assert_eq!(seen, [8, 7, 5, 4, 2, 1].map(id));
    assert_eq!(subject.listed(&filtered).await, [106, 104].map(id));
}

async fn a_page_is_bounded(open: Open<'_>) {
    let subject = Subject::new(open);
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..=PAGE_MAX as u64 {
        let store = subject.store.clone();
        requests.spawn(async move { store.create(NewJob { queue_max: u64::MAX, ..new_job(number) }).await });
    }
    assert!(requests.join_all().await.iter().all(Result::is_ok));
    let all = ListQuery { limit: usize::MAX, ..query() };
    let page = subject.listed(&all).await;
    assert!(page.iter().eq(&(1..=PAGE_MAX as u64).rev().map(id).collect::<Vec<_>>()));
    assert_eq!(subject.listed(&ListQuery { before: page.last().cloned(), ..all }).await, [id(0)]);
}

async fn the_queue_is_oldest_first(open: Open<'_>) {
    let subject = Subject::new(open);
    for number in [2, 3, 1] {
        subject.scheduled(number).await;
    }
    subject.running(4).await;
    let mut new = NewJob { tenant: "other".to_owned(), ..new_job(5) };
    (new.spec.limits.cpu_milli, new.spec.limits.memory_bytes) = (500, 1 << 30);
    subject.store.create(new).await.expect("the other's");
    let queued = subject.store.queued().await.expect("the queue");
    assert_eq!(queued.iter().map(|job| &job.id).collect::<Vec<_>>(), [&id(1), &id(2), &id(3), &id(5)]);
    let last = &queued[3];
    assert_eq!((last.tenant.as_str(), last.cpu_milli, last.memory_bytes), ("other", 500, 1 << 30));
}

async fn counts_follow_every_change(open: Open<'_>) {
    let subject = Subject::new(open);
    let counts = async || {
        let counts = subject.store.counts().await.expect("counts");
        JobState::ALL.map(|state| counts[&state])
    };
    assert_eq!(counts().await, [0, 0, 0, 0, 0]);
    subject.scheduled(1).await;
    subject.running(2).await;
    subject.store.create(NewJob { tenant: "other".to_owned(), ..new_job(3) }).await.expect("the other's");
    assert_eq!(counts().await, [2, 1, 0, 0, 0]);
    subject.store.cancel(&id(1), 600, "why").await.expect("cancelled");
    subject.store.cancel(&id(2), 600, "why").await.expect("marked");
    assert_eq!(counts().await, [1, 1, 0, 0, 1]);
    let failed = JobChange { state: Some(JobState::Failed), ..JobChange::default() };
    subject.store.append(&id(2), 1, 1_100, vec![], failed.clone()).await.expect("failed");
    subject.store.append(&id(2), 1, 1_100, vec![], failed).await.expect_err("it has ended");
    subject.ended(4, JobState::Completed).await;
    assert_eq!(counts().await, [1, 0, 1, 1, 1]);
    subject.store.delete(&id(2)).await.expect("deleted");
    assert_eq!(counts().await, [1, 0, 1, 0, 1]);
    subject.store.purge(&id(2)).await.expect("purged");
    assert_eq!(counts().await, [1, 0, 1, 0, 1]);
}
