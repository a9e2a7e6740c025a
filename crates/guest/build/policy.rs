//! The policy as data: which calls are absent, which are allowed, and under which conditions.

use std::collections::BTreeMap;

use serde_json::Value;
use syscalls::Sysno;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// Allowed if all conditions of any one rule hold.
    When(Vec<Vec<Condition>>),
    /// As if the kernel did not know it.
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub argument: u32,
    /// Whether the upper half counts; the kernel ignores it where an argument is an `int`.
    pub wide: bool,
    pub test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    Equals(u64),
    DiffersFrom(u64),
    HasNoneOf(u64),
}

/// By number of the call.
pub type Policy = BTreeMap<u32, Verdict>;

/// The build's own architecture gives the numbers: the guest is built for the machine it is built on.
pub fn read(text: &str, for_x86_64: bool) -> Policy {
    let document: Value = serde_json::from_str(text).expect("the policy is JSON");
    let mut policy = Policy::new();
    for rule in document["absent"].as_array().expect("absent is a list") {
        policy.insert(number(rule), Verdict::Absent);
    }
    for rule in document["allowed"].as_array().expect("allowed is a list") {
        if !for_x86_64 && rule["comment"].as_str().is_some_and(|comment| comment.starts_with("x86_64")) {
            continue;
        }
        let conditions = rule["when"].as_array().map(|list| list.iter().map(condition).collect::<Vec<_>>());
        match (policy.entry(number(rule)).or_insert(Verdict::When(Vec::new())), conditions) {
            (Verdict::When(rules), Some(conditions)) => rules.push(conditions),
            (verdict @ Verdict::When(_), None) => *verdict = Verdict::Allowed,
            (verdict, _) => panic!("{rule} contradicts {verdict:?}"),
        }
    }
    policy
}

fn number(rule: &Value) -> u32 {
    let name = rule["call"].as_str().expect("a rule names a call");
    let call: Sysno = name.parse().unwrap_or_else(|_| panic!("{name} is not a system call of this architecture"));
    call.id() as u32
}

fn condition(value: &Value) -> Condition {
    let figure = |key: &str| value[key].as_u64();
    let test = match (figure("equals"), figure("differs_from"), figure("has_none_of")) {
        (Some(value), None, None) => Test::Equals(value),
        (None, Some(value), None) => Test::DiffersFrom(value),
        (None, None, Some(bits)) => Test::HasNoneOf(bits),
        _ => panic!("{value} needs exactly one test"),
    };
    Condition {
        argument: figure("argument").expect("a condition names an argument") as u32,
        wide: figure("bits") == Some(64),
        test,
    }
}
