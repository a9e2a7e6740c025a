//! The guest's own file interface, used against the host: it works outside of the sandbox's walls, so every path it
//! is given and every entry of an archive is an attempt to have it reach further than the workspace.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use bytes::Bytes;
use cofferdam_sandbox::client::{Client, RequestBody, WriteFile};
use http_body_util::BodyExt;

use crate::attack::{Attack, Finding, Outside, Scene};
use crate::facts::Facts;
use crate::stage::Stage;
use crate::verdict::Category;

const fn scene(name: &'static str, description: &'static str, scene: Scene, outside: Outside) -> Attack {
    Attack::scene(Category::FileInterface, name, description, scene, outside)
}

pub(super) const ATTACKS: &[Attack] = &[
    scene(
        "interface-symlink",
        "has the guest read, write and remove through a symlink",
        |stage| Box::pin(through_symlink(stage)),
        Outside::Scene(|stage| Box::pin(symlink_outside(stage))),
    )
    .shown(),
    scene(
        "interface-dot-dot",
        "names paths above the workspace",
        |stage| Box::pin(above_workspace(stage)),
        Outside::Never("there is no guest outside"),
    ),
    scene(
        "interface-set-uid",
        "has the guest write a file with mode 4755",
        |stage| Box::pin(set_uid_by_mode(stage)),
        Outside::Never("there is no guest outside"),
    ),
    scene(
        "archive-set-uid",
        "unpacks an archive with a set-uid file",
        |stage| Box::pin(set_uid_by_archive(stage)),
        Outside::Scene(|stage| Box::pin(archive_outside(stage))),
    )
    .shown(),
    scene(
        "archive-escape",
        "unpacks an archive whose names and links lead outside",
        |stage| Box::pin(archive_escape(stage)),
        Outside::Never("no tool of this machine is asked to do that"),
    ),
];

/// What the guest gave for a path, or its refusal.
pub(super) async fn read(client: &Client, path: &[u8]) -> Result<Vec<u8>, String> {
    let body = client.read_file(path, None).await.map_err(|error| error.to_string())?;
    Ok(body.collect().await.map_err(|error| error.to_string())?.to_bytes().to_vec())
}

pub(super) fn content(text: &'static str) -> RequestBody {
    RequestBody::Bytes(Some(Bytes::from_static(text.as_bytes())))
}

async fn through_symlink(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.sandbox()?;
    let client = sandbox.client();
    // Made from outside: that a program inside can make them, too, is shown elsewhere.
    for (name, target) in [("to-file", stage.facts.secret.as_path()), ("to-directory", stage.facts.directory())] {
        let _ = fs::remove_file(stage.workspace.path().join(name));
        symlink(target, stage.workspace.path().join(name)).map_err(|error| error.to_string())?;
    }
    let mut seen = Vec::new();
    for path in [b"to-file".as_slice(), b"to-directory/secret", b"to-directory/../secret"] {
        seen.extend(read(client, path).await.unwrap_or_default());
        let _ = client.write_file(path, content("overwritten"), WriteFile::default()).await;
        let _ = client.write_file(path, content("more"), WriteFile { append: true, ..WriteFile::default() }).await;
        if let Ok(body) = client.tar_out(path).await {
            seen.extend(body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default());
        }
    }
    for path in [b"to-directory/planted".as_slice(), b"to-directory/deep/planted"] {
        let options = WriteFile { parents: true, ..WriteFile::default() };
        let _ = client.write_file(path, content("planted"), options).await;
    }
    let _ = client.make_directory(b"to-directory/planted", true).await;
    let _ = client.rename(b"to-directory/secret", b"stolen").await;
    seen.extend(read(client, b"stolen").await.unwrap_or_default());
    let listed = client.tree(b"to-directory", 4).await.map(|list| list.entries.len()).unwrap_or(0);
    let _ = client.remove(b"to-directory/secret", false).await;
    let _ = client.remove(b"to-directory", true).await;
    stage.look_around(sandbox, &seen).await?;
    if listed > 0 {
        return Err(format!("{listed} names were listed through a symlink"));
    }
    Ok("nothing was read, written or removed through them".to_owned())
}

async fn symlink_outside(stage: &Stage<'_>) -> Finding {
    let facts = Facts::new(&stage.program()).map_err(|error| error.to_string())?;
    let link = facts.work().join("to-file");
    symlink(&facts.secret, &link).map_err(|error| error.to_string())?;
    let read = fs::read_to_string(&link).map_err(|error| error.to_string())?;
    if read == facts.marker { Ok("a plain read follows it".to_owned()) } else { Err(read) }
}

