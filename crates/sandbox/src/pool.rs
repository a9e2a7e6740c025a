//! Sandboxes prepared in advance: everything but the workspace is there, so that taking one costs a bind mount and
//! the closing of the walls. The pool refills itself in the background and never holds more than its size.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_protocol::Limits;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::SandboxError;
use crate::local::{ConnectionLog, LocalRuntime, Prepared, Sandbox, SandboxSpec};

/// Dropping it ends the sandboxes in it; [`Pool::close`] waits for their end.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    refill: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    runtime: Arc<LocalRuntime>,
    limits: Limits,
    size: usize,
    ready: Mutex<VecDeque<Prepared>>,
    taken: Notify,
    is_closed: AtomicBool,
}

impl Pool {
    /// Sandboxes with these limits: they are set when a sandbox is prepared. Fills in the background.
    pub fn new(runtime: Arc<LocalRuntime>, limits: Limits, size: usize) -> Self {
        let shared = Arc::new(Shared {
            runtime,
            limits,
            size,
            ready: Mutex::default(),
            taken: Notify::new(),
            is_closed: AtomicBool::new(false),
        });
        let refill = tokio::spawn(refill(shared.clone()));
        Self { shared, refill: Mutex::new(Some(refill)) }
    }

    /// A sandbox out of the pool, or a fresh one when the pool is empty or the limits are others.
    pub async fn take(&self, spec: &SandboxSpec, log: Option<ConnectionLog>) -> Result<Sandbox, SandboxError> {
        let runtime = &self.shared.runtime;
        if spec.limits == self.shared.limits {
            let prepared = self.shared.lock().pop_front();
            self.shared.taken.notify_one();
            if let Some(prepared) = prepared {
                match prepared.assign(runtime, spec, log.clone()).await {
                    // It died, or failed, while it waited: a reason to make a new one, not to fail.
                    Err(SandboxError::Vanished | SandboxError::Launch(_)) => {}
                    assigned => return assigned,
                }
            }
        }
        runtime.launch(spec, log).await
    }

    /// Ends the sandboxes in it, and returns when nothing of them is left. It is not filled again.
    pub async fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        self.shared.taken.notify_one();
        let refill = self.refill.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(refill) = refill {
            let _ = refill.await;
        }
        let waiting: Vec<Prepared> = self.shared.lock().drain(..).collect();
        let ending = waiting.into_iter().map(|prepared| {
            let runtime = self.shared.runtime.clone();
            tokio::spawn(async move { prepared.discard(&runtime).await })
        });
        for ended in ending.collect::<Vec<_>>() {
            let _ = ended.await;
        }
    }

    pub fn ready(&self) -> usize {
        self.shared.lock().len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(refill) = self.refill.get_mut().unwrap_or_else(PoisonError::into_inner) {
            refill.abort();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Prepared>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn refill(shared: Arc<Shared>) {
    while !shared.is_closed.load(Ordering::Relaxed) {
        while shared.lock().len() < shared.size && !shared.is_closed.load(Ordering::Relaxed) {
            match shared.runtime.prepare(&shared.limits) {
                Ok(prepared) => shared.lock().push_back(prepared),
                // Whoever takes from an empty pool makes its own and sees the reason.
                Err(_) => break,
            }
            // Between two, those who are being served have their turn.
            tokio::task::yield_now().await;
        }
        shared.taken.notified().await;
    }
}
