//! Examples first, then any sequence of calls against what must always hold.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const MACHINE: Capacity = Capacity { jobs_max: 8, cpu_milli: 8_000, memory_bytes: 100 };

fn id(number: u64) -> JobId {
    JobId::new(number, 0)
}

fn job(number: u64, tenant: &str, memory_bytes: u64) -> Demand {
    Demand { id: id(number), tenant: tenant.to_owned(), cpu_milli: 100, memory_bytes }
}

/// All that start now, by number.
fn started(scheduler: &mut Scheduler, now_ms: u64) -> Vec<u64> {
    std::iter::from_fn(|| scheduler.next(now_ms)).map(|id| number(&id)).collect()
}

fn number(id: &JobId) -> u64 {
    (0..2_000).find(|number| *id == self::id(*number)).expect("an id of this test")
}

#[test]
fn tenants_take_turns_and_each_queue_is_in_order() {
    let mut scheduler = Scheduler::new(Capacity { jobs_max: 5, ..MACHINE });
    for number in 1..=4 {
        scheduler.enqueue(job(number, "many", 1));
    }
    scheduler.enqueue(job(11, "few", 1));
    scheduler.enqueue(job(12, "few", 1));
    assert_eq!(scheduler.queue_position(&id(3)), Some(4));
    assert_eq!(started(&mut scheduler, 0), [1, 11, 2, 12, 3]);
    assert_eq!((scheduler.waiting(), scheduler.running()), (1, 5));
    scheduler.finished(&id(2));
    assert_eq!(started(&mut scheduler, 0), [4]);
}

#[test]
fn the_larger_of_its_shares_is_what_a_tenant_has() {
    let mut scheduler = Scheduler::new(MACHINE);
    scheduler.occupy(job(1, "memory", 50));
    scheduler.occupy(Demand { cpu_milli: 2_000, ..job(2, "processor", 1) });
    for number in [11, 12] {
        scheduler.enqueue(job(number, "memory", 1));
        scheduler.enqueue(job(number + 10, "processor", 1));
    }
    // Half the memory is more than a quarter of the processor, and than that and two of eight places.
    assert_eq!(started(&mut scheduler, 0), [21, 22, 11, 12]);
}

#[test]
fn a_job_waits_or_runs_once() {
    let mut scheduler = Scheduler::new(MACHINE);
    scheduler.enqueue(job(1, "a", 1));
    scheduler.enqueue(job(1, "a", 1));
    assert_eq!(started(&mut scheduler, 0), [1]);
    scheduler.enqueue(job(1, "a", 1));
    scheduler.occupy(job(1, "a", 1));
    assert_eq!((scheduler.waiting(), scheduler.running()), (0, 1));
    assert!(!scheduler.remove(&id(1)), "it runs");
    scheduler.finished(&id(1));
    scheduler.finished(&id(1));
    assert_eq!((scheduler.running(), scheduler.used), (0, Amount::default()));
}

#[test]
fn a_job_larger_than_the_machine_runs_alone() {
    let mut scheduler = Scheduler::new(MACHINE);
    scheduler.enqueue(job(1, "a", 5_000));
    scheduler.enqueue(job(2, "b", 1));
    assert_eq!(started(&mut scheduler, 0), [1]);
    scheduler.finished(&id(1));
    assert_eq!(started(&mut scheduler, 0), [2]);
}

#[test]
fn a_big_job_is_overtaken_a_bounded_number_of_times() {
    let mut scheduler = Scheduler::new(MACHINE);
    scheduler.occupy(job(1, "other", 60));
    scheduler.enqueue(job(2, "big", 80));
    let mut overtaken = 0;
    for number in 100.. {
        scheduler.enqueue(job(number, "small", 1));
        if started(&mut scheduler, 0).is_empty() {
            break;
        }
        scheduler.finished(&id(number));
        overtaken += 1;
    }
    assert_eq!(overtaken, OVERTAKES_MAX);
    scheduler.finished(&id(1));
    assert_eq!(scheduler.next(0), Some(id(2)));
}

#[test]
fn a_big_job_is_overtaken_for_a_bounded_time() {
    let mut scheduler = Scheduler::new(MACHINE);
    scheduler.occupy(job(1, "other", 60));
    scheduler.enqueue(job(2, "big", 80));
    scheduler.enqueue(job(3, "small", 1));
    assert_eq!(started(&mut scheduler, 1_000), [3]);
    scheduler.enqueue(job(4, "small", 1));
    assert_eq!(scheduler.next(1_000 + OVERTAKEN_MS_MAX), None);
    assert!(scheduler.remove(&id(2)), "and once it is cancelled, the others go on");
    assert_eq!(started(&mut scheduler, 1_000 + OVERTAKEN_MS_MAX), [4]);
}

