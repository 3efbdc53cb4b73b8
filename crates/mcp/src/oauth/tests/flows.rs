//! Whole sign-ins over a network that is a table.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::ground;
use crate::Boxed;
use crate::oauth::{
    Back, Browser, Callback, Challenge, Grant, Hop, Identity, Interactive, Keep, Known, OAuthError,
    Outside, Place, StateCheck, Visit, Wish, refresh, revoke,
};

/// A network that is a table, and a person who says yes.
#[derive(Default)]
struct Table {
    answers: Mutex<BTreeMap<String, (u16, Value)>>,
    sent: Mutex<Vec<(String, String, Option<String>)>>,
    pages: Mutex<Vec<String>>,
    kept: Mutex<Vec<String>>,
    told: Mutex<Vec<String>>,
}

impl Table {
    fn put(&self, url: &str, status: u16, body: Value) {
        self.answers.lock().unwrap().insert(url.to_owned(), (status, body));
    }

    fn sent_to(&self, part: &str) -> Vec<String> {
        let sent = self.sent.lock().unwrap();
        sent.iter()
            .filter(|(url, ..)| url.contains(part))
            .map(|(_, body, _)| body.clone())
            .collect()
    }

    fn issuer(&self, name: &str) {
        let base = format!("https://{name}.example.com");
        let metadata = json!({
            "issuer": base,
            "authorization_endpoint": format!("{base}/authorize"),
            "token_endpoint": format!("{base}/token"),
            "registration_endpoint": format!("{base}/register"),
            "revocation_endpoint": format!("{base}/revoke"),
            "code_challenge_methods_supported": ["S256"],
        });
        self.put(&format!("{base}/.well-known/oauth-authorization-server"), 200, metadata);
        let client = json!({"client_id": format!("client-of-{name}")});
        self.put(&format!("{base}/register"), 201, client);
        let token = json!({
            "access_token": format!("at-{name}"), "token_type": "bearer",
            "refresh_token": format!("rt-{name}"), "expires_in": "60",
        });
        self.put(&format!("{base}/token"), 200, token);
    }

    fn named(&self, issuer: &str) {
        let body = json!({
            "resource": "https://mcp.example.com/mcp",
            "authorization_servers": [format!("https://{issuer}.example.com")],
        });
        let place = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";
        self.put(place, 200, body);
    }
}

impl Outside for Table {
    fn send<'a>(&'a self, hop: Hop<'a>) -> Boxed<'a, Result<Back, String>> {
        let body = hop.body.as_ref().map(|(_, body)| String::from_utf8_lossy(body).into_owned());
        let url = hop.place.text().to_owned();
        let authorization = hop.authorization.as_ref().map(|text| text.to_string());
        self.sent.lock().unwrap().push((url.clone(), body.unwrap_or_default(), authorization));
        let found = self.answers.lock().unwrap().get(&url).cloned();
        let (status, value) = found.unwrap_or((404, json!({})));
        let body = Zeroizing::new(value.to_string().into_bytes());
        let content_type = Some("application/json; charset=utf-8".to_owned());
        Box::pin(std::future::ready(Ok(Back { status, content_type, body })))
    }

    fn look<'a>(&'a self, _place: &'a Place) -> Boxed<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct Person(Arc<Table>);
struct OneVisit(Arc<Table>);

impl Browser for Person {
    fn tell(&self, words: &str) {
        self.0.told.lock().unwrap().push(words.to_owned());
    }

    fn prepare(&self, _fixed: bool) -> Boxed<'_, Result<Box<dyn Visit>, String>> {
        let visit = Box::new(OneVisit(Arc::clone(&self.0))) as Box<dyn Visit>;
        Box::pin(std::future::ready(Ok(visit)))
    }
}

impl Visit for OneVisit {
    fn redirect(&self) -> &str {
        "http://127.0.0.1:1/callback"
    }

