//! What people take home: the patch and the archive.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::Fixture;

/// What a script prints that runs in an empty directory with this file beside it.
fn with_file(content: &[u8], script: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), content).unwrap();
    let script = format!("set -e; mkdir in; cd in; {script}");
    let output = Command::new("bash").args(["-c", &script]).current_dir(directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_leads_from_what_was_given_to_what_became_of_it() {
    let fixture = Fixture::start().await;
    let files = json!([{ "path": "kept", "content": "1\n2\n3\n" }, { "path": "gone", "content": "x\n" }]);
    let command = "sed -i s/2/two/ kept; rm gone; mkdir d; echo new > d/new; chmod +x kept; ln -s kept link; printf '\\377\\0' > bytes";
    let step = |command: &str| json!([{ "tool": "shell", "command": command }]);
    let id = fixture.schedule(json!({ "files": files, "steps": step(command) })).await;
    fixture.end(&id).await;
    let reply = fixture.fetch(&format!("/jobs/{id}/diff")).await;
    assert_eq!(reply.header("content-type"), "text/x-diff; charset=utf-8");
    let applied = with_file(
        &reply.body,
        "printf '1\\n2\\n3\\n' > kept; echo x > gone; git init -q; git apply ../file; rm -r .git; \
         find . ! -type d | sort; cat kept d/new; readlink link; stat -c %a kept; od -An -c bytes",
    );
    assert_eq!(applied, "./bytes\n./d/new\n./kept\n./link\n1\ntwo\n3\nnew\nkept\n755\n 377  \\0\n");

    let child = fixture.schedule(json!({ "parent": id, "steps": step("echo more >> d/new") })).await;
    fixture.end(&child).await;
    let patch = fixture.text(&format!("/jobs/{child}/diff")).await;
    let lines: Vec<&str> = patch.lines().filter(|line| !line.starts_with("index ")).collect();
    assert_eq!(lines, ["diff --git a/d/new b/d/new", "--- a/d/new", "+++ b/d/new", "@@ -1 +1,2 @@", " new", "+more"]);

    let from_nothing = fixture.ended_with(&["echo made > made"]).await;
    let patch = fixture.fetch(&format!("/jobs/{from_nothing}/diff")).await;
    assert_eq!(with_file(&patch.body, "git init -q; git apply ../file; cat made"), "made\n");
    let nothing = fixture.ended_with(&["true"]).await;
    assert_eq!(fixture.text(&format!("/jobs/{nothing}/diff")).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_archive_is_the_workspace() {
    let fixture = Fixture::start().await;
    let command = "mkdir -p a/empty; echo text > a/file; chmod 750 a/file; ln -s a/file link; ln -s /etc/passwd out; \
                   printf '\\377' > bytes; cp /bin/true setuid; chmod 4755 setuid; mkfifo pipe; echo begun; \
                   until [ -e go ]; do sleep 0.02; done; rm go";
    let id = fixture.shell(&[command]).await;
    fixture.printed(&id, "begun").await;
    let path = format!("/jobs/{id}/download");
    let early = fixture.fetch(&path).await.refusal();
    assert_eq!(
        early,
        format!("409 | the job is running; wait for its end, or ask for /jobs/{id}/download?partial=true")
    );
    assert_eq!(fixture.get(&format!("/status/{id}")).await["download_url"], Value::Null);
    let look =
        "unzip -q ../file; find . | sort; cat a/file; readlink link out; stat -c %a a/file setuid; od -An -c bytes";
    let expected =
        ".\n./a\n./a/empty\n./a/file\n./bytes\n./link\n./out\n./setuid\ntext\na/file\n/etc/passwd\n750\n755\n 377\n";
    let partial = fixture.fetch(&format!("{path}?partial=true")).await;
    assert_eq!(with_file(&partial.body, look), expected);
    fixture.put(&format!("/jobs/{id}/files/go"), "").await;
    fixture.end(&id).await;
    let whole = fixture.fetch(&path).await;
    assert_eq!(with_file(&whole.body, look), expected);
    assert_eq!(whole.header("content-type"), "application/zip");
    assert_eq!(whole.header("content-disposition"), format!("attachment; filename=\"{id}.zip\""));

    let empty = fixture.ended_with(&["true"]).await;
    let reply = fixture.fetch(&format!("/jobs/{empty}/download")).await;
    assert_eq!(with_file(&reply.body, "python3 -m zipfile -l ../file | tail -n +2"), "");
}
