//! Reaching anything but the sandbox's own loopback. Nothing leaves the machine: the proxy refuses before it
//! connects, which its log shows, and addresses for documentation are only tried where there is no route.

use std::time::Duration;

use cofferdam_sandbox::local::SandboxSpec;

use crate::attack::{Attack, Finding, Outside};
use crate::stage::{Stage, line};
use crate::verdict::Category;

const fn act(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    Attack::act(Category::Network, name, description, arguments)
}

const fn socket(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    act(name, description, arguments).outside(Outside::InNamespaces)
}

const fn proxied(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    act(name, description, arguments).outside(Outside::Never("there is no proxy outside"))
}

const NO_PACKETS: Outside = Outside::Never("it would send packets to a network");

pub(super) const ATTACKS: &[Attack] = &[
    act("host-loopback", "connects to a service on the host's 127.0.0.1", &["connect", "127.0.0.1:{port}"]).shown(),
    act("host-loopback-ipv6", "connects to a service on the host's ::1", &["connect", "[::1]:{port6}"]),
    act("host-abstract-socket", "connects to an abstract socket of the host's", &["connect-abstract", "{abstract}"])
        .shown(),
    act("host-socket-file", "connects to a socket file of the host's", &["connect-path", "{socket}"]).shown(),
    act("docker-socket", "connects to the container engine, which is root", &["connect-path", "/run/docker.sock"]),
    act("system-bus", "connects to the system's bus", &["connect-path", "/run/dbus/system_bus_socket"]),
    act("direct-connection", "connects without the proxy", &["connect-at-once", "192.0.2.1:80"]).outside(NO_PACKETS),
    act("direct-connection-ipv6", "the same with IPv6", &["connect-at-once", "[2001:db8::1]:80"]).outside(NO_PACKETS),
    act("direct-metadata", "asks the cloud's metadata service", &["connect-at-once", "169.254.169.254:80"])
        .outside(NO_PACKETS),
    act("datagram", "sends a datagram out", &["send-datagram", "192.0.2.1:53"]).outside(NO_PACKETS),
    act("datagram-ipv6", "sends a datagram out with IPv6", &["send-datagram", "[2001:db8::1]:53"]).outside(NO_PACKETS),
    proxied(
        "proxy-metadata",
        "asks the metadata service through the proxy",
        &["through-proxy", "127.0.0.1:3128", "169.254.169.254:80"],
    ),
    proxied(
        "proxy-metadata-disguised",
        "the same in IPv6 notation",
        &["through-proxy", "127.0.0.1:3128", "[::ffff:169.254.169.254]:80"],
    ),
    proxied(
        "proxy-host-loopback",
        "reaches the host's loopback through the proxy",
        &["through-proxy", "127.0.0.1:3128", "127.0.0.1:{port}"],
    ),
    proxied(
        "proxy-host-by-name",
        "the same by the name localhost",
        &["through-proxy", "127.0.0.1:3128", "localhost:{port}"],
    ),
    proxied(
        "proxy-host-any",
        "the same by the address 0.0.0.0",
        &["through-proxy", "127.0.0.1:3128", "0.0.0.0:{port}"],
    ),
    proxied(
        "proxy-host-number",
        "the same by the address as one number",
        &["through-proxy", "127.0.0.1:3128", "2130706433:{port}"],
    ),
    proxied("proxy-host-short", "the same by the address 127.1", &["through-proxy", "127.0.0.1:3128", "127.1:{port}"]),
    proxied("proxy-host-ipv6", "the same with ::1", &["through-proxy", "127.0.0.1:3128", "[::1]:{port6}"]),
    proxied(
        "proxy-private",
        "reaches a private network through the proxy",
        &["through-proxy", "127.0.0.1:3128", "10.0.0.1:80"],
    ),
    socket("raw-socket", "sends packets of its own making", &["socket", "2", "3", "1"]).shown(),
    socket("raw-socket-ipv6", "the same with IPv6", &["socket", "10", "3", "58"]),
    socket("packet-socket", "listens to a whole interface", &["socket", "17", "3", "768"]),
    socket("vsock", "speaks to the hypervisor", &["socket", "40", "1", "0"]),
    socket("alg-socket", "uses the kernel's ciphers, a source of exploits", &["socket", "38", "5", "0"]),
    socket("bluetooth-socket", "speaks to devices", &["socket", "31", "3", "1"]),
    socket("key-socket", "changes IPsec", &["socket", "15", "3", "2"]),
    socket("xdp-socket", "takes packets from a device", &["socket", "44", "3", "0"]),
    socket("tipc-socket", "loads a module by asking for its family", &["socket", "30", "5", "0"]),
    socket("netlink-audit", "speaks to the audit system", &["socket", "16", "3", "9"]).shown(),
    socket("netlink-netfilter", "speaks to the firewall, a source of exploits", &["socket", "16", "3", "12"]),
    socket("netlink-events", "forges device events", &["socket", "16", "3", "15"]).shown(),
    socket("add-address", "gives an interface another address", &["add-address"]).shown(),
    act("interfaces", "finds an interface that leads somewhere", &["interfaces"]),
    Attack::scene(
        Category::Network,
        "listen-for-the-host",
        "offers a service on the host's addresses",
        |stage| Box::pin(listen(stage)),
        Outside::Never("every program that listens shows it"),
    ),
];

/// A port that is free on the host, listened on inside, must stay closed on the host.
async fn listen(stage: &Stage<'_>) -> Finding {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        free.local_addr().map_err(|error| error.to_string())?.port()
    };
    let sandbox = stage.launch(&SandboxSpec::default()).await?;
    let port_text = port.to_string();
    let request = stage.request(&["listen", &port_text]);
    let outside = async {
        wait_for_file(&sandbox, b"listening").await?;
        let reached = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok();
        let body = cofferdam_sandbox::client::RequestBody::Bytes(None);
        let _ = sandbox.client().write_file(b"stop", body, Default::default()).await;
        if reached { Err("the host's port was opened".to_owned()) } else { Ok(()) }
    };
    let (finished, seen) = tokio::join!(stage.act(sandbox.client(), &request), outside);
    seen?;
    let said = line(&finished?)?;
    sandbox.destroy().await.map_err(|error| error.to_string())?;
    Ok(said)
}

/// Until an act has got so far as to make a file.
pub(super) async fn wait_for_file(sandbox: &cofferdam_sandbox::local::Sandbox, path: &[u8]) -> Result<(), String> {
    for _ in 0..1_000 {
        if sandbox.client().stat(path).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(format!("{} did not appear", String::from_utf8_lossy(path)))
}
