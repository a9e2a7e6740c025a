//! Real sandboxes on this machine, through the library: what works inside, what is kept, what is left behind.

mod support;

use support::{Texts, sandbox, sh};

#[tokio::test]
async fn a_command_runs_and_its_output_and_exit_code_come_back() {
    let sandbox = sandbox().await;
    let finished = sh(&sandbox, "echo out; echo err >&2; exit 3").await;
    assert_eq!(finished.stdout_text(), "out\n");
    assert_eq!(finished.stderr_text(), "err\n");
    assert_eq!(finished.exit_code(), Some(3));
    sandbox.destroy().await.unwrap();
}
