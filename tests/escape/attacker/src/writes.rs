//! Writing outside of the workspace: the system's directories, the kernel's settings, other processes' settings.
//! Each act tries every way to change one thing; the ways leave it as it was if they work.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::Act;
use crate::guard::Place::{Anywhere, Sandbox};
use crate::outcome::{Outcome, any, tried};
use crate::sys::{self, CWD, at, text};

pub const ACTS: &[Act] = &[
    ("create-in", Anywhere, create_in),
    ("change-file", Anywhere, change_file),
    ("replace-file", Sandbox, replace_file),
    ("remove-file", Sandbox, |a| tried("removing it", fs::remove_file(&a[0]))),
    ("system-request", Sandbox, |_| system_request()),
    ("open-for-writing", Anywhere, |a| any(a.iter().map(|path| tried(path, File::options().write(true).open(path))))),
    ("set-attribute", Anywhere, set_attribute),
];

/// A file and a directory in each directory that is named.
fn create_in(arguments: &[String]) -> Outcome {
    any(arguments.iter().flat_map(|directory| {
        let name = format!("{directory}/planted-by-attacker");
        let (made, directory_made) = (fs::write(&name, "planted"), fs::create_dir(format!("{name}-directory")));
        [tried(&name, made), tried(&format!("{name}-directory"), directory_made)]
    }))
}

/// "Show memory", the most harmless request. The mask takes the letter, and nothing comes of it: what counts is that
/// behind the name is not the kernel's file.
fn system_request() -> Outcome {
    const NULL_DEVICE: u64 = libc::makedev(1, 3);
    let path = "/proc/sysrq-trigger";
    match fs::metadata(path) {
        Ok(found) if found.rdev() == NULL_DEVICE => Outcome::Held(format!("{path} is masked")),
        Ok(_) => tried(path, fs::write(path, "m")),
        Err(error) => Outcome::Held(format!("{path}: {error}")),
    }
}

/// Content, length, mode, times and owner of one file.
fn change_file(arguments: &[String]) -> Outcome {
    let path = arguments[0].as_str();
    let c_path = text(path);
    // SAFETY: neither call takes an argument or can fail.
    let (user, group) = unsafe { (libc::getuid() as usize, libc::getgid() as usize) };
    any([
        tried("appending", File::options().append(true).open(path)),
        tried("truncating", sys::call(libc::SYS_truncate, &[at(&c_path), 1 << 20])),
        tried("chmod", fs::set_permissions(path, Permissions::from_mode(0o777))),
        tried("chown", sys::call(libc::SYS_fchownat, &[CWD, at(&c_path), user, group, 0])),
        tried("setting its times", sys::call(libc::SYS_utimensat, &[CWD, at(&c_path), 0, 0])),
    ])
}

/// A file of one's own, renamed over another.
fn replace_file(arguments: &[String]) -> Outcome {
    let near = format!("{}.new", arguments[0]);
    let source = if fs::write(&near, "replaced").is_ok() { near } else { "replacement".to_owned() };
    let _ = fs::write(&source, "replaced");
    tried("renaming over it", fs::rename(&source, &arguments[0]))
}

/// Arguments: a file, the name of an extended attribute. A file capability is the one that matters.
fn set_attribute(arguments: &[String]) -> Outcome {
    let _ = File::create(&arguments[0]);
    let (path, name) = (text(&arguments[0]), text(&arguments[1]));
    // Version 2 of a file capability: all of them, permitted and effective.
    let value: [u32; 5] = [0x0200_0001, u32::MAX, 0, u32::MAX, 0];
    let set = sys::call(libc::SYS_setxattr, &[at(&path), at(&name), value.as_ptr() as usize, 20, 0]);
    tried("setting a file capability", set)
}
