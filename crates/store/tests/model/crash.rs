//! Crashes: the files copied while others write, and a process that is killed. Whatever was answered, or seen by a
//! reader, before is there afterwards, and nothing is there by half.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cofferdam_protocol::event::{EventBody, FileAction};
use cofferdam_protocol::job::{JobId, JobState};
use cofferdam_store::conformance::{id, new_job};
use cofferdam_store::{JobChange, Lease, SqliteStore, Store};

const JOBS: usize = 4;
/// Each at another moment.
const COPIES: usize = 8;
const KILLS: usize = 4;
const DATABASE: &str = "COFFERDAM_TEST_DATABASE";

/// Copies database and log to a new directory. No checkpoint may be due meanwhile: a copy takes longer than a crash.
pub fn copy(path: &Path, directory: &Path) -> PathBuf {
    std::fs::create_dir(directory).unwrap();
    let copy = directory.join("cofferdam.db");
    std::fs::copy(path, &copy).unwrap();
    let log = |path: &Path| path.with_extension("db-wal");
    std::fs::copy(log(path), log(&copy)).unwrap();
    copy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_hold_what_was_answered_or_seen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cofferdam.db");
    let store = Arc::new(SqliteStore::open(&path, Box::new(|_, _| {})).unwrap());
    let known: Arc<[AtomicU64; JOBS]> = Arc::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..JOBS {
        start(&store, &id(number as u64)).await;
        let (writer, answered, until) = (store.clone(), known.clone(), is_over.clone());
        tasks.spawn(async move {
            for round in 1.. {
                append_pair(&writer, &id(number as u64), round, "").await;
                answered[number].fetch_max(round, Ordering::SeqCst);
                if until.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let (reader, seen, until) = (store.clone(), known.clone(), is_over.clone());
        tasks.spawn(async move {
            while !until.load(Ordering::SeqCst) {
                let job = reader.job(&id(number as u64)).await.unwrap();
                seen[number].fetch_max(u64::from(job.steps_done), Ordering::SeqCst);
            }
        });
    }
    for round in 0..COPIES {
        // Some way on, so that every copy is of another moment.
        let target = 10 * (round as u64 + 1);
        while known[round % JOBS].load(Ordering::SeqCst) < target {
            tokio::task::yield_now().await;
        }
        let before = known.each_ref().map(|known| known.load(Ordering::SeqCst));
        let copied = copy(&path, &directory.path().join(round.to_string()));
        check(&copied, &before).await;
    }
    is_over.store(true, Ordering::SeqCst);
    tasks.join_all().await;
}

/// Writes much, so that checkpoints are among the moments at which it is killed.
#[test]
fn a_killed_process_leaves_what_it_answered() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    if let Some(path) = std::env::var_os(DATABASE) {
        runtime.block_on(write_until_killed(Path::new(&path)));
    }
    for round in 0..KILLS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cofferdam.db");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::a_killed_process_leaves_what_it_answered", "--nocapture"])
            .env(DATABASE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut known = [0; JOBS];
        let mut note = |line: String| {
            if let Some((job, answered)) = line.strip_prefix("answered ").and_then(|line| line.split_once(' ')) {
                known[job.parse::<usize>().unwrap()] = answered.parse().unwrap();
            }
        };
        answers.by_ref().take(10 + 140 * round).for_each(|line| note(line.unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it died. The last line may be cut.
        let mut rest: Vec<String> = answers.map(Result::unwrap).collect();
        rest.pop();
        rest.into_iter().for_each(note);
        runtime.block_on(check(&path, &known));
    }
}

async fn write_until_killed(path: &Path) {
    let store = Arc::new(SqliteStore::open(path, Box::new(|_, _| {})).unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..JOBS {
        start(&store, &id(number as u64)).await;
        let store = store.clone();
        tasks.spawn(async move {
            for round in 1.. {
                append_pair(&store, &id(number as u64), round, &"x".repeat(32 << 10)).await;
                let line = format!("answered {number} {round}\n");
                // Nobody listens once the test has failed.
                if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
                    std::process::exit(1);
                }
            }
        });
    }
    tasks.join_all().await;
}

async fn start(store: &SqliteStore, id: &JobId) {
    store.create(cofferdam_store::NewJob { id: id.clone(), ..new_job(0) }).await.unwrap();
    let lease = Lease { owner: "one".to_owned(), now_ms: 1_000, until_ms: 2_000 };
    store.claim(id, &lease, vec![], JobChange::default()).await.unwrap();
}

/// Two events and a change of the row, which say the same number.
async fn append_pair(store: &SqliteStore, id: &JobId, round: u64, filling: &str) {
    let pair = [0, 1].map(|half| file_changed(round, half, filling));
    let change = JobChange { steps_done: Some(round as u32), ..JobChange::default() };
    store.append(id, 1, 1_100, pair.to_vec(), change).await.unwrap();
}

fn file_changed(round: u64, half: u64, filling: &str) -> EventBody {
    EventBody::FileChanged { path: format!("{round}/{half}/{filling}"), action: FileAction::Written }
}

async fn check(path: &Path, known: &[u64; JOBS]) {
    let store = SqliteStore::open(path, Box::new(|_, _| {})).unwrap();
    let running = store.running().await.unwrap();
    assert_eq!(store.counts().await.unwrap()[&JobState::Running], running.len() as u64);
    for (number, known) in known.iter().enumerate().filter(|(_, known)| **known > 0) {
        let id = id(number as u64);
        let job = store.job(&id).await.unwrap();
        let done = u64::from(job.steps_done);
        assert!(done >= *known, "{number}: {done} of {known}");
        assert_eq!(job.last_seq, 2 + 2 * done);
        for round in 1..=done {
            let pair = store.events(&id, 2 * round, 2).await.unwrap();
            assert_eq!(pair.iter().map(|event| event.seq).collect::<Vec<_>>(), [2 * round + 1, 2 * round + 2]);
            for (half, event) in pair.iter().enumerate() {
                let EventBody::FileChanged { path, .. } = &event.body else { panic!("{event:?}") };
                assert!(path.starts_with(&format!("{round}/{half}/")), "{path}");
            }
        }
        assert_eq!(store.events(&id, job.last_seq, 1).await.unwrap(), []);
    }
}
