//! What a job tried to reach: connections are lines in its directory, up to a bound, and the first ones are events too.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cofferdam_protocol::event::EventBody;
use cofferdam_protocol::job::{JobId, JobSpec};
use cofferdam_sandbox::egress::{ConnectionEvent, ConnectionRecord};
use cofferdam_sandbox::local::ConnectionLog;
use tokio::sync::mpsc;

use super::Inner;
use super::directory::JobDirectory;
use crate::clock::now_ms;

/// Connections of one run that become events; the file has all of them.
const EVENTS_MAX: u32 = 1_000;
/// Of the file, which a job that tries without end would fill the disk with.
const FILE_MAX_BYTES: u64 = 16 << 20;
/// Events that wait to be recorded; what is beyond is in the file only.
const WAITING_MAX: usize = 64;

/// A log for the sandbox of this job; none if it has no network to log.
pub fn log(jobs: &Arc<Inner>, id: &JobId, spec: &JobSpec, directory: &JobDirectory) -> Option<ConnectionLog> {
    if spec.network.is_none() {
        return None;
    }
    let file = File::options().create(true).append(true).mode(0o600).open(directory.connections()).ok().map(Mutex::new);
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    tokio::spawn(record(jobs.clone(), id.clone(), receiver));
    let (told, written) = (AtomicU32::new(0), AtomicU64::new(0));
    Some(Arc::new(move |connection: &ConnectionRecord| {
        if let Some(Ok(mut file)) = file.as_ref().map(Mutex::lock)
            && let Ok(mut line) = serde_json::to_vec(connection)
        {
            line.push(b'\n');
            let before = written.fetch_add(line.len() as u64, Ordering::Relaxed);
            if before < FILE_MAX_BYTES {
                let _ = file.write_all(&line);
            }
        }
        if let Some(event) = event(connection)
            && told.fetch_add(1, Ordering::Relaxed) < EVENTS_MAX
        {
            let _ = sender.try_send(event);
        }
    }))
}

async fn record(jobs: Arc<Inner>, id: JobId, mut events: mpsc::Receiver<EventBody>) {
    let mut batch = Vec::new();
    while events.recv_many(&mut batch, WAITING_MAX).await > 0 {
        // A job that is gone needs no events.
        let _ = jobs.store.note(&id, now_ms(), std::mem::take(&mut batch)).await;
    }
}

fn event(connection: &ConnectionRecord) -> Option<EventBody> {
    let (verdict, reason) = match &connection.event {
        ConnectionEvent::Allowed { .. } => ("allowed", None),
        ConnectionEvent::Refused { reason, .. } => ("refused", Some(reason.clone())),
        ConnectionEvent::Failed { reason } => ("failed", Some(reason.clone())),
        ConnectionEvent::Closed { .. } => return None,
    };
    Some(EventBody::Connection {
        host: connection.host.clone(),
        port: connection.port,
        verdict: verdict.to_owned(),
        reason,
    })
}
