//! A stored sign-in that is renewed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence_bundle::ServerId;
use ringfence_mcp::Authorize as _;
use ringfence_mcp::oauth::{Back, Boxed, Grant, Ground, Hop, Outside, Place};
use ringfence_record::Event;
use ringfence_secrets::{Kept, Secret, SignIn, SignIns};
use serde_json::{Value, json};
use tokio::sync::Notify;
use zeroize::Zeroizing;

use super::{Authority as _, Guard, Held, Holder, SignedIn, listed, lock};
use crate::permit::Evidence;
use crate::seams::Journal;

const SERVER: &str = "http://127.0.0.1:1/mcp";

/// A folder that is gone with the test.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let name = format!("ringfence-signin-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Nobody reads it here.
struct Unread;

impl Journal for Unread {
    fn commit(&self, _event: Event) -> crate::seams::Boxed<'_, Result<Evidence, String>> {
        Box::pin(std::future::ready(Ok(Evidence::test())))
    }
    fn note(&self, _event: Event) -> Result<(), String> {
        Ok(())
    }
}

/// An authorization server that gives new tokens when it is told to, and takes the old ones back.
#[derive(Default)]
struct Issues {
    asked: Notify,
    goes_on: Notify,
    times: AtomicUsize,
    /// Done before it answers.
    first: std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Outside for Issues {
    fn send<'a>(&'a self, hop: Hop<'a>) -> Boxed<'a, Result<Back, String>> {
        let secrets = hop.secrets();
        Box::pin(async move {
            let number = self.times.fetch_add(1, Ordering::SeqCst) + 2;
            let before = format!("rt-{}-long-enough", number - 1);
            assert!(secrets.iter().any(|it| **it == before), "{before} is given back");
            self.asked.notify_one();
            self.goes_on.notified().await;
            if let Some(first) = lock(&self.first).take() {
                first();
            }
            let body = json!({
                "access_token": format!("at-{number}-long-enough"), "token_type": "Bearer",
                "refresh_token": format!("rt-{number}-long-enough"), "expires_in": 3600,
            });
            let content_type = Some("application/json".to_owned());
            let body = Zeroizing::new(body.to_string().into_bytes());
            Ok(Back { status: 200, content_type, body })
        })
    }
    fn look<'a>(&'a self, _place: &'a Place) -> Boxed<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// What is kept: the first tokens, which have ended.
async fn kept(home: &Path) -> SignIns {
    std::fs::set_permissions(home, std::fs::Permissions::from_mode(0o700)).unwrap();
    let text = json!({
        "version": 1, "server": SERVER, "resource": SERVER, "issuer": "http://127.0.0.1:1",
        "token_endpoint": "http://127.0.0.1:1/token", "revocation_endpoint": null,
        "client": {"id": "us", "auth": "none"}, "scopes": [], "expires": 1,
        "tokens": {"access": "at-1-long-enough", "refresh": "rt-1-long-enough"},
    });
    let bytes = Zeroizing::new(text.to_string().into_bytes());
    let grant = Grant::from_text(&bytes, SERVER).unwrap();
    let signins = SignIns::new(home);
    let value = Secret::from_bytes(bytes).unwrap();
    signins.keep(&listed(&grant, Kept::File), &value).await.unwrap();
    signins
}

fn holder(signins: &SignIns, outside: &Arc<Issues>) -> Holder {
    Holder(Arc::new(SignedIn {
        server: ServerId::parse("s").unwrap(),
        ground: Ground::new(SERVER).unwrap(),
        signins: signins.clone(),
        outside: Arc::clone(outside) as Arc<dyn Outside>,
        journal: Arc::new(Unread),
        held: tokio::sync::Mutex::new(Held::default()),
        words: std::sync::Mutex::default(),
        guard: Guard::of(SERVER),
        under_way: Arc::default(),
    }))
}

fn said(holder: &Holder, text: &str) -> Value {
    let mut value = json!({ "text": text });
    holder.scrub(&mut value);
    value["text"].take()
}

async fn refresh_token(signins: &SignIns) -> String {
    let sign_in = signins.find(SERVER).unwrap().unwrap();
    let value = signins.value(&sign_in).await.unwrap();
    let grant = Grant::from_text(value.expose().as_bytes(), SERVER).unwrap();
    grant.tokens().refresh().unwrap().to_owned()
}

const AGO: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_call_that_is_cancelled_during_a_renewal_loses_nothing() {
    let home = Home::new("cancelled");
    let signins = kept(&home.0).await;
    let outside = Arc::<Issues>::default();
    let holder = holder(&signins, &outside);
    {
        let call = holder.header();
        tokio::pin!(call);
        tokio::select! {
            done = &mut call => panic!("{done:?}"),
            () = outside.asked.notified() => {}
        }
    }
    // Nobody waits for it, and the old refresh token is good no more.
    outside.goes_on.notify_one();
    let mut under_way = holder.0.under_way.subscribe();
    tokio::time::timeout(AGO, under_way.wait_for(|number| *number == 0)).await.unwrap().unwrap();
    assert_eq!(refresh_token(&signins).await, "rt-2-long-enough");
    assert_eq!(holder.header().await.unwrap().unwrap(), "Bearer at-2-long-enough");
    // The same where the server has refused the token.
    lock(&holder.0.words).take();
    holder.0.held.lock().await.renewed = None;
    {
        let call = holder.challenged(401, None);
        tokio::pin!(call);
        tokio::select! {
            done = &mut call => panic!("{done:?}"),
            () = outside.asked.notified() => {}
        }
    }
    outside.goes_on.notify_one();
    tokio::time::timeout(AGO, under_way.wait_for(|number| *number == 0)).await.unwrap().unwrap();
    assert_eq!(refresh_token(&signins).await, "rt-3-long-enough");
    assert_eq!(outside.times.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn tokens_of_before_stay_hidden_on_every_connection() {
    let home = Home::new("hidden");
    let signins = kept(&home.0).await;
    let outside = Arc::<Issues>::default();
    outside.goes_on.notify_one();
    let first = holder(&signins, &outside);
    assert_eq!(first.header().await.unwrap().unwrap(), "Bearer at-2-long-enough");
    let second = holder(&signins, &outside);
    for holder in [&first, &second] {
        for token in ["at-1", "rt-1", "at-2", "rt-2"] {
            let text = said(holder, &format!("it was {token}-long-enough"));
            assert_eq!(text, "it was [redacted:(sign-in)]", "{token}");
        }
        assert_eq!(said(holder, "at-9-long-enough"), "at-9-long-enough", "control");
    }
}

#[tokio::test]
async fn a_refresh_token_whose_successor_could_not_be_kept_is_not_used_again() {
    let home = Home::new("unkept");
    let signins = kept(&home.0).await;
    let outside = Arc::<Issues>::default();
    let folder = home.0.join("signins");
    let mode = |folder: &Path, mode| {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // A folder that others can look into takes no token.
    let open = folder.clone();
    *lock(&outside.first) = Some(Box::new(move || mode(&open, 0o755)));
    outside.goes_on.notify_one();
    let holder = holder(&signins, &outside);
    let failed = holder.header().await.unwrap_err();
    assert!(failed.contains("mode 0700") && failed.contains("signs in again"), "{failed}");
    mode(&folder, 0o700);
    assert_eq!(holder.header().await, Err(failed.clone()));
    assert!(!holder.challenged(401, None).await);
    assert_eq!(outside.times.load(Ordering::SeqCst), 1, "nobody is asked with it once more");
    let hidden = said(&holder, "at-2-long-enough");
    assert_eq!(hidden, "[redacted:(sign-in)]", "what was given is hidden all the same");
    // What is kept for another server changes the list, and not this.
    let sign_in = signins.find(SERVER).unwrap().unwrap();
    let stamp = signins.stamp();
    let other = SignIn { server: "http://127.0.0.1:2/mcp".into(), ..sign_in.clone() };
    let value = signins.value(&sign_in).await.unwrap();
    signins.keep(&other, &value).await.unwrap();
    assert!(stamp != signins.stamp());
    assert_eq!(holder.header().await, Err(failed.clone()));
    assert_eq!(outside.times.load(Ordering::SeqCst), 1, "nor is anybody asked then");
    // Control: another sign-in is tried anew.
    outside.goes_on.notify_one();
    let value = signins.value(&sign_in).await.unwrap();
    let text = value.expose().replace("rt-1", "rt-2");
    let value = Secret::from_bytes(Zeroizing::new(text.into_bytes())).unwrap();
    signins.keep(&sign_in, &value).await.unwrap();
    assert_eq!(holder.header().await.unwrap().unwrap(), "Bearer at-3-long-enough");
}

#[tokio::test]
async fn two_that_renew_at_once_ask_once() {
    let home = Home::new("two");
    let signins = kept(&home.0).await;
    let outside = Arc::<Issues>::default();
    let (one, two) = (holder(&signins, &outside), holder(&signins, &outside));
    let both = async { tokio::join!(one.header(), two.header()) };
    let gate = async {
        outside.asked.notified().await;
        outside.goes_on.notify_one();
    };
    let ((one, two), ()) =
        tokio::time::timeout(AGO, async { tokio::join!(both, gate) }).await.unwrap();
    assert_eq!(one, Ok(Some("Bearer at-2-long-enough".to_owned())));
    assert_eq!(one, two);
    assert_eq!(outside.times.load(Ordering::SeqCst), 1);
}
