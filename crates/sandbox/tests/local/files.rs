//! Files through the guest, as a client sees them; what makes them safe is tested where it is written.

use std::path::Path;

use cofferdam_protocol::files::{ChangeKind, FileKind};
use cofferdam_sandbox::SandboxError;
use cofferdam_sandbox::client::{RequestBody, WriteFile};
use cofferdam_sandbox::local::{SandboxSpec, Workspace};
use http_body_util::BodyExt;

use crate::support::{Texts, sandbox, sh, with};

fn body(content: impl Into<bytes::Bytes>) -> RequestBody {
    RequestBody::Bytes(Some(content.into()))
}

#[tokio::test]
async fn files_are_written_read_listed_moved_and_removed() {
    let sandbox = sandbox().await;
    let client = sandbox.client();
    let parents = WriteFile { parents: true, ..WriteFile::default() };
    client.write_file(b"a/b/note.txt", body("hello "), parents).await.unwrap();
    client.write_file(b"a/b/note.txt", body("world"), WriteFile { append: true, ..parents }).await.unwrap();
    client
        .write_file(b"run.sh", body("#!/bin/sh\necho ran\n"), WriteFile { mode: Some(0o4755), ..parents })
        .await
        .unwrap();
    let read =
        async |path: &[u8], range| client.read_file(path, range).await.unwrap().collect().await.unwrap().to_bytes();
    assert_eq!(read(b"a/b/note.txt", None).await, "hello world");
    assert_eq!(read(b"/workspace/a/b/note.txt", Some((6, 8))).await, "wor");
    assert_eq!(
        sh(&sandbox, "./run.sh; stat -c %a run.sh; cat /app/a/b/note.txt").await.stdout_text(),
        "ran\n755\nhello world"
    );

    let stat = client.stat(b"a/b/note.txt").await.unwrap();
    assert_eq!((stat.kind, stat.size_bytes, stat.mode), (FileKind::File, 11, 0o644));
    client.make_directory(b"c/d", true).await.unwrap();
    client.rename(b"a/b/note.txt", "c/d/n\u{f6}te".as_bytes()).await.unwrap();
    let tree = client.tree(b"", 10).await.unwrap();
    let paths: Vec<&str> = tree.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["a", "a/b", "c", "c/d", "c/d/n\u{f6}te", "run.sh"]);
    client.remove(b"c", true).await.unwrap();
    assert_eq!(client.list(b"").await.unwrap().entries.len(), 2);
    for path in [&b"../etc/passwd"[..], b"/etc/passwd", b"a/../../x"] {
        assert!(matches!(client.stat(path).await, Err(SandboxError::Refused { status: 400, .. })));
    }
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn a_large_file_goes_in_and_comes_out_whole() {
    let sandbox = sandbox().await;
    let content: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
    sandbox.client().write_file(b"large", body(content.clone()), WriteFile::default()).await.unwrap();
    let back = sandbox.client().read_file(b"large", None).await.unwrap().collect().await.unwrap().to_bytes();
    assert!(back == content, "it came back different");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn a_tree_travels_as_an_archive() {
    let sandbox = sandbox().await;
    sh(&sandbox, "mkdir -p src/deep && echo one > src/deep/one && ln -s deep/one src/link && chmod 700 src/deep/one")
        .await;
    let archive = sandbox.client().tar_out(b"src").await.unwrap().collect().await.unwrap().to_bytes();
    sandbox.client().make_directory(b"copy", false).await.unwrap();
    sandbox.client().tar_in(b"copy", body(archive)).await.unwrap();
    let listed = sh(&sandbox, "cd copy && find . -printf '%p %m %l\\n' | sort && cat link").await.stdout_text();
    assert_eq!(listed, ". 755 \n./deep 755 \n./deep/one 700 \n./link 777 deep/one\none\n");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn changes_are_watched_when_asked_for() {
    let sandbox = sandbox().await;
    let mut changes = sandbox.client().watch(b"").await.unwrap();
    sh(&sandbox, "mkdir new && echo x > new/file && rm new/file").await;
    let mut seen = Vec::new();
    while !seen.contains(&(ChangeKind::Removed, "new/file".to_owned())) {
        let change = changes.next().await.unwrap().unwrap();
        seen.push((change.kind, change.path));
    }
    assert!(seen.contains(&(ChangeKind::Created, "new".to_owned())), "{seen:?}");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn a_directory_of_the_callers_stays_the_callers() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("given"), "before").unwrap();
    let spec = SandboxSpec { workspace: Workspace::Directory(directory.path().to_owned()), ..SandboxSpec::default() };
    let sandbox = with(spec).await;
    let finished = sh(&sandbox, "stat -c %u:%U given; echo more >> given; mkdir made; echo x > made/file; id -u").await;
    assert_eq!(finished.stdout_text(), "1000:agent\n1000\n");
    sandbox.client().write_file(b"through-the-guest", body("y"), WriteFile::default()).await.unwrap();
    sandbox.destroy().await.unwrap();
    use std::os::unix::fs::MetadataExt;
    for name in ["given", "made", "made/file", "through-the-guest"] {
        let found = std::fs::metadata(directory.path().join(name)).unwrap();
        assert_eq!(found.uid(), rustix::process::geteuid().as_raw(), "{name} belongs to somebody else");
    }
    assert_eq!(std::fs::read_to_string(directory.path().join("given")).unwrap(), "beforemore\n");
}

#[tokio::test]
async fn workspaces_that_cannot_be_used_are_named_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let launch = async |path: &Path| {
        let spec = SandboxSpec { workspace: Workspace::Directory(path.to_owned()), ..SandboxSpec::default() };
        crate::support::runtime().launch(&spec, None).await.unwrap_err().to_string()
    };
    let missing = directory.path().join("missing");
    assert_eq!(
        launch(&missing).await,
        format!("the workspace {0} does not exist; create it first: mkdir -p {0}", missing.display())
    );
    assert!(launch(&file).await.contains("is not a directory"));
    assert!(launch(Path::new("/")).await.contains(if rustix::process::geteuid().is_root() {
        "root directory"
    } else {
        "another user"
    }));
    // Somebody else's: for root, any user's; for a user, root's.
    if rustix::process::geteuid().is_root() {
        let foreign = directory.path().join("foreign");
        std::fs::create_dir(&foreign).unwrap();
        std::os::unix::fs::chown(&foreign, Some(12345), None).unwrap();
        assert!(launch(&foreign).await.contains("belongs to another user (uid 12345)"));
    } else {
        assert!(launch(Path::new("/usr")).await.contains("belongs to another user (uid 0)"));
    }
}
