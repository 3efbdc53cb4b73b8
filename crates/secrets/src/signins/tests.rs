use std::os::unix::fs::PermissionsExt;

use zeroize::Zeroizing;

use super::{Kept, SignIn, SignIns};
use crate::Secret;

fn one(server: &str) -> SignIn {
    SignIn {
        server: server.into(),
        resource: server.into(),
        issuer: "https://auth.example.com".into(),
        scopes: vec!["read".into()],
        expires: Some(7),
        renewable: true,
        kept: Kept::File,
    }
}

fn value(text: &str) -> Secret {
    Secret::from_bytes(Zeroizing::new(text.as_bytes().to_vec())).unwrap()
}

#[tokio::test]
async fn what_is_kept_in_a_file_is_found_and_forgotten() {
    let home = tempfile::tempdir().unwrap();
    let all = SignIns::new(home.path());
    let (a, b) = (one("https://a.example.com/mcp"), one("https://b.example.com/mcp"));
    assert!(all.list().unwrap().is_empty());
    assert_eq!(all.stamp(), None);
    all.ready(Kept::File).await.unwrap();
    all.keep(&a, &value("value-of-a")).await.unwrap();
    let first = all.stamp();
    all.keep(&b, &value("value-of-b")).await.unwrap();
    assert_ne!(all.stamp(), first);
    assert_eq!(all.list().unwrap(), [a.clone(), b.clone()]);
    assert_eq!(all.value(&a).await.unwrap().expose(), "value-of-a");
    assert_eq!(all.value(&b).await.unwrap().expose(), "value-of-b");
    let list = std::fs::read_to_string(home.path().join("signins.json")).unwrap();
    assert!(!list.contains("value-of"), "{list}");

    all.keep(&a, &value("another")).await.unwrap();
    assert_eq!(all.value(&a).await.unwrap().expose(), "another");
    assert!(all.forget(&a.server).await.unwrap());
    assert!(!all.forget(&a.server).await.unwrap());
    assert!(all.value(&a).await.is_err());
    assert_eq!(all.value(&b).await.unwrap().expose(), "value-of-b", "control: the other stays");
}

#[tokio::test]
async fn a_file_that_others_can_read_is_not_read() {
    let home = tempfile::tempdir().unwrap();
    let all = SignIns::new(home.path());
    let a = one("https://a.example.com/mcp");
    all.keep(&a, &value("value-of-a")).await.unwrap();
    let folder = home.path().join("signins");
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(all.value(&a).await.is_ok(), "control");
    mode(&file, 0o640);
    assert!(all.value(&a).await.is_err());
    mode(&file, 0o600);
    mode(&folder, 0o755);
    assert!(all.value(&a).await.is_err());
    assert!(all.ready(Kept::File).await.is_err());
    mode(&folder, 0o700);
    assert!(all.value(&a).await.is_ok(), "control");
    // A link is not followed.
    let elsewhere = home.path().join("elsewhere");
    std::fs::rename(&file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    assert!(all.value(&a).await.is_err());
}

#[tokio::test]
async fn one_turn_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let all = SignIns::new(home.path());
    let first = all.turn("https://a.example.com").await.unwrap();
    let other = all.turn("https://b.example.com").await.unwrap();
    let mut second = Box::pin(all.turn("https://a.example.com"));
    let short = std::time::Duration::from_millis(100);
    assert!(tokio::time::timeout(short, &mut second).await.is_err());
    drop(first);
    second.await.unwrap();
    drop(other);
}
