//! Playing the attacks: each first outside, then inside, then looked at from outside; a sandbox that did not come
//! through is replaced, so that one hole does not hide the others.

use std::time::Duration;

use cofferdam_sandbox::local::LocalRuntime;

use crate::attack::{Attack, Finding, Inside};
use crate::attacks;
use crate::outside;
use crate::stage::Stage;
use crate::verdict::{Category, Control, Scorecard, Verdict};

/// Beyond every bound of the attacks themselves.
const ATTACK_TIMEOUT: Duration = Duration::from_secs(60);

/// Plays every attack there is. `on_result` is called with each verdict as it is found.
pub async fn run_all(runtime: &LocalRuntime, mut on_result: impl FnMut(&Verdict)) -> Scorecard {
    let mut all = Scorecard::default();
    for category in Category::ALL {
        all.verdicts.extend(run_category(runtime, category, &mut on_result).await.verdicts);
    }
    all
}

/// The attacks of one category.
pub async fn run_category(
    runtime: &LocalRuntime,
    category: Category,
    mut on_result: impl FnMut(&Verdict),
) -> Scorecard {
    let mut card = Scorecard::default();
    let mut stage = Stage::new(runtime).await;
    for attack in attacks::of(category) {
        let verdict = match &mut stage {
            Ok(stage) => play(stage, attack).await,
            // Nothing was tried, so nothing was held.
            Err(error) => verdict(attack, Err(error.clone()), Control::NotShown("there is no sandbox".to_owned())),
        };
        on_result(&verdict);
        card.verdicts.push(verdict);
    }
    if let Ok(stage) = &mut stage {
        stage.end().await;
    }
    card
}

async fn play(stage: &mut Stage<'_>, attack: &Attack) -> Verdict {
    let control = tokio::time::timeout(ATTACK_TIMEOUT, outside::show(stage, attack))
        .await
        .unwrap_or_else(|_| Control::NotShown("it did not end in time".to_owned()));
    let found = tokio::time::timeout(ATTACK_TIMEOUT, inside(stage, attack))
        .await
        .unwrap_or_else(|_| Err("it did not end in time".to_owned()));
    if found.is_err() {
        // Whatever state it is in, the next attack begins with a sound one. If none can be had, that will show.
        let _ = stage.renew().await;
    }
    verdict(attack, found, control)
}

async fn inside(stage: &Stage<'_>, attack: &Attack) -> Finding {
    match attack.inside {
        Inside::Act(arguments) => stage.judge(stage.sandbox()?, &stage.request(arguments)).await,
        Inside::ActOnTerminal(arguments) => stage.judge(stage.sandbox()?, &stage.terminal_request(arguments)).await,
        Inside::Scene(scene) => {
            let detail = scene(stage).await?;
            stage.facts.check(&[])?;
            Ok(detail)
        }
    }
}

fn verdict(attack: &Attack, found: Finding, control: Control) -> Verdict {
    let held = found.is_ok();
    Verdict {
        name: attack.name,
        category: attack.category,
        description: attack.description,
        held,
        detail: found.unwrap_or_else(|what| what),
        control,
        control_required: attack.control_required,
    }
}
