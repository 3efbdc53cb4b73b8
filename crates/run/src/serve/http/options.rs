//! Where it may listen, and by which names it answers. Pure.

use std::net::{IpAddr, SocketAddr};

/// Whether this address may be listened on so.
pub(super) fn allowed(address: SocketAddr, tls: bool, plain: bool) -> Result<(), String> {
    if address.ip().is_loopback() || tls || plain {
        return Ok(());
    }
    Err("other machines reach this address, and without TLS everyone on the way reads the tokens; give \
         --tls-cert and --tls-key, or listen on 127.0.0.1, or say --unencrypted-on-the-network"
        .into())
}

/// What `Host` and `Origin` may say.
pub(super) fn names(
    address: SocketAddr,
    scheme: &str,
    hosts: &[String],
    origins: &[String],
) -> Result<(Vec<String>, Vec<String>), String> {
    let port = address.port();
    let own = match address.ip() {
        ip if ip.is_loopback() => vec!["127.0.0.1".into(), "localhost".into(), "[::1]".into()],
        // Every address of this machine: its names have to be said.
        ip if ip.is_unspecified() => vec!["127.0.0.1".into(), "localhost".into(), "[::1]".into()],
        IpAddr::V4(ip) => vec![ip.to_string()],
        IpAddr::V6(ip) => vec![format!("[{ip}]")],
    };
    let mut all: Vec<String> = own.iter().map(|host| format!("{host}:{port}")).collect();
    for given in hosts {
        let host = authority(given).ok_or_else(|| {
            format!(
                "--host {}: expected a name or address, with or without a port",
                given.escape_debug()
            )
        })?;
        if !has_port(&host) {
            all.push(format!("{host}:{port}"));
        }
        all.push(host);
    }
    let mut from: Vec<String> = all.iter().map(|host| format!("{scheme}://{host}")).collect();
    for given in origins {
        let expected = || {
            let given = given.escape_debug();
            format!(
                "--origin {given}: expected http://host[:port] or https://host[:port], and no path"
            )
        };
        let lower = given.to_ascii_lowercase();
        let (scheme, host) = lower.split_once("://").ok_or_else(expected)?;
        let host = authority(host).filter(|_| matches!(scheme, "http" | "https"));
        from.push(format!("{scheme}://{}", host.ok_or_else(expected)?));
    }
    // With the scheme's own port or without it: the same place.
    let default = if scheme == "https" { ":443" } else { ":80" };
    let bare: Vec<_> =
        all.iter().filter_map(|host| host.strip_suffix(default)).map(str::to_owned).collect();
    all.extend(bare);
    Ok((all, from))
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'))
}

/// A host with or without a port, in lower case.
fn authority(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text.as_str(), None),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err() || port.starts_with('+')) {
        return None;
    }
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let ok = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(name) && host != "null",
    };
    ok.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::{allowed, names};

    #[test]
    fn beyond_this_machine_it_takes_tls_or_an_explicit_word() {
        for local in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            allowed(local.parse().unwrap(), false, false).unwrap();
        }
        for open in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:127.0.0.1]:1"] {
            let open = open.parse().unwrap();
            assert!(allowed(open, false, false).unwrap_err().contains("--tls-cert"));
            allowed(open, true, false).unwrap();
            allowed(open, false, true).unwrap();
        }
    }

    #[test]
    fn it_answers_to_its_own_names_and_to_those_that_were_said() {
        let address = "127.0.0.1:8443".parse().unwrap();
        let given = |hosts: &[&str], origins: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
            names(address, "https", &owned(hosts), &owned(origins))
        };
        let (hosts, origins) = given(&[], &[]).unwrap();
        assert_eq!(hosts, ["127.0.0.1:8443", "localhost:8443", "[::1]:8443"]);
        assert_eq!(origins[1], "https://localhost:8443");
        let (hosts, origins) =
            given(&["GW.example", "x:1", "y:443"], &["http://App.example"]).unwrap();
        for host in ["gw.example", "gw.example:8443", "x:1", "y:443", "y"] {
            assert!(hosts.contains(&host.to_owned()), "{host}: {hosts:?}");
        }
        assert!(!hosts.contains(&"x".to_owned()));
        assert!(origins.contains(&"http://app.example".to_owned()));
        for bad in ["", "a b", "a/b", "http://a", "a:b", "a:99999", "a:+1", "[x]", "é", "null", "*"]
        {
            assert!(given(&[bad], &[]).is_err(), "{bad}");
        }
        for bad in
            ["", "null", "a", "*", "ftp://a", "http://", "http://a/", "http://a/b", "http://null"]
        {
            assert!(given(&[], &[bad]).is_err(), "{bad}");
        }
    }
}
