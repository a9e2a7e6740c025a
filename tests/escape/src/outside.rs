//! Controls: the same act where there is no sandbox, as the user that runs the suite, on facts made for it alone.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::attack::{Attack, Inside, Outside};
use crate::facts::Facts;
use crate::stage::Stage;
use crate::verdict::Control;

const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn show(stage: &Stage<'_>, attack: &Attack) -> Control {
    let same = match attack.inside {
        Inside::Act(arguments) | Inside::ActOnTerminal(arguments) => arguments,
        Inside::Scene(_) => &[],
    };
    let found = match attack.outside {
        Outside::Never(why) => Err(why.to_owned()),
        Outside::Scene(scene) => scene(stage).await,
        Outside::Same => run(stage, &[], same).await,
        Outside::With(arguments) => run(stage, &[], arguments).await,
        Outside::InNamespaces => run(stage, &["--in-namespaces"], same).await,
        Outside::Shell(script) => shell(stage, script).await,
    };
    found.map_or_else(Control::NotShown, Control::ShownToWorkOutside)
}

async fn run(stage: &Stage<'_>, options: &[&str], arguments: &[&str]) -> Result<String, String> {
    let facts = Facts::new(&stage.program()).map_err(|error| error.to_string())?;
    let mut command = Command::new(stage.program());
    command.args(options).args(arguments.iter().map(|argument| facts.fill_in(argument)));
    finish(command, &facts).await
}

async fn shell(stage: &Stage<'_>, script: &str) -> Result<String, String> {
    let facts = Facts::new(&stage.program()).map_err(|error| error.to_string())?;
    let script = facts.fill_in(script).replace("{attacker}", &stage.program().display().to_string());
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    finish(command, &facts).await
}

/// `BROKEN` is what a control is to say.
async fn finish(mut command: Command, facts: &Facts) -> Result<String, String> {
    command.current_dir(facts.work()).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(CONTROL_TIMEOUT, command.output())
        .await
        .map_err(|_| "it did not end in time".to_owned())?
        .map_err(|error| format!("it could not be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // What it got is not repeated: it may be a secret of this machine.
    if text.lines().any(|line| line.starts_with("BROKEN: ")) {
        return Ok("the same act succeeds".to_owned());
    }
    match text.lines().find_map(|line| line.strip_prefix("HELD: ")) {
        Some(why) => Err(format!("refused outside, too: {}", why.chars().take(160).collect::<String>())),
        None => Err(format!("it ended with {} and said nothing", output.status)),
    }
}
