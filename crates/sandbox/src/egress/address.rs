//! Which addresses are public. Judges addresses only; names are the policy's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Public,
    /// What it is instead, as it fits into "{host} is ...".
    Private(&'static str),
    /// A cloud's metadata service: it hands out credentials to whoever asks.
    Metadata,
}

/// One address, one form: an IPv4 address that is written as IPv6 reaches the same machine as itself.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// By the address alone.
pub(super) fn judge(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => judge_v4(address),
        IpAddr::V6(address) => judge_v6(address),
    }
}

/// Whether the address is one of this machine's, public as it may look: the kernel then picks it as its own sender.
/// Connecting a UDP socket asks the routing table and sends nothing.
pub(super) fn is_of_this_machine(address: IpAddr) -> bool {
    let anywhere: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Without a socket to ask with, the careful answer.
    let Ok(socket) = UdpSocket::bind(SocketAddr::new(anywhere, 0)) else { return true };
    match socket.connect(SocketAddr::new(address, 9)) {
        Ok(()) => socket.local_addr().map_or(true, |local| local.ip() == address),
        Err(_) => false,
    }
}

const AWS_METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

fn judge_v4(address: Ipv4Addr) -> Reach {
    let private = Reach::Private;
    match address.octets() {
        [169, 254, 169, 254] | [100, 100, 100, 200] => Reach::Metadata,
        [0, ..] => private("the address of no machine"),
        [127, ..] => private("a loopback address"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => private("a private address"),
        [100, 64..=127, ..] => private("a carrier's private address"),
        [169, 254, ..] => private("a link-local address"),
        [192, 0, 0, _] | [192, 88, 99, _] => private("an address reserved for protocols"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => private("an address for documentation"),
        [198, 18..=19, ..] => private("an address for benchmarks"),
        [224..=239, ..] => private("a multicast address"),
        [255, 255, 255, 255] => private("the broadcast address"),
        [240..=255, ..] => private("a reserved address"),
        _ => Reach::Public,
    }
}

fn judge_v6(address: Ipv6Addr) -> Reach {
    let private = Reach::Private;
    if address == AWS_METADATA_V6 {
        return Reach::Metadata;
    }
    let segments = address.segments();
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => private("the address of no machine"),
        [0, 0, 0, 0, 0, 0, 0, 1] => private("a loopback address"),
        // IPv4-compatible, IPv4-mapped, IPv4-translated, NAT64: the last 32 bits are where the packets end up.
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => judge_v4(embedded(high, low)),
        // NAT64 of the local network. Where the IPv4 address sits depends on the network's own prefix length, so no
        // position can be trusted to show a public one; the two usual ones can still show a metadata service.
        [0x64, 0xff9b, 1, a, b, c, high, low] => {
            let in_the_middle = embedded(a, (b << 8) | (c >> 8));
            match (judge_v4(embedded(high, low)), judge_v4(in_the_middle)) {
                (Reach::Metadata, _) | (_, Reach::Metadata) => Reach::Metadata,
                _ => private("an address of the local network's NAT64"),
            }
        }
        [0x2002, high, low, ..] => judge_v4(embedded(high, low)),
        // Teredo: the server in the clear, the client with its bits inverted; packets may go to either.
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            match (judge_v4(embedded(high, low)), judge_v4(embedded(!client_high, !client_low))) {
                (Reach::Metadata, _) | (_, Reach::Metadata) => Reach::Metadata,
                (Reach::Public, client) => client,
                (server, _) => server,
            }
        }
        [0x2001, 0..=0x1ff, ..] => private("an address reserved for protocols"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => private("an address for documentation"),
        [0xfc00..=0xfdff, ..] => private("a private address"),
        [0xfe80..=0xfebf, ..] => private("a link-local address"),
        [0xfec0..=0xfeff, ..] => private("a site-local address"),
        [0xff00..=0xffff, ..] => private("a multicast address"),
        // The only block handed out to the public so far; the rest is reserved, whatever it will be for.
        [0x2000..=0x3fff, ..] => Reach::Public,
        _ => private("a reserved address"),
    }
}

fn embedded(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Reach {
        judge(canonical(text.parse().unwrap()))
    }

    #[test]
    fn public_addresses_are_public() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:200::1",
            "2001:db7::1",
            "64:ff9b::1.1.1.1",
            "::ffff:1.1.1.1",
            "2002:101:101::1",
            "2001:0:101:101:0:0:fefe:fefe",
        ] {
            assert_eq!(judged(text), Reach::Public, "{text}");
        }
    }

    #[test]
    fn every_other_address_is_private() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.1",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::10.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::1.1.1.1",
            "64:ff9b:2::1",
            "2002:7f00:1::1",
            "2002:a00:1::1",
            "2001:0:7f00:1::",
            "2001:0:101:101:0:0:80ff:fffe",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "feff::1",
            "ff02::1",
            "4000::1",
            "1::1",
        ] {
            assert!(matches!(judged(text), Reach::Private(_)), "{text}: {:?}", judged(text));
        }
    }

    #[test]
    fn metadata_services_are_known_in_every_disguise() {
        for text in [
            "169.254.169.254",
            "100.100.100.200",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "64:ff9b:1:a9fe:00a9:fe00::",
            "2002:a9fe:a9fe::1",
            "2001:0:101:101:0:0:5601:5601",
        ] {
            assert_eq!(judged(text), Reach::Metadata, "{text}");
        }
    }

    #[test]
    fn this_machine_knows_its_own_address() {
        assert!(is_of_this_machine(Ipv4Addr::LOCALHOST.into()));
    }
}