    fn answer<'a>(
        self: Box<Self>,
        url: &'a str,
        state: &'a StateCheck,
    ) -> Boxed<'a, Result<Callback, String>>
    where
        Self: 'a,
    {
        self.0.pages.lock().unwrap().push(url.to_owned());
        let own = url.split('&').find(|pair| pair.starts_with("state=")).unwrap();
        let callback = state.read(&format!("code=the-code&{own}"));
        Box::pin(std::future::ready(callback.ok_or_else(|| "no".to_owned())))
    }
}

impl Keep for Person {
    fn keep<'a>(&'a self, grant: &'a Grant) -> Boxed<'a, Result<(), String>> {
        self.0.kept.lock().unwrap().push(grant.issuer().to_owned());
        Box::pin(std::future::ready(Ok(())))
    }
}

fn interactive(table: &Arc<Table>, identity: Identity) -> Interactive {
    Interactive::new(
        Arc::clone(table) as Arc<dyn Outside>,
        Arc::new(Person(Arc::clone(table))),
        Arc::new(Person(Arc::clone(table))),
        ground("https://mcp.example.com/mcp"),
        Wish { identity, ..Wish::default() },
    )
}

#[tokio::test]
async fn another_issuer_gets_nothing_that_the_first_gave() {
    let table = Arc::new(Table::default());
    table.issuer("one");
    table.issuer("two");
    table.named("one");
    let person = interactive(&table, Identity::default());
    person.sign_in(&Challenge::default()).await.unwrap();
    table.named("two");
    let grant = person.sign_in(&Challenge::default()).await.unwrap();
    assert_eq!(grant.issuer(), "https://two.example.com");
    assert_eq!(*table.kept.lock().unwrap(), ["https://one.example.com", "https://two.example.com"]);
    assert_eq!(table.sent_to("two.example.com/register").len(), 1, "control");
    for (url, body, _) in table.sent.lock().unwrap().iter().filter(|(url, ..)| url.contains("two"))
    {
        assert!(!body.contains("-one") && !body.contains("-of-one"), "{url}: {body}");
    }
    assert!(!table.pages.lock().unwrap()[1].contains("client-of-one"));
    // Nor does one that somebody registered with the first.
    table.named("one");
    let known = Known { id: "mine".into(), secret: Some(Zeroizing::new("a b:c".into())) };
    let person = interactive(&table, Identity { known: Some(known), document: None });
    person.sign_in(&Challenge::default()).await.unwrap();
    let basic = table.sent.lock().unwrap().last().unwrap().2.clone();
    // Each is form-encoded first: `mine:a%20b%3Ac`.
    assert_eq!(basic.as_deref(), Some("Basic bWluZTphJTIwYiUzQWM="));
    table.named("two");
    let refused = person.sign_in(&Challenge::default()).await;
    assert!(matches!(refused, Err(OAuthError::OtherIssuer { .. })), "{refused:?}");
    assert!(table.sent_to("two.example.com/token").len() == 1, "only the first time's");
}

#[tokio::test]
async fn every_request_for_a_token_names_the_server() {
    let table = Arc::new(Table::default());
    table.issuer("one");
    table.named("one");
    let person = interactive(&table, Identity::default());
    let grant = person.sign_in(&Challenge::default()).await.unwrap();
    let resource = "resource=https%3A%2F%2Fmcp.example.com%2Fmcp";
    assert!(table.pages.lock().unwrap()[0].contains(resource));
    let ground = ground("https://mcp.example.com/mcp");
    let renewed = refresh(&*table, &ground, &grant, 1000).await.unwrap();
    assert_eq!(renewed.expires(), Some(1060));
    assert!(renewed.ended(1000, 60) && !renewed.ended(999, 60));
    let sent = table.sent_to("/token");
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|body| body.contains(resource)), "{sent:?}");
    assert!(sent[0].contains("code_verifier=") && sent[0].contains("code=the-code"), "{sent:?}");
    // A refresh token is kept where no new one comes, and replaced where one does.
    let token = "https://one.example.com/token";
    table.put(token, 200, json!({"access_token": "b", "token_type": "Bearer"}));
    let same = refresh(&*table, &ground, &grant, 0).await.unwrap();
    assert_eq!(same.tokens().refresh(), Some("rt-one"));
    table.put(
        token,
        200,
        json!({"access_token": "b", "token_type": "Bearer", "refresh_token": "c"}),
    );
    let rotated = refresh(&*table, &ground, &grant, 0).await.unwrap();
    assert_eq!(rotated.tokens().refresh(), Some("c"));
    // What ends it, and what does not.
    table.put(token, 400, json!({"error": "invalid_grant"}));
    assert!(matches!(refresh(&*table, &ground, &grant, 0).await, Err(OAuthError::Over(_))));
    table.put(token, 503, json!({}));
    assert!(matches!(refresh(&*table, &ground, &grant, 0).await, Err(OAuthError::Status { .. })));
    table.put("https://one.example.com/revoke", 200, json!({}));
    assert!(revoke(&*table, &ground, &grant).await.unwrap());
    assert_eq!(table.sent_to("/revoke").len(), 2);
}

