//! Messages with descriptors: JSON over a SOCK_SEQPACKET Unix socket, file descriptors beside it. One `send` is one
//! `receive`; the other end closing is an `UnexpectedEof`. Used between launcher, guest and spawner.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::MemfdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest message: an exec request with the largest arguments and environment the protocol accepts, every byte
/// of them escaped.
pub const MESSAGE_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Above this a message travels in a memory file: a socket takes only as much at once as its buffer holds.
const INLINE_MAX_BYTES: usize = 64 * 1024;
/// Stands for "the first descriptor holds the message". No JSON is this short and begins so.
const IN_FILE: &[u8] = b"@";
/// The most descriptors in one message.
pub const DESCRIPTORS_MAX: usize = 16;

/// A connected pair. Both ends are close-on-exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

pub fn send<T: Serialize>(socket: impl AsFd, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
    if bytes.len() > MESSAGE_MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is larger than 4 MiB"));
    }
    if bytes.len() <= INLINE_MAX_BYTES {
        return send_bytes(socket.as_fd(), &bytes, descriptors);
    }
    let mut file = File::from(rustix::fs::memfd_create("message", MemfdFlags::CLOEXEC)?);
    file.write_all(&bytes)?;
    let all: Vec<_> = [file.as_fd()].into_iter().chain(descriptors.iter().copied()).collect();
    send_bytes(socket.as_fd(), IN_FILE, &all)
}

fn send_bytes(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors in one message"));
    }
    let buffers = [IoSlice::new(bytes)];
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(socket, &buffers, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<(T, Vec<OwnedFd>)> {
    let (mut bytes, mut descriptors) = receive_bytes(socket.as_fd())?;
    if bytes == IN_FILE {
        if descriptors.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let file = File::from(descriptors.remove(0));
        let length = file.metadata()?.len().min(MESSAGE_MAX_BYTES as u64) as usize;
        bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0)?;
    }
    let message = serde_json::from_slice(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((message, descriptors))
}

fn receive_bytes(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    // Ask for the length first: messages are small as a rule, and an idle process should not keep a large buffer.
    let mut probe = [0u8; 1];
    let (_, length) = despite_reset(|| rustix::net::recv(socket, &mut probe, RecvFlags::PEEK | RecvFlags::TRUNC))?;
    let mut bytes = vec![0u8; length.min(INLINE_MAX_BYTES)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = despite_reset(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let descriptors: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(received.bytes);
    Ok((bytes, descriptors))
}

/// An end that closes with something of ours unread makes one call here fail, whichever comes next; what it had said
/// before is still there.
fn despite_reset<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    match rustix::io::retry_on_intr(&mut call) {
        Err(rustix::io::Errno::CONNRESET) => rustix::io::retry_on_intr(call),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors_and_the_end_is_an_eof() {
        let (ours, theirs) = pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        send(&ours, &vec!["x".repeat(1_000_000)], &[file.as_fd()]).unwrap();
        send(&ours, &vec!["second"], &[]).unwrap();
        let (first, descriptors) = receive::<Vec<String>>(&theirs).unwrap();
        assert_eq!((first[0].len(), descriptors.len()), (1_000_000, 1));
        assert_eq!(receive::<Vec<String>>(&theirs).unwrap().0, ["second"]);
        // What was said before an end that left something unread is heard all the same.
        send(&theirs, &vec!["unread"], &[]).unwrap();
        send(&ours, &vec!["last"], &[]).unwrap();
        drop(ours);
        assert_eq!(receive::<Vec<String>>(&theirs).unwrap().0, ["last"]);
        assert_eq!(receive::<Vec<String>>(&theirs).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
