//! One name for a thing of one server among many: `<server>__<tool>`, `<server>+<uri>`. Pure.

use ringfence_bundle::ServerId;

/// `<server>__<tool>`: server names have no `__`, so the first one parts them.
pub(crate) fn joined(server: &ServerId, name: &str) -> String {
    format!("{server}__{name}")
}

/// The server and its own name for the thing.
pub(crate) fn parted(name: &str) -> Option<(ServerId, &str)> {
    let (server, name) = name.split_once("__")?;
    Some((ServerId::parse(server).ok()?, name))
}

/// `<server>+<uri>`: server names have no `+`.
pub(crate) fn joined_uri(server: &ServerId, uri: &str) -> String {
    format!("{server}+{uri}")
}

/// The server and its own URI.
pub(crate) fn parted_uri(uri: &str) -> Option<(ServerId, &str)> {
    let (server, uri) = uri.split_once('+')?;
    Some((ServerId::parse(server).ok()?, uri))
}

#[cfg(test)]
mod tests {
    use super::{joined, joined_uri, parted, parted_uri};
    use ringfence_bundle::ServerId;

    #[test]
    fn what_is_joined_is_parted_again() {
        for server in ["a", "a-b", "a_b", "9"] {
            let server = ServerId::parse(server).unwrap();
            for name in ["t", "_t", "a_b", "-x", "x/y"] {
                assert_eq!(parted(&joined(&server, name)), Some((server.clone(), name)));
            }
            for uri in ["file:///a+b", "+", "a__b://c"] {
                assert_eq!(parted_uri(&joined_uri(&server, uri)), Some((server.clone(), uri)));
            }
        }
        for bad in ["", "t", "__t", "A__t", "a b__t", "é__t"] {
            assert_eq!(parted(bad), None, "{bad}");
        }
    }
}
