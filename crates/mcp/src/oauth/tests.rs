//! Tests of the pure parts.

mod flows;

use serde_json::{Value, json};

use super::metadata::{Issuer, Resource, issuer_places, resource_places, same_issuer};
use super::scope::Scopes;
use super::{Challenge, Ground, OAuthError, Place, Reach, StateCheck, Step, form, pkce};

fn ground(server: &str) -> Ground {
    Ground::new(server).unwrap()
}

#[test]
fn an_address_is_read_in_one_way_or_not_at_all() {
    let public = ground("https://mcp.example.com/mcp");
    for good in [
        "https://auth.example.com",
        "https://auth.example.com/",
        "https://auth.example.com:443/a",
        "https://auth.example.com:8443/a/b?c=d&e=%20f",
        "https://93.184.216.34/token",
        "https://[2606:4700::1111]/token",
        "https://mcp.example.com/token",
    ] {
        let place = public.place(Step::Token, good).unwrap_or_else(|e| panic!("{good}: {e}"));
        assert_eq!(place.text(), good);
        let own = good.starts_with("https://mcp.");
        assert_eq!(place.reach(), if own { Reach::Declared } else { Reach::Public });
    }
    for bad in [
        "http://auth.example.com/a",
        "http://mcp.example.com/a",
        "HTTPS://auth.example.com/a",
        "https:/auth.example.com/a",
        "https:auth.example.com/a",
        "//auth.example.com/a",
        "/a",
        "",
        "file:///etc/passwd",
        "https://",
        "https://user@auth.example.com/a",
        "https://@auth.example.com/a",
        "https://user:word@auth.example.com/a",
        "https://auth.example.com/a#b",
        "https://auth.example.com/a#",
        "https://auth.example.com/a b",
        "https://auth.example.com/a\n",
        " https://auth.example.com/a",
        "https://auth.example.com\\a",
        "https://auth.example.com/a/../b",
        "https://auth.example.com/./a",
        "https://AUTH.example.com/a",
        "https://auth.exämple.com/a",
        "https://auth.ex%61mple.com/a",
        "https://0x7f000001/a",
        "https://2130706433/a",
        "https://127.1/a",
        "https://127.0.0.1/a",
        "https://[::1]/a",
        "https://[::ffff:127.0.0.1]/a",
        "https://[0:0:0:0:0:0:0:1]/a",
        "https://localhost/a",
        "https://localhost./a",
        "https://a.localhost/a",
        "https://auth.example.com:99999/a",
        "https://auth.example.com:/a",
    ] {
        assert!(public.place(Step::Token, bad).is_err(), "{bad}");
    }
    assert!(
        public.place(Step::Token, &format!("https://a.example.com/{}", "x".repeat(2048))).is_err()
    );
    assert!(Ground::new("ftp://mcp.example.com").is_err());
}

#[test]
fn loopback_is_for_servers_on_loopback() {
    for server in
        ["http://127.0.0.1:8080/mcp", "http://localhost:8080/mcp", "http://[::1]:8080/mcp"]
    {
        let ground = ground(server);
        for good in ["http://127.0.0.1:9/a", "http://localhost:9/a", "https://127.0.0.1:9/a"] {
            let place = ground.place(Step::Token, good).unwrap();
            assert_eq!(place.reach(), Reach::Loopback, "{server} {good}");
        }
        assert_eq!(ground.place(Step::Token, server).unwrap().reach(), Reach::Declared);
        assert_eq!(
            ground.place(Step::Token, "https://auth.example.com").unwrap().reach(),
            Reach::Public
        );
        for bad in ["http://10.0.0.1/a", "http://auth.example.com/a", "http://0.0.0.0/a"] {
            assert!(ground.place(Step::Token, bad).is_err(), "{server} {bad}");
        }
    }
    // A private server has its own origin, and nothing else that is private over plain HTTP.
    let private = ground("http://10.0.0.5:8080/mcp");
    let own = private.place(Step::Token, "http://10.0.0.5:8080/token").unwrap();
    assert_eq!(own.reach(), Reach::Declared);
    assert!(private.place(Step::Token, "http://10.0.0.5:8081/token").is_err());
    assert!(private.place(Step::Token, "http://10.0.0.6:8080/token").is_err());
    assert!(private.place(Step::Token, "http://127.0.0.1:8080/token").is_err());
    // Over TLS it is judged by its address when it is reached.
    assert_eq!(private.place(Step::Token, "https://10.0.0.6/a").unwrap().reach(), Reach::Public);
}

