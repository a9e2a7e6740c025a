//! Reaching anything beyond the sandbox's own loopback: services of the host, the proxy misused, other address
//! families. Nothing here leaves the machine: addresses are loopback, or reserved for documentation and only tried
//! where there is no route.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::Act;
use crate::guard::Place::{Anywhere, Namespaced, Sandbox};
use crate::outcome::{Outcome, any, tried};
use crate::sys::{self, call};

pub const ACTS: &[Act] = &[
    ("connect", Anywhere, |a| tried(&a[0], connect(&a[0]))),
    ("connect-at-once", Sandbox, connect_at_once),
    ("send-datagram", Sandbox, |a| {
        let any_address = if a[0].starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        tried("sending a datagram", UdpSocket::bind(any_address).and_then(|socket| socket.send_to(b"x", &a[0])))
    }),
    ("connect-abstract", Anywhere, |a| {
        let name = std::os::unix::net::SocketAddr::from_abstract_name(a[0].as_bytes());
        tried("the abstract socket", name.and_then(|name| UnixStream::connect_addr(&name)))
    }),
    ("connect-path", Anywhere, |a| tried(&a[0], UnixStream::connect(&a[0]))),
    ("through-proxy", Anywhere, through_proxy),
    ("socket", Namespaced, |a| {
        let number = |index: usize| a[index].parse().unwrap_or(0);
        tried("a socket", call(libc::SYS_socket, &[number(0), number(1), number(2)]))
    }),
    ("add-address", Namespaced, |_| add_address()),
    ("interfaces", Anywhere, interfaces),
    ("listen", Anywhere, listen),
];

fn connect(address: &str) -> io::Result<TcpStream> {
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    TcpStream::connect_timeout(&address, Duration::from_secs(2))
}

/// A direct connection has to fail, and without a wait: waiting would mean that a packet was sent.
fn connect_at_once(arguments: &[String]) -> Outcome {
    let began = Instant::now();
    match connect(&arguments[0]) {
        Ok(_) => Outcome::Broken(format!("connected to {}", arguments[0])),
        Err(error) if began.elapsed() > Duration::from_secs(1) => {
            Outcome::Broken(format!("something was waited for: {error} after {:?}", began.elapsed()))
        }
        Err(error) => Outcome::Held(format!("{}: {error}", arguments[0])),
    }
}

/// Arguments: the proxy, then a target. Both ways in which a proxy can be asked.
fn through_proxy(arguments: &[String]) -> Outcome {
    let target = &arguments[1];
    let ask = |request: String| -> io::Result<String> {
        let mut stream = connect(&arguments[0])?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = [0; 512];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    };
    let judge = |answer: io::Result<String>| match answer {
        Ok(text) if text.split(' ').nth(1).is_some_and(|code| code.starts_with('2')) => {
            Outcome::Broken(format!("the proxy connected to {target}"))
        }
        Ok(text) => Outcome::Held(text.lines().next().unwrap_or("no answer").to_owned()),
        Err(error) => Outcome::Held(format!("the proxy: {error}")),
    };
    any([
        judge(ask(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"))),
        judge(ask(format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n"))),
    ])
}

/// RTM_NEWADDR: 192.0.2.1/32 for interface 1, loopback.
fn add_address() -> Outcome {
    let change = || -> io::Result<()> {
        let kind = (libc::SOCK_RAW | libc::SOCK_CLOEXEC) as usize;
        let socket = call(libc::SYS_socket, &[libc::AF_NETLINK as usize, kind, 0])?;
        // nlmsghdr (length, type, flags: REQUEST | ACK | CREATE | EXCL, sequence, port), ifaddrmsg, rtattr IFA_LOCAL.
        let mut message: Vec<u8> = Vec::new();
        message.extend_from_slice(&32u32.to_ne_bytes());
        message.extend_from_slice(&20u16.to_ne_bytes());
        message.extend_from_slice(&0x0605u16.to_ne_bytes());
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(&[libc::AF_INET as u8, 32, 0, 0]);
        message.extend_from_slice(&1u32.to_ne_bytes());
        message.extend_from_slice(&[8, 0, 2, 0, 192, 0, 2, 1]);
        call(libc::SYS_sendto, &[socket, message.as_ptr() as usize, message.len(), 0, 0, 0])?;
        let mut answer = [0u8; 256];
        call(libc::SYS_recvfrom, &[socket, answer.as_mut_ptr() as usize, 256, 0, 0, 0])?;
        match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        }
    };
    tried("adding an address", change())
}

fn interfaces(_: &[String]) -> Outcome {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = table.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    let foreign: Vec<String> = names.filter(|name| name != "lo").collect();
    let routes = fs::read_to_string("/proc/self/net/route").unwrap_or_default().lines().skip(1).count();
    if foreign.is_empty() && routes == 0 {
        Outcome::Held("only lo, and no route".into())
    } else {
        Outcome::Broken(format!("interfaces {foreign:?}, {routes} routes"))
    }
}

/// Listens on a port of every address until somebody comes or the file `stop` appears. Arguments: the port.
fn listen(arguments: &[String]) -> Outcome {
    let listener = match TcpListener::bind(format!("0.0.0.0:{}", arguments[0])) {
        Ok(listener) => listener,
        Err(error) => return Outcome::Held(format!("listening: {error}")),
    };
    let _ = listener.set_nonblocking(true);
    let _ = fs::write("listening", "");
    let mut reached = false;
    sys::until(Duration::from_secs(10), || {
        reached = listener.accept().is_ok();
        reached || fs::exists("stop").unwrap_or(true)
    });
    if reached { Outcome::Broken("somebody outside reached it".into()) } else { Outcome::Held("nobody came".into()) }
}
