//! Which folder a client means by its roots.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use ringfence_bundle::{Nearest, nearest};
use serde_json::Value;

/// Roots that are looked at.
const MOST: usize = 64;
/// Bytes of a root's URI.
const LONGEST: usize = 16 << 10;

/// The project of the first root that is a local folder with a bundle, in it or above it.
pub(super) fn project(roots: &Value, home: Option<&Path>) -> Option<PathBuf> {
    let roots = roots.get("roots")?.as_array()?;
    let uris = roots.iter().take(MOST).filter_map(|root| root.get("uri")?.as_str());
    uris.filter_map(local).find_map(|folder| bundle(&folder, home))
}

/// The project that somebody means who stands in this folder, if there is one.
fn bundle(folder: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok().filter(|folder| folder.is_dir())?;
    match nearest(&folder, home) {
        Nearest::Here => {
            let manifest = folder.join(".ringfence/ringfence.toml");
            manifest.symlink_metadata().is_ok().then_some(folder)
        }
        Nearest::Above(project) => Some(project),
        Nearest::Foreign(_) => None,
    }
}

/// The path of a `file://` URI (RFC 8089) on this machine. `None` for whatever two readers could read
/// in two ways: another scheme or host, a query, a fragment, a relative path, dot segments, an encoded
/// slash or NUL, a character that does not belong in a URI.
pub(super) fn local(uri: &str) -> Option<PathBuf> {
    if uri.len() > LONGEST {
        return None;
    }
    let rest = uri.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("file://"))?;
    let rest = &uri[rest.len()..];
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') || path.starts_with("//") {
        return None;
    }
    let path = PathBuf::from(OsString::from_vec(decoded(path.as_bytes())?));
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let dots = uri.split('/').any(|part| matches!(part, "." | ".."));
    (path.components().all(plain) && !dots).then_some(path)
}

fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let hex = |byte: &u8| char::from(*byte).to_digit(16);
                let (high, low) = (bytes.next().and_then(hex)?, bytes.next().and_then(hex)?);
                let byte = u8::try_from(high * 16 + low).ok()?;
                if matches!(byte, 0 | b'/') {
                    return None;
                }
                out.push(byte);
            }
            byte if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(byte) => {
                out.push(*byte);
            }
            _ => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use serde_json::json;

    use super::{local, project};

    #[test]
    fn a_file_uri_is_read_in_one_way_or_not_at_all() {
        for (uri, path) in [
            ("file:///a/b", "/a/b"),
            ("FILE:///a", "/a"),
            ("file://localhost/a", "/a"),
            ("file:///a%20b/%C3%A9", "/a b/é"),
            ("file:///a+b,c;d=e:f@g", "/a+b,c;d=e:f@g"),
            ("file:///", "/"),
            ("file:///a/", "/a/"),
        ] {
            assert_eq!(local(uri), Some(PathBuf::from(path)), "{uri}");
        }
        for bad in [
            "",
            "/a",
            "file:",
            "file:/a",
            "file:a",
            "file://",
            "file://a",
            "file://host/a",
            "file:////a",
            "file://localhost",
            "file://localhost:80/a",
            "file://user@localhost/a",
            "file://localhosts/a",
            "http://localhost/a",
            "https:///a",
            "files:///a",
            "file:///a?b",
            "file:///a#b",
            "file:///a/../b",
            "file:///a/./b",
            "file:///a/%2e%2e/b",
            "file:///a%2Fb",
            "file:///a%2fb",
            "file:///a%00",
            "file:///a%",
            "file:///a%2",
            "file:///a%zz",
            "file:///a b",
            "file:///a\\b",
            "file:///é",
            "file:///a\nb",
            "file:///a\"b",
            "file:///[a]",
        ] {
            assert_eq!(local(bad), None, "{bad:?}");
        }
        assert_eq!(local(&format!("file:///{}", "a".repeat(20_000))), None);
    }

    #[test]
    fn the_first_root_with_a_bundle_counts_also_from_below_it() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let folder = |name: &str| {
            let folder = top.join(name);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        };
        let bundle = |name: &str| {
            let own = folder(&format!("{name}/.ringfence"));
            std::fs::write(own.join("ringfence.toml"), "version = 1\n").unwrap();
        };
        bundle("one");
        bundle("two");
        folder("one/src/deep");
        folder("none");
        std::fs::write(top.join("file"), "").unwrap();
        std::os::unix::fs::symlink(top.join("two"), top.join("link")).unwrap();
        let uri = |name: &str| format!("file://{}/{name}", top.display());
        let chosen = |names: &[&str]| {
            let roots: Vec<_> = names.iter().map(|name| json!({ "uri": uri(name) })).collect();
            let project = project(&json!({ "roots": roots }), None)?;
            Some(project.strip_prefix(&top).unwrap().to_owned())
        };
        assert_eq!(chosen(&["one"]).as_deref(), Some(Path::new("one")));
        assert_eq!(chosen(&["one/src/deep", "two"]).as_deref(), Some(Path::new("one")));
        assert_eq!(
            chosen(&["none", "gone", "file", "two", "one"]).as_deref(),
            Some(Path::new("two"))
        );
        assert_eq!(chosen(&["link"]).as_deref(), Some(Path::new("two")));
        assert_eq!(chosen(&["none"]), None);
        assert_eq!(chosen(&[]), None);
        for nonsense in
            [json!({}), json!({ "roots": 1 }), json!({ "roots": [1, {}, { "uri": 1 }] })]
        {
            assert_eq!(project(&nonsense, None), None);
        }
    }
}