#[test]
fn a_page_for_a_browser_has_no_sign_for_a_shell() {
    let ground = ground("https://mcp.example.com/mcp");
    let page = |text: &str| ground.place(Step::Authorization, text);
    assert!(page("https://auth.example.com/a?b=c&d=%24(e".replace('(', "").as_str()).is_ok());
    for sign in ["$", "'", "(", ")", ";", "!", "*"] {
        let text = format!("https://auth.example.com/a?b={sign}c");
        assert!(page(&text).is_err(), "{sign}");
        assert!(ground.place(Step::Token, &text).is_ok() || sign == "'", "control: {sign}");
    }
}

#[test]
fn a_challenge_is_that_of_bearer() {
    let parse = Challenge::parse;
    let all = parse(
        "Bearer realm=\"a, b\", resource_metadata=\"https://x/y\", scope=\"a b\", error=invalid_token",
    );
    assert_eq!(all.resource_metadata.as_deref(), Some("https://x/y"));
    assert_eq!(all.scope.as_deref(), Some("a b"));
    assert_eq!(all.error.as_deref(), Some("invalid_token"));
    let second = parse("Basic realm=\"x\", Digest a=b, scope=no, bEaReR scope=\"q\\\"r\"");
    assert_eq!(second.scope.as_deref(), Some("q\"r"));
    assert!(parse("Bearer error = \"insufficient_scope\" ,scope=a").insufficient());
    // Another scheme's words are not ours, and what is said twice is not said.
    assert_eq!(parse("Basic scope=\"a\""), Challenge::default());
    assert_eq!(parse("Bearer scope=a, DPoP scope=b").scope.as_deref(), Some("a"));
    assert_eq!(parse("Bearer scope=a, scope=b, error=c").scope, None);
    assert_eq!(parse("Negotiate abc==, Bearer scope=a").scope.as_deref(), Some("a"));
    for nothing in ["", "Bearer", "Bearer scope=\"open", "scope=a", "\u{fffd}", ",,, ="] {
        assert_eq!(parse(nothing), Challenge::default(), "{nothing}");
    }
    assert_eq!(parse(&format!("Bearer scope={}", "a".repeat(9000))), Challenge::default());
}

#[test]
fn a_server_is_named_by_its_address_or_one_above_it() {
    let read = |server: &str, resource: &str| {
        let value =
            json!({"resource": resource, "authorization_servers": ["https://a.example.com"]});
        Resource::read(&ground(server), &value).is_ok()
    };
    let server = "https://mcp.example.com/a/mcp";
    for good in [
        "https://mcp.example.com/a/mcp",
        "https://mcp.example.com/a/mcp/",
        "https://mcp.example.com/a",
        "https://mcp.example.com/",
        "https://mcp.example.com",
    ] {
        assert!(read(server, good), "{good}");
    }
    for bad in [
        "https://mcp.example.com/a/mcp2",
        "https://mcp.example.com/a/mc",
        "https://mcp.example.com/a/mcp/more",
        "https://mcp.example.com/b",
        "https://mcp.example.com:8443/a/mcp",
        "http://mcp.example.com/a/mcp",
        "https://example.com/a/mcp",
        "https://mcp.example.com/a/mcp#x",
        "https://mcp.example.com/?x",
        "urn:x",
    ] {
        assert!(!read(server, bad), "{bad}");
    }
    let texts = |all: Vec<Place>| all.iter().map(|p| p.text().to_owned()).collect::<Vec<_>>();
    let base = "https://mcp.example.com/.well-known/oauth-protected-resource";
    assert_eq!(
        texts(resource_places(&ground(server)).unwrap()),
        [format!("{base}/a/mcp"), base.into()]
    );
    assert_eq!(texts(resource_places(&ground("https://mcp.example.com")).unwrap()), [base]);
}

