//! Which job is next: a state machine without IO or clock of its own. It knows what each job asks for and what the
//! machine has; starting jobs, ending them and keeping them are its caller's.
//!
//! - Between tenants, whoever has the smallest share of the machine goes first (of processor, memory and places, the
//!   share that is largest counts); among equals, whoever was served longest ago. Within a tenant, first come, first
//!   served.
//! - A job that does not fit yet may be overtaken by jobs that do, so that the machine is not idle; but only
//!   [`OVERTAKES_MAX`] times and for [`OVERTAKEN_MS_MAX`]. After that nothing else starts until it fits.
//!
//! [`Scheduler::next`] changes its answer only when a job arrives, leaves or ends, or after [`Scheduler::resume`]:
//! the caller asks then, until the answer is None, and needs no timer.

mod capacity;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cofferdam_protocol::job::JobId;

pub use capacity::{CPU_OVERCOMMIT, Capacity, JOBS_PER_PROCESSOR};

/// How many jobs may start while one that was passed over waits for room: enough for small jobs to fill the holes
/// that a big one leaves, few enough that its owner does not see a queue run past.
pub const OVERTAKES_MAX: u64 = 16;

/// How long a job that was passed over may be overtaken at all: about as long as short jobs take, so that waiting
/// for them to end costs the machine little.
pub const OVERTAKEN_MS_MAX: u64 = 30_000;

/// How many tenants are asked for a job that fits. Bounds the cost of one answer when there are thousands of tenants
/// with big jobs; the next job to end changes the answer anyway.
const TENANTS_ASKED_MAX: usize = 32;

/// Shares are compared in millionths: fine enough for one small job on the largest machine.
const WHOLE_SHARE: u128 = 1_000_000;

/// What one job asks for. More than the whole machine counts as the whole machine: it runs alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    pub id: JobId,
    pub tenant: String,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

#[derive(Debug)]
pub struct Scheduler {
    capacity: Capacity,
    used: Amount,
    paused: bool,
    /// Those with a job that waits or runs; others are forgotten.
    tenants: HashMap<Arc<str>, Tenant>,
    /// Tenants with waiting jobs, by share and then by turn. Turns are unique.
    order: BTreeMap<(u64, u64), Arc<str>>,
    waiting: HashMap<JobId, Ticket>,
    running: HashMap<JobId, (Arc<str>, Amount)>,
    /// Jobs that were passed over because they do not fit yet, the first first.
    passed_over: BTreeMap<u64, PassedOver>,
    /// Jobs started so far.
    starts: u64,
    /// The source of every number that says what came before what.
    serial: u64,
}

#[derive(Debug)]
struct Tenant {
    /// By ticket number: the order of arrival, with cheap removal from the middle.
    queue: BTreeMap<u64, (JobId, Amount)>,
    used: Amount,
    /// When it was last served, or when it came if it was not: a stream of newcomers does not go before those who
    /// wait.
    turn: u64,
    /// The key in `passed_over` if that is what became of the head of the queue.
    passed_over: Option<u64>,
    /// The number of the next ticket.
    tickets: u64,
}

#[derive(Debug)]
struct Ticket {
    tenant: Arc<str>,
    number: u64,
}

#[derive(Debug)]
struct PassedOver {
    tenant: Arc<str>,
    starts_before: u64,
    since_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    jobs: u64,
    cpu_milli: u64,
    memory_bytes: u64,
}