#[test]
fn what_runs_after_a_restart_counts_beyond_the_machine() {
    let mut scheduler = Scheduler::new(MACHINE);
    scheduler.occupy(job(1, "a", 80));
    scheduler.occupy(job(2, "a", 80));
    scheduler.enqueue(job(3, "a", 30));
    assert_eq!(scheduler.next(0), None);
    scheduler.finished(&id(1));
    assert_eq!(scheduler.next(0), None);
    scheduler.finished(&id(2));
    assert_eq!(started(&mut scheduler, 0), [3]);
}

#[test]
fn nothing_starts_while_paused() {
    let mut scheduler = Scheduler::new(MACHINE);
    scheduler.enqueue(job(1, "a", 1));
    scheduler.pause();
    assert_eq!(scheduler.next(0), None);
    scheduler.resume();
    assert_eq!(scheduler.next(0), Some(id(1)));
}

#[test]
fn positions_are_counted_without_the_cancelled() {
    let mut scheduler = Scheduler::new(MACHINE);
    for number in 0..5 {
        scheduler.enqueue(job(number, "a", 1));
    }
    let positions = |scheduler: &Scheduler| (0..5).map(|n| scheduler.queue_position(&id(n))).collect::<Vec<_>>();
    assert_eq!(positions(&scheduler), [Some(0), Some(1), Some(2), Some(3), Some(4)]);
    scheduler.remove(&id(0));
    scheduler.remove(&id(3));
    assert_eq!(positions(&scheduler), [None, Some(0), Some(1), None, Some(2)]);
}

#[derive(Debug, Clone)]
enum Call {
    Enqueue { tenant: usize, cpu_milli: u64, memory_bytes: u64 },
    EnqueueAgain(prop::sample::Index),
    Occupy { tenant: usize, memory_bytes: u64 },
    Remove(prop::sample::Index),
    Finish(prop::sample::Index),
    Next,
    Wait(u64),
    Pause,
    Resume,
}

const TENANTS: [&str; 4] = ["a", "b", "c", "d"];

fn call() -> impl Strategy<Value = Call> {
    let index = any::<prop::sample::Index>;
    // Small jobs, half a machine, and more than one.
    let memory = || prop_oneof![4 => 1..20u64, 2 => 40..100u64, 1 => 100..200u64];
    prop_oneof![
        8 => (0..TENANTS.len(), 0..3_000u64, memory())
            .prop_map(|(tenant, cpu_milli, memory_bytes)| Call::Enqueue { tenant, cpu_milli, memory_bytes }),
        1 => index().prop_map(Call::EnqueueAgain),
        1 => (0..TENANTS.len(), memory())
            .prop_map(|(tenant, memory_bytes)| Call::Occupy { tenant, memory_bytes }),
        1 => index().prop_map(Call::Remove),
        5 => index().prop_map(Call::Finish),
        9 => Just(Call::Next),
        2 => (0..40_000u64).prop_map(Call::Wait),
        1 => Just(Call::Pause),
        2 => Just(Call::Resume),
    ]
}

/// The same rules as searches through lists, and what must follow from them.
#[derive(Default)]
struct Model {
    waiting: Vec<Demand>,
    running: Vec<Demand>,
    turns: HashMap<String, u64>,
    turn: u64,
    /// With the number of starts and the time at which it was.
    passed_over: Vec<(JobId, u64, u64)>,
    starts: u64,
    now_ms: u64,
    paused: bool,
}

impl Model {
    fn used(&self, of: impl Fn(&Demand) -> bool) -> Amount {
        let mut used = Amount::default();
        for demand in self.running.iter().filter(|demand| of(demand)) {
            used.add(Amount {
                jobs: 1,
                cpu_milli: demand.cpu_milli.min(MACHINE.cpu_milli),
                memory_bytes: demand.memory_bytes.min(MACHINE.memory_bytes),
            });
        }
        used
    }

    fn share(&self, tenant: &str) -> u64 {
        self.used(|demand| demand.tenant == tenant).share_of(&MACHINE)
    }

