//! Makes the BPF program: a binary search over ranges of call numbers that share a verdict. The kernel walks through
//! a filter once per system call number when it is loaded, so its depth is paid at every start of a sandbox; a chain
//! of comparisons as long as the list of calls took a millisecond there.

use crate::policy::{Condition, Policy, Test, Verdict};

const LOAD_WORD: u16 = 0x20;
const JUMP_ALWAYS: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

const RETURN_KILL_PROCESS: u32 = 0x8000_0000;
const RETURN_ALLOW: u32 = 0x7fff_0000;
/// Asks the guest, which counts the call and lets it fail with EPERM.
const RETURN_NOTIFY: u32 = 0x7fc0_0000;
const RETURN_ENOSYS: u32 = 0x0005_0000 | 38;

// Positions in the kernel's `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, value }
}

fn branch(code: u16, value: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction { code, if_true, if_false, value }
}

/// Calls from `first` up to the next range's.
struct Range<'a> {
    first: u32,
    verdict: Option<&'a Verdict>,
}

pub fn compile(policy: &Policy, architecture: &str) -> Vec<u8> {
    let audit = match architecture {
        "x86_64" => 0xC000_003E,
        "aarch64" => 0xC000_00B7,
        other => panic!("there is no seccomp policy for {other}"),
    };
    // Another architecture's calls (32-bit programs) have other numbers: nothing about them can be said.
    let mut program = vec![
        plain(LOAD_WORD, ARCHITECTURE),
        branch(JUMP_IF_EQUAL, audit, 1, 0),
        plain(RETURN, RETURN_KILL_PROCESS),
        plain(LOAD_WORD, NUMBER),
    ];
    program.extend(search(&ranges(policy)));
    program
        .iter()
        .flat_map(|i| {
            let [a, b] = i.code.to_ne_bytes();
            let [c, d, e, f] = i.value.to_ne_bytes();
            [a, b, i.if_true, i.if_false, c, d, e, f]
        })
        .collect()
}

fn ranges(policy: &Policy) -> Vec<Range<'_>> {
    let mut ranges = vec![Range { first: 0, verdict: None }];
    let end = policy.keys().last().map_or(0, |last| last + 1);
    for number in 0..=end {
        let verdict = policy.get(&number);
        if ranges.last().is_none_or(|range| range.verdict != verdict) {
            ranges.push(Range { first: number, verdict });
        }
    }
    ranges
}

fn search(ranges: &[Range<'_>]) -> Vec<Instruction> {
    if let [range] = ranges {
        return decide(range.verdict);
    }
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    let (below, above) = (search(lower), search(upper));
    // Conditional jumps reach only 255 instructions; the jump behind them reaches everything.
    let mut program =
        vec![branch(JUMP_IF_GREATER_OR_EQUAL, upper[0].first, 0, 1), plain(JUMP_ALWAYS, below.len() as u32)];
    program.extend(below);
    program.extend(above);
    program
}

fn decide(verdict: Option<&Verdict>) -> Vec<Instruction> {
    match verdict {
        None => vec![plain(RETURN, RETURN_NOTIFY)],
        Some(Verdict::Allowed) => vec![plain(RETURN, RETURN_ALLOW)],
        Some(Verdict::Absent) => vec![plain(RETURN, RETURN_ENOSYS)],
        Some(Verdict::When(rules)) => {
            let mut program: Vec<Instruction> = rules.iter().flat_map(|conditions| rule(conditions)).collect();
            program.push(plain(RETURN, RETURN_NOTIFY));
            program
        }
    }
}

/// Allows when all conditions hold, and otherwise goes on behind itself.
fn rule(conditions: &[Condition]) -> Vec<Instruction> {
    let mut program = vec![plain(RETURN, RETURN_ALLOW)];
    for condition in conditions.iter().rev() {
        let rest = program.len() as u8;
        let mut tests = test(condition, rest);
        tests.extend(program);
        program = tests;
    }
    program
}

/// Falls through when the condition holds, and skips what follows plus `rest` when not.
fn test(condition: &Condition, rest: u8) -> Vec<Instruction> {
    let low = ARGUMENTS + condition.argument * 8;
    let high = low + 4;
    let word = |position: u32, test: &Test, upper: bool, skip: u8| {
        let half = |value: u64| if upper { (value >> 32) as u32 } else { value as u32 };
        match test {
            Test::Equals(value) => {
                vec![plain(LOAD_WORD, position), branch(JUMP_IF_EQUAL, half(*value), 0, skip)]
            }
            Test::DiffersFrom(value) => {
                vec![plain(LOAD_WORD, position), branch(JUMP_IF_EQUAL, half(*value), skip, 0)]
            }
            Test::HasNoneOf(bits) => {
                vec![plain(LOAD_WORD, position), plain(AND, half(*bits)), branch(JUMP_IF_EQUAL, 0, 0, skip)]
            }
        }
    };
    let mut program = word(low, &condition.test, false, rest);
    if condition.wide {
        assert!(!matches!(condition.test, Test::DiffersFrom(_)), "differing in either half is not needed, so not done");
        let mut first = word(high, &condition.test, true, rest + program.len() as u8);
        first.extend(program);
        program = first;
    }
    program
}
