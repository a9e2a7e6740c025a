//! What a starting server finds: jobs that wait, jobs that ran under a server that is gone, sandboxes that live or
//! that nobody wants, files of uploads that were never completed. Everything is taken up or taken away.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use cofferdam_linux::files::{RelativePath, Workspace, percent_decode};
use cofferdam_protocol::job::{JobId, JobSpec};
use cofferdam_store::{Job, StoreError};
use tracing::{info, warn};

use super::begin::{self, LostSandbox};
use super::directory::JobDirectory;
use super::{Inner, Live, connections};
use crate::scheduler::Demand;

/// Names that an interrupted write leaves behind.
const FRAGMENT_PREFIX: &str = ".cofferdam-";
const FRAGMENT_SUFFIX: &str = ".tmp";
/// How deep they are looked for.
const FRAGMENT_DEPTH: usize = 64;

/// `found`: the sandboxes that were there before this server made any.
pub async fn recover(jobs: &Arc<Inner>, found: Vec<String>) -> Result<(), StoreError> {
    let store = &jobs.store;
    for job in store.queued().await? {
        let demand =
            Demand { id: job.id, tenant: job.tenant, cpu_milli: job.cpu_milli, memory_bytes: job.memory_bytes };
        jobs.scheduler().enqueue(demand);
    }
    let running = store.running().await?;
    // A server that starts no jobs leaves them to the one that will.
    let takes_up = jobs.settings.jobs_max != Some(0);
    let wanted: HashSet<String> = running.iter().filter_map(|job| job.sandbox.clone()).collect();
    if takes_up {
        for job in running {
            take_up(jobs, job).await?;
        }
    }
    // Started for a job and never named in the store, or of a job that has ended, or of the other server's pool.
    for id in found.into_iter().filter(|id| !wanted.contains(id)) {
        let runtime = jobs.runtime.clone();
        jobs.runs.spawn(async move { runtime.discard(&id).await });
    }
    // Listed before there are requests: what is uploaded from now on is not touched.
    tokio::spawn(tidy(jobs.clone(), names_in(&jobs.data.incoming())));
    Ok(())
}

async fn take_up(jobs: &Arc<Inner>, job: Job) -> Result<(), StoreError> {
    let reason = "the server was restarted";
    let job = match jobs.store.take_over(&job.id, &jobs.lease(), reason, true).await {
        Ok(job) => job,
        Err(error @ (StoreError::NoSpace | StoreError::ReadOnly(_) | StoreError::Damaged(_))) => return Err(error),
        Err(error) => {
            warn!(job = %job.id, "the job cannot be taken up: {error}");
            return Ok(());
        }
    };
    let spec = jobs.store.spec(&job.id).await?;
    jobs.scheduler().occupy(Demand {
        id: job.id.clone(),
        tenant: job.tenant.clone(),
        cpu_milli: spec.limits.cpu_milli,
        memory_bytes: spec.limits.memory_bytes,
    });
    let inner = jobs.clone();
    jobs.hold(job.id.clone(), |live| async move {
        if job.cancel_requested {
            live.cancel.cancel();
        }
        remove_fragments(&JobDirectory::new(&inner.data, &job.id)).await;
        let lost = attach(&inner, &live, &job, &spec).await;
        begin::resume(inner, live, job, spec, lost).await;
    });
    Ok(())
}

/// Puts the job's sandbox into its hands, if it lives.
async fn attach(jobs: &Arc<Inner>, live: &Live, job: &Job, spec: &JobSpec) -> Option<LostSandbox> {
    let id = job.sandbox.as_ref()?;
    let log = connections::log(jobs, &job.id, spec, &JobDirectory::new(&jobs.data, &job.id));
    let attached = async {
        let sandbox = jobs.runtime.attach(id, &spec.network, log).await?;
        sandbox.client().renew_lease(jobs.settings.sandbox_lease_ms).await?;
        Ok::<_, cofferdam_sandbox::SandboxError>(sandbox)
    };
    match attached.await {
        Ok(sandbox) => {
            info!(job = %job.id, sandbox = id, "the sandbox lives, the job goes on");
            *live.sandbox.write().await = Some(sandbox);
            None
        }
        Err(error) => {
            info!(job = %job.id, sandbox = id, "the sandbox is gone: {error}");
            jobs.runtime.discard(id).await;
            let reason = "the server was restarted and the sandbox was gone".to_owned();
            Some(LostSandbox { id: id.clone(), reason })
        }
    }
}

/// Everything that can be late: uploads that belong to no job, jobs to be removed, files that are behind the store.
async fn tidy(jobs: Arc<Inner>, uploads: Vec<String>) {
    for name in uploads {
        let is_wanted = match JobId::try_from(name.clone()) {
            // Input of a job waits here until the job starts; of one that never will it is taken along by the mirror.
            Ok(id) => jobs.store.job(&id).await.is_ok_and(|job| !job.is_mirrored),
            Err(_) => false,
        };
        if !is_wanted && let Ok(path) = RelativePath::parse(name.as_bytes()) {
            let _ = Workspace::open(&jobs.data.incoming()).and_then(|incoming| incoming.remove(&path, true));
        }
    }
    for id in jobs.store.deleted().await.unwrap_or_default() {
        jobs.mirror.remove(&id);
    }
    for id in jobs.store.unmirrored().await.unwrap_or_default() {
        if let Ok(job) = jobs.store.job(&id).await {
            jobs.mirror.write(&job);
        }
    }
    for job in jobs.store.queued().await.unwrap_or_default() {
        if !JobDirectory::new(&jobs.data, &job.id).root().join("status.json").exists()
            && let Ok(job) = jobs.store.job(&job.id).await
        {
            jobs.mirror.write(&job);
        }
    }
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// A write through the API or by a step that a crash has interrupted leaves its temporary file.
async fn remove_fragments(directory: &JobDirectory) {
    let workspace = directory.workspace();
    let removed = tokio::task::spawn_blocking(move || {
        let Ok(files) = Workspace::open(&workspace) else { return };
        let Ok(tree) = files.tree(&RelativePath::root(), FRAGMENT_DEPTH) else { return };
        for entry in tree.entries {
            let name = entry.path.rsplit('/').next().unwrap_or_default();
            if name.starts_with(FRAGMENT_PREFIX)
                && name.ends_with(FRAGMENT_SUFFIX)
                && let Ok(path) = percent_decode(&entry.raw).and_then(|path| RelativePath::parse(&path))
            {
                let _ = files.remove(&path, false);
            }
        }
    });
    let _ = removed.await;
}