    fn fits(&self, demand: &Demand) -> bool {
        let used = self.used(|_| true);
        used.jobs < u64::from(MACHINE.jobs_max)
            && used.cpu_milli + demand.cpu_milli.min(MACHINE.cpu_milli) <= MACHINE.cpu_milli
            && used.memory_bytes + demand.memory_bytes.min(MACHINE.memory_bytes) <= MACHINE.memory_bytes
    }

    /// The first job of each tenant, whose turn it is first.
    fn heads(&self) -> Vec<&Demand> {
        let head = |tenant: &&str| self.waiting.iter().find(|demand| demand.tenant == *tenant);
        let mut heads: Vec<_> = TENANTS.iter().filter_map(head).collect();
        heads.sort_by_key(|head| (self.share(&head.tenant), self.turns[&head.tenant]));
        heads
    }

    fn overdue(&self) -> Option<&JobId> {
        let (id, starts, since_ms) = self.passed_over.first()?;
        (self.starts - starts >= OVERTAKES_MAX || self.now_ms - since_ms >= OVERTAKEN_MS_MAX).then_some(id)
    }

    fn next(&self) -> Option<JobId> {
        let heads = self.heads();
        let overdue = self.overdue();
        let mut candidates = heads.iter().filter(|head| overdue.is_none_or(|id| head.id == *id));
        let chosen = candidates.find(|head| self.fits(head))?;
        (!self.paused).then(|| chosen.id.clone())
    }

    fn start(&mut self, id: &JobId) {
        let before: Vec<_> = self.heads().iter().map(|head| head.id.clone()).take_while(|head| head != id).collect();
        if self.overdue().is_none() {
            for passed in before {
                if !self.passed_over.iter().any(|(known, ..)| *known == passed) {
                    self.passed_over.push((passed, self.starts, self.now_ms));
                }
            }
        }
        let demand = self.waiting.remove(self.waiting.iter().position(|demand| demand.id == *id).expect("waits"));
        self.turn += 1;
        self.turns.insert(demand.tenant.clone(), self.turn);
        self.running.push(demand);
        self.passed_over.retain(|(passed, ..)| passed != id);
        self.starts += 1;
        // Each that was passed over earlier may still go first.
        for (place, (passed, starts, _)) in self.passed_over.iter().enumerate() {
            assert!(self.starts - starts <= OVERTAKES_MAX + TENANTS.len() as u64 - place as u64, "{passed} starves");
        }
    }

    fn arrive(&mut self, tenant: &str) {
        self.turn += 1;
        self.turns.entry(tenant.to_owned()).or_insert(self.turn);
    }

    fn forget_the_gone(&mut self) {
        let (waiting, running) = (&self.waiting, &self.running);
        self.turns.retain(|tenant, _| waiting.iter().chain(running).any(|demand| demand.tenant == *tenant));
        self.passed_over.retain(|(id, ..)| waiting.iter().any(|demand| demand.id == *id));
    }
}