async fn above_workspace(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.sandbox()?;
    let client = sandbox.client();
    let absolute = stage.facts.secret.display().to_string();
    let mut seen = Vec::new();
    for prefix in ["", "/", "//", "..", "../../../../../../..", "./../../../../../..", "x/../../../../../../.."] {
        let path = format!("{prefix}{absolute}");
        seen.extend(read(client, path.as_bytes()).await.unwrap_or_default());
        let _ = client.write_file(path.as_bytes(), content("overwritten"), WriteFile::default()).await;
        let _ = client.remove(path.as_bytes(), true).await;
        let _ = client.rename(path.as_bytes(), b"stolen").await;
    }
    for path in [b"..".as_slice(), b"../..", b"attacker/../..", b"."] {
        let listed = client.list(path).await.map(|list| list.entries).unwrap_or_default();
        if listed.iter().any(|entry| entry.path == "etc" || entry.path == "usr") {
            return Err("the root directory was listed".to_owned());
        }
    }
    stage.look_around(sandbox, &seen).await?;
    Ok("no such path leads out".to_owned())
}

async fn set_uid_by_mode(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.sandbox()?;
    for mode in [0o4755, 0o2755, 0o6777, 0o104755] {
        let options = WriteFile { mode: Some(mode), ..WriteFile::default() };
        let _ = sandbox.client().write_file(b"set-uid", content("x"), options).await;
        stage.look_around(sandbox, &[]).await?;
    }
    Ok("the bits are refused or left out".to_owned())
}

fn archive(build: impl FnOnce(&mut tar::Builder<Vec<u8>>) -> std::io::Result<()>) -> Result<Vec<u8>, String> {
    let mut builder = tar::Builder::new(Vec::new());
    build(&mut builder).and_then(|()| builder.into_inner()).map_err(|error| error.to_string())
}

/// A header whose name is taken as it is: the library would refuse to write such names.
fn header(name: &str, kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    let bytes = name.as_bytes();
    header.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_cksum();
    header
}

fn set_uid_archive() -> Result<Vec<u8>, String> {
    archive(|builder| {
        builder.append(&header("archived-set-uid", tar::EntryType::Regular, 0o4755, 1), b"x".as_slice())?;
        builder.append(&header("archived-set-gid", tar::EntryType::Directory, 0o2755, 0), b"".as_slice())
    })
}

async fn set_uid_by_archive(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.sandbox()?;
    let body = RequestBody::Bytes(Some(set_uid_archive()?.into()));
    let unpacked = sandbox.client().tar_in(b"", body).await;
    stage.look_around(sandbox, &[]).await?;
    Ok(format!("unpacked: {}, without the bits", unpacked.is_ok()))
}

async fn archive_outside(stage: &Stage<'_>) -> Finding {
    let facts = Facts::new(&stage.program()).map_err(|error| error.to_string())?;
    let bytes = set_uid_archive()?;
    let mut archive = tar::Archive::new(bytes.as_slice());
    archive.set_preserve_permissions(true);
    archive.unpack(facts.work()).map_err(|error| error.to_string())?;
    let found = fs::metadata(facts.work().join("archived-set-uid")).map_err(|error| error.to_string())?;
    match found.permissions().mode() & 0o7777 {
        mode if mode & 0o4000 != 0 => Ok(format!("unpacked as tar does, the mode is {mode:o}")),
        mode => Err(format!("the mode is {mode:o}")),
    }
}

async fn archive_escape(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.sandbox()?;
    let directory = stage.facts.directory().display().to_string();
    let linked = |kind: tar::EntryType, name: &str, target: &str| {
        let mut header = header(name, kind, 0o777, 0);
        header.set_link_name_literal(target).map_err(|error| error.to_string())?;
        header.set_cksum();
        Ok::<_, String>(header)
    };
    let plain = |name: &str| header(name, tar::EntryType::Regular, 0o644, 7);
    let (dot_dot, absolute) = (format!("../../../../../../..{directory}/planted"), format!("{directory}/planted"));
    let symlink = linked(tar::EntryType::Symlink, "way-out", &directory)?;
    let hard_link = linked(tar::EntryType::Link, "stolen", &stage.facts.secret.display().to_string())?;
    let device = header("device", tar::EntryType::Block, 0o666, 0);
    let archives = [
        archive(|builder| builder.append(&plain(&dot_dot), b"planted".as_slice()))?,
        archive(|builder| builder.append(&plain(&absolute), b"planted".as_slice()))?,
        archive(|builder| {
            builder.append(&symlink, b"".as_slice())?;
            builder.append(&plain("way-out/planted"), b"planted".as_slice())
        })?,
        archive(|builder| builder.append(&hard_link, b"".as_slice()))?,
        archive(|builder| builder.append(&device, b"".as_slice()))?,
    ];
    let mut seen = Vec::new();
    for bytes in archives {
        let _ = sandbox.client().tar_in(b"", RequestBody::Bytes(Some(bytes.into()))).await;
        seen.extend(read(sandbox.client(), b"stolen").await.unwrap_or_default());
    }
    if fs::symlink_metadata(stage.workspace.path().join("device")).is_ok() {
        return Err("a device file was made".to_owned());
    }
    stage.look_around(sandbox, &seen).await?;
    Ok("nothing was made or read outside".to_owned())
}
