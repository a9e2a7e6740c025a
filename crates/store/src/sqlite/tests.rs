//! What only this store can be asked: commits that fail, a full database, marks that cost no commit, and closing.

use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use cofferdam_protocol::job::JobState;

use super::SqliteStore;
use crate::conformance::{id, new_job};
use crate::{CommitHook, Idempotency, Job, NewJob, Store, StoreError};

fn ignore() -> CommitHook {
    Box::new(|_, _| {})
}

/// A store whose thread stands still after its first commit, so that requests gather for the second.
struct Held {
    store: Arc<SqliteStore>,
    release: mpsc::Sender<()>,
    told: Arc<Mutex<Vec<Job>>>,
    first: tokio::task::JoinHandle<Result<crate::Created, StoreError>>,
}

impl Held {
    async fn new(path: &Path) -> Self {
        let told: Arc<Mutex<Vec<Job>>> = Arc::default();
        let (entered, mut is_entered) = tokio::sync::mpsc::unbounded_channel();
        let (release, released) = mpsc::channel::<()>();
        let (released, kept) = (Mutex::new(released), told.clone());
        let hook = move |job: &Job, _: &[_]| {
            kept.lock().unwrap().push(job.clone());
            let _ = entered.send(());
            let _ = released.lock().unwrap().recv();
        };
        let store = Arc::new(SqliteStore::open(path, Box::new(hook)).unwrap());
        let first = tokio::spawn({
            let store = store.clone();
            async move { store.create(new_job(1)).await }
        });
        is_entered.recv().await.unwrap();
        Self { store, release, told, first }
    }
}

#[tokio::test]
async fn only_the_refused_request_is_undone() {
    let directory = tempfile::tempdir().unwrap();
    let Held { store, release, told, first } = Held::new(&directory.path().join("cofferdam.db")).await;
    let refused = store.writer.write(|batch| {
        batch.create(&new_job(3), "{}")?;
        Err::<(), _>(StoreError::Other("changed its mind".to_owned()))
    });
    // All are sent before the thread is let go.
    let (second, refused, fourth, ()) =
        tokio::join!(store.create(new_job(2)), refused, store.create(new_job(4)), async { drop(release) });
    first.await.unwrap().unwrap();
    assert_eq!(refused, Err(StoreError::Other("changed its mind".to_owned())));
    let jobs = [second.unwrap().job, fourth.unwrap().job];
    assert_eq!(told.lock().unwrap()[1..], jobs);
    assert_eq!(store.job(&id(3)).await, Err(StoreError::NotFound(id(3))));
    assert_eq!(store.counts().await.unwrap()[&JobState::Scheduled], 3);
}

#[tokio::test]
async fn a_failed_commit_fails_all_its_requests() {
    let directory = tempfile::tempdir().unwrap();
    let Held { store, release, told, first } = Held::new(&directory.path().join("cofferdam.db")).await;
    // A constraint that SQLite checks at the commit.
    let poison = store.writer.write(|batch| {
        let orphan = "PRAGMA defer_foreign_keys = ON; INSERT INTO spec (job, body) VALUES (999, '{}')";
        Ok(batch.connection.execute_batch(orphan)?)
    });
    let first_id = id(1);
    let (second, poison, refused, ()) =
        tokio::join!(store.create(new_job(2)), poison, store.delete(&first_id), async { drop(release) });
    first.await.unwrap().unwrap();
    let failure = StoreError::Other("FOREIGN KEY constraint failed".to_owned());
    assert_eq!((second, poison, refused), (Err(failure.clone()), Err(failure.clone()), Err(failure)));
    assert_eq!(store.job(&id(2)).await, Err(StoreError::NotFound(id(2))));
    assert_eq!(told.lock().unwrap().len(), 1);
    assert!(store.create(new_job(2)).await.unwrap().is_new);
}

#[tokio::test]
async fn a_full_database_works_again_once_there_is_space() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("cofferdam.db"), ignore()).unwrap();
    let large = |number: u64| {
        let idempotency = Some(Idempotency { key: number.to_string(), fingerprint: String::new() });
        let mut new = NewJob { idempotency, ..new_job(number) };
        new.spec.env.insert("LARGE".to_owned(), "x".repeat(1 << 20));
        new
    };
    let set_pages_max = async |pages: u32| {
        let set = move |connection: &rusqlite::Connection| {
            connection.pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, u32>(0))
        };
        store.writer.write(move |batch| Ok(set(batch.connection)?)).await.unwrap()
    };
    store.create(large(1)).await.unwrap();
    assert_eq!(set_pages_max(600).await, 600);
    store.create(large(2)).await.unwrap();
    assert_eq!(store.create(large(3)).await, Err(StoreError::NoSpace));
    assert_eq!(store.job(&id(3)).await, Err(StoreError::NotFound(id(3))));
    assert_eq!(store.counts().await.unwrap()[&JobState::Scheduled], 2);
    set_pages_max(10_000).await;
    assert!(store.create(large(3)).await.unwrap().is_new);
    assert_eq!(store.spec(&id(3)).await, Ok(large(3).spec));
}

#[tokio::test]
async fn a_database_that_cannot_be_written_is_still_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("cofferdam.db"), ignore()).unwrap();
    let job = store.create(new_job(1)).await.unwrap().job;
    store.writer.write(|batch| Ok(batch.connection.pragma_update(None, "query_only", true)?)).await.unwrap();
    let refused = StoreError::ReadOnly("attempt to write a readonly database".to_owned());
    assert_eq!(store.create(new_job(2)).await, Err(refused));
    assert_eq!(store.job(&id(1)).await, Ok(job));
    assert_eq!(store.job(&id(2)).await, Err(StoreError::NotFound(id(2))));
}

#[tokio::test]
async fn marks_as_mirrored_share_a_commit() {
    const JOBS: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cofferdam.db");
    let store = SqliteStore::open(&path, ignore()).unwrap();
    for number in 0..JOBS {
        store.create(new_job(number)).await.unwrap();
        store.cancel(&id(number), 600, "why").await.unwrap();
    }
    let log_pages = || std::fs::metadata(directory.path().join("cofferdam.db-wal")).unwrap().len() / 4_096;
    let before = log_pages();
    for number in 0..JOBS {
        store.set_mirrored(&id(number), 3).await.unwrap();
    }
    // Whichever comes first: their own commit when all is quiet, or this one.
    while !store.unmirrored().await.unwrap().is_empty() {
        store.renew("nobody", 1).await.unwrap();
    }
    let written = log_pages() - before;
    assert!(written < JOBS / 2, "{written} pages for {JOBS} marks");
}

#[tokio::test]
async fn closing_finishes_what_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cofferdam.db");
    let store = SqliteStore::open(&path, ignore()).unwrap();
    store.create(new_job(0)).await.unwrap();
    store.cancel(&id(0), 600, "why").await.unwrap();
    store.set_mirrored(&id(0), 3).await.unwrap();
    for number in 1..=50 {
        // Sent at the first poll; nobody waits for the answer.
        let mut creating = store.create(new_job(number));
        let _ = creating.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    drop(store);
    let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["cofferdam.db"]);
    let store = SqliteStore::open(&path, ignore()).unwrap();
    assert_eq!(store.counts().await.unwrap()[&JobState::Scheduled], 50);
    assert_eq!(store.unmirrored().await, Ok(vec![]));
}