impl Scheduler {
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            used: Amount::default(),
            paused: false,
            tenants: HashMap::new(),
            order: BTreeMap::new(),
            waiting: HashMap::new(),
            running: HashMap::new(),
            passed_over: BTreeMap::new(),
            starts: 0,
            serial: 0,
        }
    }

    /// Nothing happens if the job waits or runs already.
    pub fn enqueue(&mut self, demand: Demand) {
        if self.waiting.contains_key(&demand.id) || self.running.contains_key(&demand.id) {
            return;
        }
        let amount = self.amount(&demand);
        let name = self.leave_order(&demand.tenant);
        let tenant = self.tenants.get_mut(&name).expect("leave_order made it");
        let number = tenant.tickets;
        tenant.tickets += 1;
        tenant.queue.insert(number, (demand.id.clone(), amount));
        self.waiting.insert(demand.id, Ticket { tenant: name.clone(), number });
        self.enter_order(&name);
    }

    /// A job that is to run no more, while it waits. False if it does not wait.
    pub fn remove(&mut self, id: &JobId) -> bool {
        let Some(Ticket { tenant: name, number }) = self.waiting.remove(id) else {
            return false;
        };
        self.leave_order(&name);
        let tenant = self.tenants.get_mut(&name).expect("a tenant with waiting jobs");
        let was_head = tenant.queue.first_key_value().is_some_and(|(first, _)| *first == number);
        tenant.queue.remove(&number);
        if was_head && let Some(key) = tenant.passed_over.take() {
            self.passed_over.remove(&key);
        }
        self.enter_order(&name);
        true
    }

    /// The job to start now. It counts as running from here on, until [`Scheduler::finished`].
    pub fn next(&mut self, now_ms: u64) -> Option<JobId> {
        if self.paused || self.used.jobs >= u64::from(self.capacity.jobs_max) {
            return None;
        }
        if let Some(name) = self.overdue(now_ms) {
            return self.head_fits(&name).then(|| self.start(&name));
        }
        let mut asked: Vec<Arc<str>> = Vec::new();
        let mut chosen = None;
        for name in self.order.values().take(TENANTS_ASKED_MAX) {
            if self.head_fits(name) {
                chosen = Some(name.clone());
                break;
            }
            asked.push(name.clone());
        }
        let chosen = chosen?;
        for name in asked {
            self.pass_over(name, now_ms);
        }
        Some(self.start(&chosen))
    }

    /// A job ended, and what it took is free again. Nothing happens if it does not run.
    pub fn finished(&mut self, id: &JobId) {
        let Some((name, amount)) = self.running.remove(id) else {
            return;
        };
        self.used.subtract(amount);
        self.leave_order(&name);
        self.tenants.get_mut(&name).expect("a tenant with running jobs").used.subtract(amount);
        self.enter_order(&name);
    }

    /// A job that runs already, as found after a restart: it counts, even beyond what the machine has.
    pub fn occupy(&mut self, demand: Demand) {
        if self.running.contains_key(&demand.id) {
            return;
        }
        self.remove(&demand.id);
        let amount = self.amount(&demand);
        let name = self.leave_order(&demand.tenant);
        self.take(&name, demand.id, amount);
        self.enter_order(&name);
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// About how many jobs start before this one, as if tenants took turns. Jobs cancelled before it are counted
    /// until those in front of them have started.
    pub fn queue_position(&self, id: &JobId) -> Option<usize> {
        let ticket = self.waiting.get(id)?;
        let queue = &self.tenants.get(&ticket.tenant)?.queue;
        let (head, _) = queue.first_key_value()?;
        let in_tenant = usize::try_from(ticket.number - head).unwrap_or(usize::MAX).min(queue.len() - 1);
        Some(in_tenant.saturating_mul(self.order.len()).min(self.waiting.len() - 1))
    }

    /// Starts nothing more, until [`Scheduler::resume`].
    pub fn pause(&mut self) {
        self.paused = true;
    }

    pub fn resume(&mut self) {
        self.paused = false;
    }

    fn amount(&self, demand: &Demand) -> Amount {
        Amount {
            jobs: 1,
            cpu_milli: demand.cpu_milli.min(self.capacity.cpu_milli),
            memory_bytes: demand.memory_bytes.min(self.capacity.memory_bytes),
        }
    }

    fn head_fits(&self, name: &str) -> bool {
        let head = self.tenants.get(name).and_then(|tenant| tenant.queue.first_key_value());
        let Some((_, (_, amount))) = head else {
            return false;
        };
        let (used, capacity) = (&self.used, &self.capacity);
        used.jobs + amount.jobs <= u64::from(capacity.jobs_max)
            && used.cpu_milli + amount.cpu_milli <= capacity.cpu_milli
            && used.memory_bytes + amount.memory_bytes <= capacity.memory_bytes
    }

    /// The tenant whose head has been overtaken enough. The first to be passed over is the first to reach either
    /// bound, so it is the only one to look at.
    fn overdue(&self, now_ms: u64) -> Option<Arc<str>> {
        let (_, first) = self.passed_over.first_key_value()?;
        let overtaken = self.starts - first.starts_before >= OVERTAKES_MAX;
        let long = now_ms.saturating_sub(first.since_ms) >= OVERTAKEN_MS_MAX;
        (overtaken || long).then(|| first.tenant.clone())
    }

    fn pass_over(&mut self, name: Arc<str>, now_ms: u64) {
        let key = self.next_serial();
        let tenant = self.tenants.get_mut(&name).expect("a tenant in the order");
        if tenant.passed_over.is_none() {
            tenant.passed_over = Some(key);
            let record = PassedOver { tenant: name, starts_before: self.starts, since_ms: now_ms };
            self.passed_over.insert(key, record);
        }
    }

    fn start(&mut self, name: &Arc<str>) -> JobId {
        self.leave_order(name);
        let turn = self.next_serial();
        let tenant = self.tenants.get_mut(name).expect("a tenant in the order");
        let (_, (id, amount)) = tenant.queue.pop_first().expect("tenants in the order have waiting jobs");
        tenant.turn = turn;
        if let Some(key) = tenant.passed_over.take() {
            self.passed_over.remove(&key);
        }
        self.waiting.remove(&id);
        self.take(name, id.clone(), amount);
        self.starts += 1;
        self.enter_order(name);
        id
    }

    fn take(&mut self, name: &Arc<str>, id: JobId, amount: Amount) {
        self.used.add(amount);
        self.tenants.get_mut(name).expect("a tenant being served").used.add(amount);
        self.running.insert(id, (name.clone(), amount));
    }

    /// Before anything about a tenant changes that its place depends on. Makes the tenant if it is new.
    fn leave_order(&mut self, name: &str) -> Arc<str> {
        if let Some((name, tenant)) = self.tenants.get_key_value(name) {
            let name = name.clone();
            self.order.remove(&(tenant.used.share_of(&self.capacity), tenant.turn));
            return name;
        }
        let name: Arc<str> = name.into();
        let turn = self.next_serial();
        let tenant = Tenant { queue: BTreeMap::new(), used: Amount::default(), turn, passed_over: None, tickets: 0 };
        self.tenants.insert(name.clone(), tenant);
        name
    }

    /// After the change. Forgets a tenant of whom nothing is left.
    fn enter_order(&mut self, name: &Arc<str>) {
        let tenant = &self.tenants[name];
        if !tenant.queue.is_empty() {
            self.order.insert((tenant.used.share_of(&self.capacity), tenant.turn), name.clone());
        } else if tenant.used == Amount::default() {
            self.tenants.remove(name);
        }
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.cpu_milli += other.cpu_milli;
        self.memory_bytes += other.memory_bytes;
    }

    fn subtract(&mut self, other: Self) {
        self.jobs -= other.jobs;
        self.cpu_milli -= other.cpu_milli;
        self.memory_bytes -= other.memory_bytes;
    }

    /// The largest of its shares, in millionths of the machine.
    fn share_of(&self, capacity: &Capacity) -> u64 {
        let share = |used: u64, all: u64| u128::from(used) * WHOLE_SHARE / u128::from(all.max(1));
        let largest = share(self.jobs, u64::from(capacity.jobs_max))
            .max(share(self.cpu_milli, capacity.cpu_milli))
            .max(share(self.memory_bytes, capacity.memory_bytes));
        u64::try_from(largest).unwrap_or(u64::MAX)
    }
}