#[tokio::test]
async fn a_token_for_more_than_the_server_is_said_before_the_page_is_opened() {
    let table = Arc::new(Table::default());
    table.issuer("one");
    table.named("one");
    interactive(&table, Identity::default()).sign_in(&Challenge::default()).await.unwrap();
    assert!(table.told.lock().unwrap().is_empty(), "control: for the server alone");
    let place = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";
    let wide = json!({
        "resource": "https://mcp.example.com",
        "authorization_servers": ["https://one.example.com"],
    });
    table.put(place, 200, wide);
    interactive(&table, Identity::default()).sign_in(&Challenge::default()).await.unwrap();
    let told = table.told.lock().unwrap();
    let [words] = &told[..] else { panic!("{told:?}") };
    assert!(
        words.contains("made for https://mcp.example.com,")
            && words.contains("more than https://mcp.example.com/mcp"),
        "{words}"
    );
}

#[tokio::test]
async fn no_token_is_shown_as_a_scope() {
    let table = Arc::new(Table::default());
    table.issuer("one");
    table.named("one");
    let token = "https://one.example.com/token";
    let given = |scope: &str| {
        json!({
            "access_token": "access-token", "refresh_token": "refresh-token",
            "token_type": "Bearer", "scope": scope,
        })
    };
    for scope in ["access-token", "read refresh-token", "xaccess-token\u{1b}"] {
        table.put(token, 200, given(scope));
        let person = interactive(&table, Identity::default());
        let refused = person.sign_in(&Challenge::default()).await.unwrap_err().to_string();
        assert!(!refused.contains("ess-token") && !refused.contains("esh-token"), "{refused}");
    }
    table.put(token, 200, given("read"));
    let grant =
        interactive(&table, Identity::default()).sign_in(&Challenge::default()).await.unwrap();
    assert_eq!(grant.scopes(), ["read"], "control");
}

#[test]
fn what_is_secret_in_a_request_is_known_to_whoever_sends_it() {
    let place = ground("https://mcp.example.com/mcp");
    let place = place.place(crate::oauth::Step::Token, "https://one.example.com/token").unwrap();
    let form = "grant_type=x&code=a%20b&client_id=public&client_secret=s%2B1&refresh_token=r";
    let hop = Hop {
        place: &place,
        body: Some(("application/x-www-form-urlencoded", Zeroizing::new(form.into()))),
        // `mine:a%20b%3Ac`
        authorization: Some(Zeroizing::new("Basic bWluZTphJTIwYiUzQWM=".into())),
    };
    let secrets: Vec<String> = hop.secrets().iter().map(|text| text.to_string()).collect();
    assert_eq!(secrets, ["a b", "s+1", "r", "a b:c"]);
}