fn play(calls: Vec<Call>) {
    let mut scheduler = Scheduler::new(MACHINE);
    let mut model = Model::default();
    let pick = |list: &[Demand], index: prop::sample::Index| index.index(list.len().max(1));
    for (number, call) in calls.into_iter().enumerate() {
        let id = id(number as u64);
        match call {
            Call::Enqueue { tenant, cpu_milli, memory_bytes } => {
                let demand = Demand { id, tenant: TENANTS[tenant].to_owned(), cpu_milli, memory_bytes };
                model.arrive(TENANTS[tenant]);
                model.waiting.push(demand.clone());
                scheduler.enqueue(demand);
            }
            Call::EnqueueAgain(index) => {
                let known: Vec<_> = model.waiting.iter().chain(&model.running).cloned().collect();
                known.get(pick(&known, index)).into_iter().for_each(|demand| scheduler.enqueue(demand.clone()));
            }
            Call::Occupy { tenant, memory_bytes } => {
                let demand = Demand { id, tenant: TENANTS[tenant].to_owned(), cpu_milli: 1_000, memory_bytes };
                model.arrive(TENANTS[tenant]);
                model.running.push(demand.clone());
                scheduler.occupy(demand);
            }
            Call::Remove(index) => {
                let place = pick(&model.waiting, index);
                if place < model.waiting.len() {
                    let demand = model.waiting.remove(place);
                    assert!(scheduler.remove(&demand.id));
                }
            }
            Call::Finish(index) => {
                let place = pick(&model.running, index);
                if place < model.running.len() {
                    scheduler.finished(&model.running.remove(place).id);
                }
            }
            Call::Next => step(&mut scheduler, &mut model),
            Call::Wait(time_ms) => model.now_ms += time_ms,
            Call::Pause => {
                model.paused = true;
                scheduler.pause();
            }
            Call::Resume => {
                model.paused = false;
                scheduler.resume();
            }
        }
        model.forget_the_gone();
        assert_eq!(scheduler.used, model.used(|_| true));
        assert_eq!((scheduler.waiting(), scheduler.running()), (model.waiting.len(), model.running.len()));
        for demand in &model.waiting {
            assert!(scheduler.queue_position(&demand.id).expect("waits") < model.waiting.len());
        }
    }
    scheduler.resume();
    model.paused = false;
    // Whatever happened before: as long as running jobs end, each waiting one has its time, one by one.
    while !model.waiting.is_empty() {
        let waiting = model.waiting.len();
        while model.waiting.len() == waiting {
            step(&mut scheduler, &mut model);
            if model.waiting.len() == waiting {
                assert!(!model.running.is_empty(), "an empty machine starts nothing");
                scheduler.finished(&model.running.remove(0).id);
            }
            model.forget_the_gone();
        }
    }
    model.running.iter().for_each(|demand| scheduler.finished(&demand.id));
    assert_eq!(scheduler.used, Amount::default());
    assert!(scheduler.tenants.is_empty() && scheduler.order.is_empty() && scheduler.passed_over.is_empty());
}

fn step(scheduler: &mut Scheduler, model: &mut Model) {
    let expected = model.next();
    let before = scheduler.used;
    let answer = scheduler.next(model.now_ms);
    assert_eq!(answer, expected);
    let Some(id) = answer else {
        assert_eq!(scheduler.used, before);
        return;
    };
    let used = scheduler.used;
    assert!(used.jobs <= u64::from(MACHINE.jobs_max), "{used:?}");
    assert!(used.cpu_milli <= MACHINE.cpu_milli && used.memory_bytes <= MACHINE.memory_bytes, "{used:?}");
    model.start(&id);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_calls_in_any_order_keep_the_rules(calls in prop::collection::vec(call(), 0..150)) {
        play(calls);
    }
}

/// Equal jobs that never run out: nobody is ever more than one job ahead.
#[test]
fn tenants_with_enough_to_do_share_equally() {
    let mut scheduler = Scheduler::new(Capacity { jobs_max: 10, ..MACHINE });
    let mut number = 0;
    let mut served = HashMap::<usize, Vec<u64>>::new();
    for (tenant, jobs) in [(0, 300), (1, 100), (2, 100)] {
        for _ in 0..jobs {
            scheduler.enqueue(job(number, TENANTS[tenant], 1));
            number += 1;
        }
    }
    let tenant_of = |number: u64| if number < 300 { 0 } else { 1 + (number as usize - 300) / 100 };
    let mut running = std::collections::VecDeque::new();
    for _ in 0..240 {
        if running.len() == 10 {
            scheduler.finished(&id(running.pop_front().expect("ten")));
        }
        let next = self::number(&scheduler.next(0).expect("one place is free"));
        running.push_back(next);
        served.entry(tenant_of(next)).or_default().push(next);
        let counts: Vec<_> =
            (0..3).map(|tenant| running.iter().filter(|number| tenant_of(**number) == tenant).count()).collect();
        assert!(counts.iter().max() <= counts.iter().min().map(|least| least + 1).as_ref(), "{counts:?}");
    }
    assert_eq!((served[&0].len(), served[&1].len(), served[&2].len()), (80, 80, 80));
}

/// An operation that walks the queue would make this take minutes.
#[test]
fn a_hundred_thousand_jobs_wait_cheaply() {
    let mut scheduler = Scheduler::new(MACHINE);
    let count = 100_000;
    for number in 0..count {
        scheduler.enqueue(job(number, &format!("tenant {}", number % 1_000), 100));
    }
    for number in (0..count).step_by(2) {
        assert!(scheduler.queue_position(&id(number)).is_some());
        assert!(scheduler.remove(&id(number)));
    }
    let mut started = 0;
    while let Some(id) = scheduler.next(0) {
        assert_eq!(scheduler.next(0), None);
        scheduler.finished(&id);
        started += 1;
    }
    assert_eq!(started, count / 2);
}
