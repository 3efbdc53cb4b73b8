//! The environment of a sandboxed process: composed from nothing.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};

use ringfence_bundle::{Id, Manifest, SANDBOX_PATH};

use crate::plan::GATE_PORT;

/// What any process gets: a path, a language, and the one way out, which is at this address.
pub(crate) fn base(proxy: &str, peer: IpAddr) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> =
        vec![("PATH".into(), SANDBOX_PATH.into()), ("LANG".into(), "C.UTF-8".into())];
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"]
    {
        env.push((name.into(), proxy.into()));
    }
    let mut direct = String::from("127.0.0.1,localhost,::1");
    if peer != std::net::Ipv4Addr::LOCALHOST {
        direct = format!("{direct},{peer}");
    }
    for name in ["NO_PROXY", "no_proxy"] {
        env.push((name.into(), direct.clone().into()));
    }
    // Node.js honours the variables above only when told to.
    env.push(("NODE_USE_ENV_PROXY".into(), "1".into()));
    env
}

/// What the agent gets besides: the gates, and its terminal's type.
pub(crate) fn agent(
    manifest: &Manifest,
    peer: IpAddr,
    terminal: Option<&str>,
) -> Vec<(OsString, OsString)> {
    let gate = SocketAddr::new(peer, GATE_PORT);
    let url = |id: &Id| format!("http://{gate}/{id}/mcp");
    let mut env: Vec<(OsString, OsString)> =
        manifest.servers.keys().map(|id| (id.url_variable().into(), url(id).into())).collect();
    if !env.is_empty() {
        // All of the selected servers as one, and a search over them.
        let door = |path: &str| format!("http://{gate}{path}").into();
        env.push(("RINGFENCE_MCP_URL".into(), door("/mcp")));
        env.push(("RINGFENCE_MCP_COMPACT_URL".into(), door("/compact/mcp")));
    }
    if let Some(terminal) = terminal.filter(|t| is_terminal_name(t)) {
        env.push(("TERM".into(), terminal.into()));
    }
    env
}

fn is_terminal_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::{agent, is_terminal_name};
    use ringfence_bundle::Manifest;

    const HERE: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_terminal_name_cannot_carry_anything_else() {
        assert!(is_terminal_name("xterm-256color"));
        for bad in ["", "a b", "x;y", "$(id)", "/etc/passwd", &"x".repeat(65)] {
            assert!(!is_terminal_name(bad), "{bad}");
        }
        assert_eq!(
            agent(&Manifest::default(), HERE, Some("xterm")),
            vec![("TERM".into(), "xterm".into())]
        );
        assert!(agent(&Manifest::default(), HERE, Some("x\n")).is_empty());
    }

    #[test]
    fn an_agent_knows_each_server_all_of_them_and_a_search() {
        let text = "version = 1\n[servers.a-b]\ntype = \"http\"\nurl = \"https://a.example/mcp\"\n";
        let file = std::path::Path::new("ringfence.toml");
        let (manifest, _) = ringfence_bundle::parse_manifest(file, text, None).unwrap();
        let names: Vec<_> =
            agent(&manifest, HERE, None).into_iter().map(|(name, _)| name).collect();
        let known = ["RINGFENCE_MCP_A_B_URL", "RINGFENCE_MCP_URL", "RINGFENCE_MCP_COMPACT_URL"];
        assert_eq!(names, known.map(std::ffi::OsString::from));
    }
}
