//! Who hears that a resource has changed: whoever follows it, and nobody else, to servers of either era
//! and at every door.

use ringfence_mcp::code;
use serde_json::json;

use super::news::{ALL, Paper};

/// Server of which era, and at which door.
const WAYS: [(bool, bool); 4] = [(true, false), (false, false), (true, true), (false, true)];

/// The address of a resource at a door.
fn at(merged: bool, uri: &str) -> String {
    if merged { format!("s+{uri}") } else { uri.to_owned() }
}

#[tokio::test]
async fn an_update_reaches_whoever_follows_the_resource_and_nobody_else() {
    for (stateless, merged) in WAYS {
        let paper = Paper::new(stateless, &ALL, merged);
        let [a, b] = ["x:a", "x:b"].map(|uri| at(merged, uri));
        let mut one = paper.reader("anna", Some("one"));
        let mut two = paper.reader("bert", Some("two"));
        // Of the same token, in another session.
        let mut three = paper.reader("anna", Some("three"));
        // Without a session: its subscription names what it follows.
        let mut four = paper.reader("bert", None);
        // The first request starts the server, so that all hear from here on.
        assert_eq!(one.follow(&a).await, Ok(json!({})));
        for reader in [&mut one, &mut two, &mut three] {
            reader.listen(&[]).await;
        }
        let granted = four.listen(&[&b]).await;
        assert!(granted.uris.contains(&b), "{granted:?}");
        assert_eq!(two.follow(&b).await, Ok(json!({})));
        paper.news.until(&["x:a", "x:b"]).await;
        paper.news.change(Some("x:a"));
        assert_eq!(one.next().await, a, "{stateless} {merged}");
        paper.news.change(Some("x:b"));
        assert_eq!(two.next().await, b, "{stateless} {merged}");
        assert_eq!(four.next().await, b, "{stateless} {merged}");
        // Who follows nothing hears all the rest: the control of its stream.
        paper.news.change(None);
        for reader in [&mut one, &mut two, &mut three, &mut four] {
            assert_eq!(reader.next().await, "tools", "{stateless} {merged}");
        }
        for reader in [&mut one, &mut two, &mut three, &mut four] {
            assert_eq!(reader.heard(), []);
        }
    }
}

#[tokio::test]
async fn when_one_leaves_a_resource_the_other_goes_on() {
    for (stateless, merged) in WAYS {
        let paper = Paper::new(stateless, &ALL, merged);
        let [a, b] = ["x:a", "x:b"].map(|uri| at(merged, uri));
        let mut one = paper.reader("anna", Some("one"));
        let mut two = paper.reader("bert", Some("two"));
        for reader in [&mut one, &mut two] {
            reader.follow(&a).await.unwrap();
            reader.listen(&[]).await;
        }
        one.follow(&b).await.unwrap();
        paper.news.change(Some("x:a"));
        assert_eq!((one.next().await, two.next().await), (a.clone(), a.clone()));
        assert_eq!(one.leave(&a).await, Ok(json!({})));
        // What somebody has left he can leave again.
        assert_eq!(one.leave(&a).await, Ok(json!({})));
        paper.news.change(Some("x:a"));
        assert_eq!(two.next().await, a);
        paper.news.change(Some("x:b"));
        assert_eq!(one.next().await, b, "{stateless} {merged}: nothing of the other");
        assert_eq!((one.heard(), two.heard()), (Vec::new(), Vec::new()));
        // The last one lets it go at the server; a session that ends lets go of all.
        paper.news.until(&["x:a", "x:b"]).await;
        assert_eq!(two.leave(&a).await, Ok(json!({})));
        paper.news.until(&["x:b"]).await;
        one.end();
        paper.news.until(&[]).await;
        // Whoever has left for good cannot come back.
        let error = one.follow(&a).await.unwrap_err();
        assert!(error.message.contains("ended"), "{error:?}");
        assert_eq!(two.follow(&a).await, Ok(json!({})), "the control");
    }
}

#[tokio::test]
async fn what_is_followed_needs_its_method_and_the_servers_word() {
    for (stateless, merged) in WAYS {
        let paper = Paper::new(stateless, &["resources/read"], merged);
        let mut reader = paper.reader("anna", Some("one"));
        let a = at(merged, "x:a");
        reader.ask("resources/read", json!({ "uri": a })).await.unwrap();
        let error = reader.follow(&a).await.unwrap_err();
        assert!(error.message.contains("methods"), "{error:?}");
        let mut bare = paper.reader("bert", None);
        assert!(bare.listen(&[&a]).await.uris.is_empty());
        reader.listen(&[]).await;
        paper.news.change(Some("x:a"));
        paper.news.change(None);
        assert_eq!((reader.next().await, bare.next().await), ("tools".into(), "tools".into()));
        assert!(paper.news.followed.borrow().is_empty());
        assert!(paper.news.seen("resources/subscribe").is_empty());

        // The control: with it listed. What the server refuses is refused, and takes nothing away.
        let paper = Paper::new(stateless, &ALL, merged);
        let mut reader = paper.reader("anna", Some("one"));
        reader.follow(&a).await.unwrap();
        reader.listen(&[]).await;
        let error = reader.follow(&at(merged, "no:such")).await.unwrap_err();
        let expected = if stateless { code::METHOD_NOT_FOUND } else { -32002 };
        assert_eq!(error.code, expected, "{error:?}");
        paper.news.until(&["x:a"]).await;
        paper.news.change(Some("x:a"));
        assert_eq!(reader.next().await, a);
        // Whoever is in no session can subscribe to nothing by a request.
        let bare = paper.reader("bert", None);
        let error = bare.follow(&at(merged, "x:b")).await.unwrap_err();
        assert_eq!(error.code, code::INVALID_REQUEST, "{error:?}");
        for params in [json!({}), json!({ "uri": "" }), json!({ "uri": 1 })] {
            assert!(reader.ask("resources/subscribe", params).await.is_err());
        }
        paper.news.until(&["x:a"]).await;
    }
}

