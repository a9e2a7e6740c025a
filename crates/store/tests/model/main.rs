//! Random histories of a store, each request answered by the real one and by a model of a page or two; then every
//! read is compared. The store is closed and opened again on the way, and its files are opened from copies as a crash
//! would leave them.

mod crash;
mod model;
mod request;

use std::path::Path;
use std::sync::{Arc, Mutex};

use cofferdam_protocol::event::Event;
use cofferdam_protocol::job::JobState;
use cofferdam_store::conformance::id;
use cofferdam_store::{Job, ListQuery, SqliteStore, Store};
use proptest::prelude::*;

use self::model::Model;
use self::request::Request;

/// With [`REQUESTS_MAX`], some seconds of a debug build; PROPTEST_CASES asks for more.
const CASES: u32 = 24;
const REQUESTS_MAX: usize = 60;
/// Jobs that are there from the beginning, so that the first requests find something.
const JOBS_BEFORE: usize = 3;

type Told = Arc<Mutex<Vec<(Job, Vec<Event>)>>>;

#[derive(Debug, Clone)]
enum Step {
    /// After so many milliseconds.
    Ask(u64, Request),
    Reopen,
    /// Opens a copy of the files as they are now.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..4_u64, request::any()).prop_map(|(later_ms, request)| Step::Ask(later_ms, request)),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_store_does_what_the_model_does(steps in prop::collection::vec(step(), 1..REQUESTS_MAX)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run(steps));
    }
}

async fn run(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cofferdam.db");
    let told = Told::default();
    let mut store = open(&path, &told);
    let mut model = Model::default();
    let mut now_ms = 1_000;
    let create = Request::Create { tenant: 0, label: 0, key: None, queue_max: u64::MAX };
    let before = std::iter::repeat_n(Step::Ask(1, create), JOBS_BEFORE);
    for (index, step) in before.chain(steps).enumerate() {
        match step {
            Step::Ask(later_ms, request) => {
                now_ms += later_ms;
                // First: it takes the next id and the generations from the model as it was.
                let mut answer = request.ask(&store, &model, now_ms).await;
                let expected = model.answer(&request, now_ms);
                let mut told = std::mem::take(&mut *told.lock().unwrap());
                model.forgive_late_marks(answer.iter_mut().chain(told.iter_mut().map(|(job, _)| job)));
                assert_eq!(answer, expected, "{request:?}");
                assert_eq!(told, model.take_told(), "{request:?}");
            }
            Step::Reopen => {
                drop(store);
                store = open(&path, &told);
                // Closing has written the marks as well.
                assert_eq!(store.unmirrored().await.unwrap(), model.unmirrored());
            }
            Step::Crash => {
                let copy = crash::copy(&path, &directory.path().join(index.to_string()));
                compare(&open(&copy, &Told::default()), &model).await;
            }
        }
        compare(&store, &model).await;
    }
}

fn open(path: &Path, told: &Told) -> SqliteStore {
    let told = told.clone();
    let hook = move |job: &Job, events: &[Event]| told.lock().unwrap().push((job.clone(), events.to_vec()));
    SqliteStore::open(path, Box::new(hook)).unwrap()
}

/// Every read, for every job there ever was.
async fn compare(store: &SqliteStore, model: &Model) {
    for number in 0..=model.created() {
        let id = id(number);
        let mut job = store.job(&id).await;
        model.forgive_late_marks(job.iter_mut());
        assert_eq!(job, model.job(&id));
        assert_eq!(store.spec(&id).await, model.spec(&id));
        assert_eq!(store.events(&id, 1, 3).await, model.events(&id, 1, 3));
        assert_eq!(store.events(&id, 0, usize::MAX).await, model.events(&id, 0, usize::MAX));
        assert_eq!(store.last_event(&id, "file_changed").await, model.last_event(&id, "file_changed"));
    }
    for query in queries(model.created()) {
        let mut page = store.list(&query).await.unwrap();
        model.forgive_late_marks(&mut page);
        assert_eq!(page, model.list(&query), "{query:?}");
    }
    assert_eq!(store.queued().await.unwrap(), model.queued());
    let mut running = store.running().await.unwrap();
    model.forgive_late_marks(&mut running);
    assert_eq!(running, model.running());
    assert_eq!(store.counts().await.unwrap(), model.counts());
    assert_eq!(store.deleted().await.unwrap(), model.deleted());
    let unmirrored = store.unmirrored().await.unwrap();
    assert!(unmirrored.iter().all(|id| model.job(id).is_ok_and(|job| job.state.is_final())), "{unmirrored:?}");
    assert!(model.unmirrored().iter().all(|id| unmirrored.contains(id)), "{unmirrored:?}");
}

fn queries(created: u64) -> Vec<ListQuery> {
    let all = ListQuery { tenant: "tenant 0".to_owned(), limit: 100, ..ListQuery::default() };
    vec![
        ListQuery { tenant: "tenant 1".to_owned(), ..all.clone() },
        ListQuery { states: vec![JobState::Cancelled, JobState::Running], limit: 2, ..all.clone() },
        ListQuery { states: vec![JobState::Scheduled, JobState::Failed], before: Some(id(1)), ..all.clone() },
        ListQuery { kind: Some("goal".to_owned()), limit: 3, ..all.clone() },
        ListQuery { labels: [("label".to_owned(), "0".to_owned())].into(), limit: 3, ..all.clone() },
        ListQuery { before: Some(id(created / 2)), limit: 2, ..all.clone() },
        all,
    ]
}
