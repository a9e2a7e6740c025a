//! How fast the SQLite store is on this machine's disk: `cargo run --release --example throughput -p cofferdam-store
//! [DIRECTORY]`. Fills a database with finished jobs, then opens it again and reads single jobs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_protocol::event::EventBody;
use cofferdam_protocol::job::{JobId, JobSpec, JobState, Step, Tool, WhenLost, Work};
use cofferdam_protocol::{Limits, NetworkPolicy};
use cofferdam_store::{JobChange, Lease, NewJob, SqliteStore, Store};
use tokio::task::JoinSet;

const TASKS: u64 = 64;
const JOBS: u64 = 100_000;
const READS: u64 = 10_000;

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    let parent = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(parent).expect("a scratch directory");
    let path = directory.path().join("cofferdam.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, Box::new(|_, _| {})).expect("a database"));

    let took = each_job(&store, |store, id| async move {
        store.create(new_job(id)).await.expect("created");
    });
    report("create", JOBS, took.await);
    let took = each_job(&store, |store, id| async move {
        let lease = Lease { owner: "server".to_owned(), now_ms: 2, until_ms: 3 };
        let started = vec![EventBody::SandboxStarted { sandbox: "s".to_owned() }];
        store.claim(&id, &lease, started, JobChange::default()).await.expect("claimed");
    });
    report("claim", JOBS, took.await);
    let took = each_job(&store, |store, id| async move {
        let note = EventBody::ExecStarted { exec: "e".to_owned(), argv: vec!["make".to_owned()] };
        store.append(&id, 1, 4, vec![note.clone(), note], JobChange::default()).await.expect("appended");
    });
    report("append of two events", JOBS, took.await);
    let took = each_job(&store, |store, id| async move {
        let ended = vec![EventBody::Ended { state: JobState::Completed, reason: None }];
        let change = JobChange { state: Some(JobState::Completed), ..JobChange::default() };
        store.append(&id, 1, 5, ended, change).await.expect("ended");
    });
    report("append of the end", JOBS, took.await);

    let begin = Instant::now();
    drop(store);
    println!("closing: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    let begin = Instant::now();
    let store = SqliteStore::open(&path, Box::new(|_, _| {})).expect("the database again");
    println!("opening with {JOBS} jobs: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    let begin = Instant::now();
    for index in 0..READS {
        store.job(&job_id(index * 7_919 % JOBS)).await.expect("found");
    }
    report("reading a job, one after the other", READS, begin.elapsed());
}

async fn each_job<F>(store: &Arc<dyn Store>, work: fn(Arc<dyn Store>, JobId) -> F) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            for index in (task..JOBS).step_by(TASKS as usize) {
                work(store.clone(), job_id(index)).await;
            }
        });
    }
    tasks.join_all().await;
    begin.elapsed()
}

fn report(what: &str, count: u64, took: Duration) {
    let seconds = took.as_secs_f64();
    println!("{what}: {:.0}/s, {:.1} us each", count as f64 / seconds, seconds * 1e6 / count as f64);
}

fn job_id(index: u64) -> JobId {
    JobId::new(1_700_000_000_000 + index, u128::from(index) << 40)
}

fn new_job(id: JobId) -> NewJob {
    let step = Step {
        tool: Tool::Shell { command: "make test".to_owned() },
        timeout_ms: 0,
        env: Default::default(),
        cwd: None,
        continue_on_error: false,
    };
    let spec = JobSpec {
        work: Work::Steps(vec![step]),
        env: Default::default(),
        limits: Limits::default(),
        network: NetworkPolicy::None,
        timeout_ms: 3_600_000,
        idle_timeout_ms: 0,
        labels: [("branch".to_owned(), "main".to_owned())].into(),
        when_lost: WhenLost::Fail,
        parent: None,
        retry_of: None,
        has_input: false,
    };
    NewJob {
        id,
        tenant: "default".to_owned(),
        title: "make test".to_owned(),
        kind: "steps".to_owned(),
        spec,
        now_ms: 1,
        idempotency: None,
        queue_max: u64::MAX,
    }
}