#[tokio::test]
async fn what_comes_while_a_session_has_no_stream_is_told_when_it_has_one() {
    for stateless in [true, false] {
        let paper = Paper::new(stateless, &ALL, false);
        let mut one = paper.reader("anna", Some("one"));
        let mut two = paper.reader("anna", Some("two"));
        one.follow("x:a").await.unwrap();
        two.follow("x:a").await.unwrap();
        two.listen(&[]).await;
        paper.news.change(Some("x:a"));
        // The control: it has reached whoever has a stream, and then the one who had none.
        assert_eq!(two.next().await, "x:a");
        one.listen(&[]).await;
        assert_eq!(one.next().await, "x:a");
        // Another stream takes its place; what the first one said last does not end it.
        let mut before = paper.reader("anna", Some("one"));
        std::mem::swap(&mut before, &mut one);
        one.listen(&[]).await;
        before.close();
        paper.news.change(Some("x:a"));
        assert_eq!(one.next().await, "x:a");
        assert_eq!(before.heard(), []);
    }
}

#[tokio::test]
async fn a_server_that_is_there_anew_is_asked_for_the_same() {
    for stateless in [true, false] {
        let paper = Paper::new(stateless, &ALL, false);
        let mut one = paper.reader("anna", Some("one"));
        one.listen(&[]).await;
        one.follow("x:a").await.unwrap();
        paper.news.until(&["x:a"]).await;
        paper.news.kill();
        paper.news.until(&[]).await;
        while paper.world.gateway.is_up(&super::world::id("s")).is_some() {
            tokio::task::yield_now().await;
        }
        // Somebody's call brings it back.
        let two = paper.reader("bert", Some("two"));
        two.ask("resources/read", json!({ "uri": "x:b" })).await.unwrap();
        paper.news.until(&["x:a"]).await;
        paper.news.change(Some("x:a"));
        assert_eq!(one.next().await, "x:a", "{stateless}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_the_server_ends_is_begun_again() {
    let paper = Paper::new(true, &ALL, false);
    let mut one = paper.reader("anna", Some("one"));
    one.listen(&[]).await;
    one.follow("x:a").await.unwrap();
    paper.news.until(&["x:a"]).await;
    for _ in 0..3 {
        paper.news.hang_up();
        paper.news.until(&[]).await;
        // Nobody does anything about it.
        paper.news.until(&["x:a"]).await;
        paper.news.change(Some("x:a"));
        assert_eq!(one.next().await, "x:a");
    }
}

#[tokio::test]
async fn what_a_session_may_follow_is_bounded() {
    for stateless in [true, false] {
        let paper = Paper::new(stateless, &ALL, false);
        let one = paper.reader("anna", Some("one"));
        let long = |n: usize| format!("x:{n}{}", "a".repeat(15 * 1024));
        one.follow(&long(1)).await.unwrap();
        one.follow(&long(2)).await.unwrap();
        let error = one.follow(&long(3)).await.unwrap_err();
        assert_eq!(error.code, code::INVALID_PARAMS, "{error:?}");
        // Each session for itself.
        let two = paper.reader("anna", Some("two"));
        two.follow(&long(3)).await.unwrap();
        one.leave(&long(1)).await.unwrap();
        one.follow(&long(3)).await.unwrap();
    }
}

#[tokio::test]
async fn the_log_level_of_one_session_is_not_that_of_another() {
    let paper = Paper::new(true, &ALL, false);
    let one = paper.reader("anna", Some("one"));
    let two = paper.reader("anna", Some("two"));
    let bare = paper.reader("anna", None);
    let level = |level: &str| json!({ "level": level });
    assert_eq!(one.ask("logging/setLevel", level("debug")).await, Ok(json!({})));
    assert!(two.ask("logging/setLevel", level("loud")).await.is_err());
    for reader in [&one, &two, &bare] {
        reader.ask("resources/read", json!({ "uri": "x:a" })).await.unwrap();
    }
    let seen = paper.news.seen("resources/read");
    let levels = seen.iter().map(|p| p["_meta"].get("io.modelcontextprotocol/logLevel"));
    assert_eq!(levels.collect::<Vec<_>>(), [Some(&json!("debug")), None, None]);
    // It ends with the session.
    one.end();
    one.ask("resources/read", json!({ "uri": "x:a" })).await.unwrap();
    let last = paper.news.seen("resources/read").pop().unwrap();
    assert_eq!(last["_meta"].get("io.modelcontextprotocol/logLevel"), None);
}
