//! `cofferdam doctor`: what this machine offers to sandboxes, as a table for people or JSON for scripts.

use std::process::ExitCode;

use clap::Args;
use cofferdam_sandbox::local::{LocalConfig, LocalRuntime};
use cofferdam_sandbox::probe::{self, State};
use comfy_table::{ContentArrangement, Table, presets};

use crate::terminal;

/// Check what this machine can do, and how to mend what it can't
#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Attack a sandbox from the inside, in every way that the escape suite knows, and print the scorecard
    #[arg(long)]
    attack: bool,
}

/// 0: all is well. 1: sandboxes work, with something weaker than it could be. 2: no sandbox can be made here.
pub fn main(arguments: &DoctorArguments) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cofferdam: the runtime could not be started: {error}");
            return ExitCode::from(2);
        }
    };
    if arguments.attack {
        return runtime.block_on(attack(arguments.json));
    }
    let findings = runtime.block_on(probe::examine());
    if arguments.json {
        print(&serde_json::to_string_pretty(&findings).unwrap_or_default());
    } else {
        print_table(&findings);
    }
    let worst = findings.iter().map(|finding| finding.state).max();
    ExitCode::from(match worst {
        Some(State::Missing) => 2,
        Some(State::Weak) => 1,
        _ => 0,
    })
}

/// A line for standard output, whose reader may have seen enough.
fn print(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// 0: every attack was held. 1: one was not. 2: no sandbox can be made here.
async fn attack(json: bool) -> ExitCode {
    let runtime = match LocalRuntime::new(&LocalConfig::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            print(&format!("cofferdam: {error}"));
            return ExitCode::from(2);
        }
    };
    let tell = |verdict: &cofferdam_escape::Verdict| {
        if !json {
            print(&verdict.to_string());
        }
    };
    let scorecard = cofferdam_escape::run_all(&runtime, tell).await;
    if json {
        print(&serde_json::to_string_pretty(&scorecard).unwrap_or_default());
    } else {
        let (held, all, shown) = (scorecard.held(), scorecard.verdicts.len(), scorecard.shown_outside());
        print(&format!("\n{held} of {all} attacks held; {shown} of them were shown to work outside a sandbox"));
    }
    if scorecard.all_passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_table(findings: &[probe::Finding]) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(terminal::size().columns.clamp(60, 160));
    table.set_header(["", "feature", "found", "what it means"]);
    for finding in findings {
        let sign = match finding.state {
            State::Good => "✓",
            State::Weak => "~",
            State::Missing => "✗",
        };
        let remedy = finding.remedy.as_ref().map(|remedy| format!("\n→ {remedy}")).unwrap_or_default();
        table.add_row([sign, finding.feature, &finding.found, &format!("{}{remedy}", finding.meaning)]);
    }
    print(&table.to_string());
}
