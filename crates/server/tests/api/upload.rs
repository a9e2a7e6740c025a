//! Many files at once.

use std::process::Command;

use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::json;

use crate::support::{Fixture, Reply};

async fn upload_tar(fixture: &Fixture, id: &str, archive: Vec<u8>) -> Reply {
    let request = fixture.request(Method::POST, &format!("/jobs/{id}/files"));
    fixture.send(request.header("Content-Type", "application/x-tar").body(archive)).await
}

/// An archive with the entries that this code adds to `t`.
fn archive(code: &str) -> Vec<u8> {
    let script = format!(
        "import io, sys, tarfile\nt = tarfile.open(fileobj=sys.stdout.buffer, mode='w|')\n\
         def add(name, content=b'', **fields):\n  i = tarfile.TarInfo(name)\n  i.size = len(content)\n\
         \x20 for k, v in fields.items(): setattr(i, k, v)\n  t.addfile(i, io.BytesIO(content))\n{code}\nt.close()"
    );
    let output = Command::new("python3").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_archives_are_put_into_the_workspace() {
    let fixture = Fixture::start().await;
    let id = fixture.ended_with(&["echo old > a"]).await;
    let form = Form::new()
        .part("one", Part::text("new\n").file_name("a"))
        .part("two", Part::bytes(b"\xff".to_vec()).file_name("deep/er/b"));
    let reply = fixture.send(fixture.request(Method::POST, &format!("/jobs/{id}/files")).multipart(form)).await;
    assert_eq!((reply.status, reply.json()), (200, json!({ "files": ["a", "deep/er/b"] })));
    assert_eq!(fixture.text(&format!("/jobs/{id}/files/a")).await, "new\n");

    let good = archive("add('x/y', b'packed', mode=0o4755)\nadd('link', type=tarfile.SYMTYPE, linkname='x/y')");
    let reply = upload_tar(&fixture, &id, good).await;
    assert_eq!((reply.status, reply.json()), (200, json!({ "files": [] })), "{}", reply.text());
    assert_eq!(fixture.text(&format!("/jobs/{id}/files/link")).await, "packed");
    let list = fixture.get(&format!("/jobs/{id}/files/x")).await;
    assert_eq!(list["entries"][0]["mode"], 0o755, "no set-uid: {list}");

    let nameless = fixture.request(Method::POST, &format!("/jobs/{id}/files")).multipart(Form::new().text("a", "b"));
    let refusal = fixture.send(nameless).await.refusal();
    assert_eq!(refusal, "422 file | file: a part has no file name; give each file one");
    let json = fixture.post(&format!("/jobs/{id}/files"), json!({})).await.refusal();
    assert_eq!(
        json,
        "415 | the body is of no type that is understood here; send the header Content-Type: multipart/form-data or application/x-tar"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_archives_reach_nothing_outside() {
    let fixture = Fixture::start().await;
    let id = fixture.ended_with(&["true"]).await;
    let outside = fixture.directory(&id);
    for (code, expected) in [
        ("add('../evil', b'x')", "422 path | the archive entry \"../evil\" is refused"),
        ("add('/evil', b'x')", "422 path | the archive entry \"/evil\" is refused"),
        ("add('l', type=tarfile.SYMTYPE, linkname='..')\nadd('l/evil', b'x')", "422 path | "),
        ("add('h', type=tarfile.LNKTYPE, linkname='../../../status.json')", "422 path | "),
    ] {
        let reply = upload_tar(&fixture, &id, archive(code)).await;
        assert_ne!(reply.status, 200, "{code}");
        let refusal = reply.refusal();
        assert!(refusal.starts_with(expected), "{code}: {refusal}");
    }
    let cut = archive("add('cut', b'x' * 5000)")[..2000].to_vec();
    let refusal = upload_tar(&fixture, &id, cut).await.refusal();
    assert_eq!(refusal, "422 path | the archive entry \"cut\" is refused: the archive ends in the middle of it");
    assert_eq!(fixture.fetch(&format!("/jobs/{id}/files/cut")).await.status, 404);
    let device = archive("add('dev', type=tarfile.CHRTYPE, devmajor=1, devminor=3)");
    assert_eq!(upload_tar(&fixture, &id, device).await.status, 200, "devices are left out");
    assert_eq!(fixture.fetch(&format!("/jobs/{id}/files/dev")).await.status, 404);
    assert!(!outside.join("evil").exists() && !outside.parent().unwrap().join("evil").exists());
}