#[tokio::test]
async fn what_is_kept_is_for_one_address_and_shows_nothing() {
    let table = Arc::new(Table::default());
    table.issuer("one");
    table.named("one");
    let grant =
        interactive(&table, Identity::default()).sign_in(&Challenge::default()).await.unwrap();
    let text = grant.to_text().unwrap();
    let back = Grant::from_text(&text, "https://mcp.example.com/mcp").unwrap();
    assert_eq!(back.tokens().access(), "at-one");
    for other in
        ["https://mcp.example.com/mcp/", "https://mcp.example.com", "https://x.example.com/mcp"]
    {
        assert!(Grant::from_text(&text, other).is_err(), "{other}");
    }
    let broken = Grant::from_text(b"{\"access\": \"at-one", "https://mcp.example.com/mcp");
    assert!(!broken.unwrap_err().to_string().contains("at-one"));
    let shown = format!("{grant:?} {:?} {:?}", grant.tokens(), grant.client());
    assert!(!shown.contains("at-one") && !shown.contains("rt-one"), "{shown}");
}

#[tokio::test]
async fn a_server_that_is_never_content_is_left() {
    let table = Arc::new(Table::default());
    table.issuer("one");
    table.named("one");
    let person = interactive(&table, Identity::default());
    let more = |n: usize| Challenge {
        scope: Some(format!("s{n}")),
        error: Some("insufficient_scope".into()),
        resource_metadata: None,
    };
    for n in 0..3 {
        person.sign_in(&more(n)).await.unwrap();
    }
    assert!(table.pages.lock().unwrap()[2].contains("scope=s0%20s1%20s2"));
    assert_eq!(person.sign_in(&more(3)).await.unwrap_err(), OAuthError::Rounds(3));
    assert_eq!(table.pages.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_server_of_2025_03_26_is_its_own_issuer() {
    let table = Arc::new(Table::default());
    let own = "https://mcp.example.com";
    table.put(&format!("{own}/register"), 201, json!({"client_id": "c"}));
    table.put(&format!("{own}/token"), 200, json!({"access_token": "t", "token_type": "Bearer"}));
    let grant =
        interactive(&table, Identity::default()).sign_in(&Challenge::default()).await.unwrap();
    assert_eq!(grant.issuer(), own);
    assert!(table.pages.lock().unwrap()[0].starts_with(&format!("{own}/authorize?")));
    // One that names its metadata is held to it: no falling back.
    let named =
        Challenge { resource_metadata: Some(format!("{own}/elsewhere")), ..Challenge::default() };
    let refused = interactive(&table, Identity::default()).sign_in(&named).await;
    assert!(matches!(refused, Err(OAuthError::Status { .. })), "{refused:?}");
    // Nor past an answer that is an error, or a redirect.
    for status in [500, 302] {
        let place = format!("{own}/.well-known/oauth-protected-resource/mcp");
        table.put(&place, status, json!({}));
        let person = interactive(&table, Identity::default());
        assert!(person.sign_in(&Challenge::default()).await.is_err(), "{status}");
    }
}

/// An issuer whose sign-in page is somebody else's: what that page gives would go to the issuer.
#[tokio::test]
async fn a_code_goes_only_where_the_person_was() {
    let table = Arc::new(Table::default());
    table.issuer("bad");
    table.named("bad");
    let base = "https://bad.example.com";
    let metadata = json!({
        "issuer": base,
        "authorization_endpoint": "https://honest.example.com/authorize",
        "token_endpoint": format!("{base}/token"),
        "registration_endpoint": format!("{base}/register"),
        "code_challenge_methods_supported": ["S256"],
    });
    table.put(&format!("{base}/.well-known/oauth-authorization-server"), 200, metadata);
    let person = interactive(&table, Identity::default());
    let refused = person.sign_in(&Challenge::default()).await;
    assert!(matches!(refused, Err(OAuthError::Mixed(_))), "{refused:?}");
    assert_eq!(table.pages.lock().unwrap().len(), 1, "the page was opened");
    assert!(table.sent_to("/token").is_empty());
    // Control: one place for both.
    table.issuer("bad");
    interactive(&table, Identity::default()).sign_in(&Challenge::default()).await.unwrap();
    assert_eq!(table.sent_to("/token").len(), 1);
}
