//! Jobs to torture a server with: what is sent, and what must come of it. Every step leaves a line of its own in a
//! file of the workspace and prints numbered lines, so that a step that ran twice or not at all can be seen, and so can
//! every byte of output that is missing or doubled.

use std::time::Duration;

use serde_json::{Value, json};

use crate::random::Random;

/// A step prints for this long at most, except in a long job.
const STEP_LINES_MAX: u64 = 8;
/// A line every 50 ms for four seconds: several kills fall into it.
const LONG_LINES: u64 = 80;
const INPUT_MAX_BYTES: u64 = 100_000;

#[derive(Debug, Clone)]
pub struct Plan {
    /// Unlike that of every other job.
    pub name: String,
    pub body: Value,
    pub steps: Vec<PlannedStep>,
    /// Sent as a file beside the job.
    pub input: Option<Vec<u8>>,
    /// Whether a step whose sandbox is lost is begun again.
    pub retries: bool,
    pub cancel_after: Option<Duration>,
    pub is_deleted: bool,
    /// The workspace it starts from, if it has a parent.
    pub parent: Option<(String, Box<Plan>)>,
}

#[derive(Debug, Clone)]
pub struct PlannedStep {
    /// What it leaves behind in [`Plan::token_file`], or in a file of its own.
    pub token: String,
    /// What it prints from its beginning to its end.
    pub output: String,
    /// Leaves its token in a file of this name, which it writes as a whole.
    pub writes: Option<String>,
}

impl Plan {
    pub fn random(random: &mut Random, name: String, parent: Option<(String, Plan)>) -> Self {
        let mut plan = Self::empty(name, parent);
        for number in 1..=random.between(1, 6) {
            let (lines, pause_ms) = (random.between(0, STEP_LINES_MAX), random.between(0, 40));
            match random.between(0, 9) {
                0 => plan.add_file(number),
                1 => plan.add_python(number, lines, pause_ms),
                _ => plan.add_shell(number, lines, pause_ms),
            }
        }
        plan.retries = random.one_in(3);
        plan.cancel_after = random.one_in(5).then(|| random.moment(Duration::from_secs(1)));
        plan.is_deleted = random.one_in(4);
        plan.input = random.one_in(4).then(|| {
            let length = random.between(0, INPUT_MAX_BYTES);
            (0..length).map(|at| (at ^ length) as u8).collect()
        });
        plan.finish()
    }

    /// One step that several servers will have to follow.
    pub fn long(name: String) -> Self {
        let mut plan = Self::empty(name, None);
        plan.add_shell(1, LONG_LINES, 50);
        plan.finish()
    }

    pub fn is_long(&self) -> bool {
        self.body["labels"]["long"] == "yes"
    }

    pub fn token_file(&self) -> String {
        format!("tokens-{}", self.name)
    }

    fn empty(name: String, parent: Option<(String, Self)>) -> Self {
        let parent = parent.map(|(id, plan)| (id, Box::new(plan)));
        Self {
            name,
            body: json!({ "steps": [] }),
            steps: Vec::new(),
            input: None,
            retries: false,
            cancel_after: None,
            is_deleted: false,
            parent,
        }
    }

    fn finish(mut self) -> Self {
        self.body["when_lost"] = if self.retries { "retry" } else { "fail" }.into();
        self.body["labels"] = json!({ "long": if self.steps[0].output.len() > 2_000 { "yes" } else { "no" } });
        if let Some((id, _)) = &self.parent {
            self.body["parent"] = id.as_str().into();
        }
        self
    }

    fn token(&self, number: u64) -> String {
        format!("{}-{number}", self.name)
    }

    fn add(&mut self, step: Value, planned: PlannedStep) {
        self.body["steps"].as_array_mut().expect("steps are an array").push(step);
        self.steps.push(planned);
    }

    fn add_shell(&mut self, number: u64, lines: u64, pause_ms: u64) {
        let (token, file) = (self.token(number), self.token_file());
        let command = format!(
            "echo {token} >> {file}; i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo \"{token} line $i of {lines}\"; \
             sleep {:.3}; done",
            pause_ms as f64 / 1_000.0
        );
        let output = numbered(&token, lines);
        self.add(json!({ "tool": "shell", "command": command }), PlannedStep { token, output, writes: None });
    }

    fn add_python(&mut self, number: u64, lines: u64, pause_ms: u64) {
        let (token, file) = (self.token(number), self.token_file());
        let code = format!(
            "import time\nwith open('{file}', 'a') as f: f.write('{token}\\n')\nfor i in range(1, {lines} + 1):\n    \
             print(f'{token} line {{i}} of {lines}', flush=True)\n    time.sleep({pause_ms} / 1000)\n"
        );
        let output = numbered(&token, lines);
        self.add(json!({ "tool": "python", "code": code }), PlannedStep { token, output, writes: None });
    }

    fn add_file(&mut self, number: u64) {
        let token = self.token(number);
        let path = format!("file-{token}");
        let step = json!({ "tool": "write_file", "path": path, "content": token });
        self.add(step, PlannedStep { token, output: String::new(), writes: Some(path) });
    }
}

fn numbered(token: &str, lines: u64) -> String {
    (1..=lines).map(|line| format!("{token} line {line} of {lines}\n")).collect()
}