#[test]
fn an_issuer_is_who_it_was_taken_for_and_offers_pkce() {
    let ground = ground("https://mcp.example.com/mcp");
    let asked = ground.place(Step::Issuer, "https://auth.example.com/t1").unwrap();
    let texts = |all: Vec<Place>| all.iter().map(|p| p.text().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        texts(issuer_places(&ground, &asked).unwrap()),
        [
            "https://auth.example.com/.well-known/oauth-authorization-server/t1",
            "https://auth.example.com/.well-known/openid-configuration/t1",
            "https://auth.example.com/t1/.well-known/openid-configuration",
        ]
    );
    let whole = json!({
        "issuer": "https://auth.example.com/t1",
        "authorization_endpoint": "https://auth.example.com/authorize",
        "token_endpoint": "https://auth.example.com/token",
        "code_challenge_methods_supported": ["plain", "S256"],
    });
    let read = |over: Value| {
        let mut value = whole.clone();
        for (key, new) in over.as_object().unwrap() {
            value[key] = new.clone();
        }
        Issuer::read(&ground, &asked, false, &value)
    };
    assert!(read(json!({})).unwrap().registration.is_none());
    let mixed = read(json!({"issuer": "https://auth.example.com/t2"}));
    assert!(matches!(mixed, Err(OAuthError::Issuer { .. })));
    for methods in [json!(null), json!([]), json!(["plain"]), json!(["s256"])] {
        let refused = read(json!({"code_challenge_methods_supported": methods}));
        assert_eq!(refused.unwrap_err(), OAuthError::NoPkce);
    }
    for bad in [
        json!({"token_endpoint": "http://auth.example.com/token"}),
        json!({"token_endpoint": null}),
        json!({"token_endpoint": ["https://auth.example.com/token"]}),
        json!({"authorization_endpoint": "javascript:x"}),
        json!({"registration_endpoint": "https://localhost/x"}),
        json!({"revocation_endpoint": "file:///x"}),
        json!({"response_types_supported": ["token"]}),
        json!({"scopes_supported": "a b"}),
    ] {
        assert!(read(bad.clone()).is_err(), "{bad}");
    }
    assert!(same_issuer("https://a.example.com", "https://a.example.com/"));
    assert!(!same_issuer("https://a.example.com/t", "https://a.example.com/t/"));
}

#[test]
fn the_proof_of_rfc_7636_appendix_b_holds() {
    let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    assert_eq!(pkce::challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    let (a, b) = (pkce::random().unwrap(), pkce::random().unwrap());
    assert_eq!(a.len(), 43);
    assert_ne!(a, b);
}

#[test]
fn an_answer_is_read_once_and_for_its_question() {
    let check = StateCheck::new("the-state");
    assert!(check.read("code=a&state=the-state").is_some());
    assert!(check.read("state=the%2Dstate&code=a&iss=b&x=y&x=z").is_some());
    for other in [
        "",
        "code=a",
        "code=a&state=",
        "code=a&state=the-stat",
        "code=a&state=the-state2",
        "code=a&state=The-state",
        "code=a&state=the-state&state=the-state",
        "code=a&code=b&state=the-state",
        "code=a&iss=b&iss=c&state=the-state",
        "code=%zz&state=the-state",
        "code=%ff&state=the-state",
    ] {
        assert!(check.read(other).is_none(), "{other}");
    }
    assert!(check.read(&format!("code={}&state=the-state", "a".repeat(20_000))).is_none());
    assert_eq!(form::decode("a+b%20c").unwrap().as_str(), "a b c");
}

#[test]
fn scopes_are_bounded_and_in_order() {
    assert_eq!(Scopes::parse("b a  b").unwrap().text(), "b a");
    for bad in ["a\tb", "a\"b", "a\\b", "ä", "a\nb", &"x".repeat(513)] {
        assert!(Scopes::parse(bad).is_err(), "{bad}");
    }
    let many: String = (0..200).map(|n| format!("s{n} ")).collect();
    assert!(Scopes::parse(&many).is_err());
    let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let offline = list(&["a", "offline_access"]);
    assert_eq!(Scopes::parse("a").unwrap().offline(&offline).text(), "a offline_access");
    assert_eq!(Scopes::parse("").unwrap().offline(&offline).text(), "");
    assert_eq!(Scopes::parse("a").unwrap().offline(&list(&["a"])).text(), "a");
}
