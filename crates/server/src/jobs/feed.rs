//! Live events. Each job that somebody follows has a feed: its newest durable events, ready to be sent, and a signal
//! that there are more. A reader takes what it needs at its own pace; one that has fallen behind what is kept here
//! reads the store. Nobody waits for a reader.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use cofferdam_protocol::event::Event;
use cofferdam_protocol::job::JobId;
use cofferdam_store::{Job, Store, StoreError};
use tokio::sync::watch;

/// Events of one job that are kept for readers: several seconds of a busy one.
const KEPT_EVENTS_MAX: usize = 1_024;
/// Their size; a job of long excerpts keeps fewer.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Events that a reader takes at a time.
const TAKEN_MAX: usize = 256;

/// The feeds of jobs that are being followed.
#[derive(Debug, Default)]
pub struct Feeds(Mutex<HashMap<JobId, Weak<Feed>>>);

#[derive(Debug)]
struct Feed {
    kept: Mutex<Kept>,
    /// What is durable.
    latest: watch::Sender<Latest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Latest {
    seq: u64,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Sendable>,
    bytes: usize,
}

/// An event as it goes over the wire, made once for all readers.
#[derive(Debug, Clone)]
pub struct Sendable {
    seq: u64,
    pub frame: Bytes,
}

impl Sendable {
    fn new(event: &Event) -> Self {
        let json = serde_json::to_string(event).expect("an event is JSON");
        let frame = format!("id: {}\nevent: {}\ndata: {json}\n\n", event.seq, event.body.kind());
        Self { seq: event.seq, frame: frame.into() }
    }
}

/// Somebody who follows a job.
#[derive(Debug)]
pub struct Reader {
    id: JobId,
    feed: Arc<Feed>,
    latest: watch::Receiver<Latest>,
    store: Arc<dyn Store>,
    position: u64,
}

impl Feeds {
    /// Called with what has become durable, in order.
    pub fn publish(&self, job: &Job, events: &[Event]) {
        let feed = self.lock().get(&job.id).and_then(Weak::upgrade);
        if let Some(feed) = feed {
            feed.publish(job, events);
        }
    }

    /// Follows a job from behind the event `position`.
    pub async fn follow(&self, store: &Arc<dyn Store>, id: &JobId, position: u64) -> Result<Reader, StoreError> {
        let feed = {
            let mut feeds = self.lock();
            match feeds.get(id).and_then(Weak::upgrade) {
                Some(feed) => feed,
                None => {
                    feeds.retain(|_, feed| feed.strong_count() > 0);
                    let nothing = Latest { seq: 0, has_ended: false };
                    let feed = Arc::new(Feed { kept: Mutex::default(), latest: watch::Sender::new(nothing) });
                    feeds.insert(id.clone(), Arc::downgrade(&feed));
                    feed
                }
            }
        };
        let latest = feed.latest.subscribe();
        // After the feed is listed: what is committed from now on is published, what was before is read here.
        let job = store.job(id).await?;
        feed.advance(&job);
        Ok(Reader { id: id.clone(), feed, latest, store: store.clone(), position })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<JobId, Weak<Feed>>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Feed {
    fn publish(&self, job: &Job, events: &[Event]) {
        {
            let mut kept = self.lock();
            for event in events {
                let event = Sendable::new(event);
                kept.bytes += event.frame.len();
                kept.events.push_back(event);
            }
            while kept.events.len() > KEPT_EVENTS_MAX || kept.bytes > KEPT_BYTES_MAX {
                let Some(oldest) = kept.events.pop_front() else { break };
                kept.bytes -= oldest.frame.len();
            }
        }
        self.advance(job);
    }

    fn advance(&self, job: &Job) {
        let new = Latest { seq: job.last_seq, has_ended: job.state.is_final() };
        self.latest.send_if_modified(|latest| {
            let is_news = new.seq > latest.seq || new.has_ended && !latest.has_ended;
            if is_news {
                *latest = new;
            }
            is_news
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Reader {
    /// The next events, as soon as there are some; none when the job has ended and all were given.
    pub async fn next(&mut self) -> Result<Vec<Sendable>, StoreError> {
        loop {
            let latest = *self.latest.borrow_and_update();
            if self.position < latest.seq {
                let events = match self.kept() {
                    Some(events) => events,
                    None => {
                        let events = self.store.events(&self.id, self.position, TAKEN_MAX).await?;
                        events.iter().map(Sendable::new).collect()
                    }
                };
                let Some(last) = events.last() else { return Ok(events) };
                self.position = last.seq;
                return Ok(events);
            }
            if latest.has_ended || self.latest.changed().await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    /// What comes next, if it is still kept.
    fn kept(&self) -> Option<Vec<Sendable>> {
        let kept = self.feed.lock();
        let first = kept.events.front()?.seq;
        let skip = (self.position + 1).checked_sub(first)?;
        let events: Vec<_> = kept.events.iter().skip(skip as usize).take(TAKEN_MAX).cloned().collect();
        (!events.is_empty()).then_some(events)
    }
}
