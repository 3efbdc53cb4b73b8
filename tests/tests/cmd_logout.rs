//! `ringfence logout`

use ringfence_tests::{Authority, Keychain, each_user};
use serde_json::json;

use crate::bundles::upstream;
use crate::cmd_login::desk;

#[test]
fn tokens_are_given_back_and_forgotten() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let mut project = desk(who, &url);
        let mut keychain = Keychain::start(&mut project);
        project.ringfence(&["logout", "up"]).expect(1).says(&["nobody is signed in"]).done();
        project.ringfence(&["login", "up"]).ok().done();
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
        assert_eq!(both.live(), 1, "control");
        project
            .ringfence(&["logout", "up"])
            .ok()
            .says(&["signed out", "took the tokens back"])
            .done();
        assert_eq!(both.live(), 0);
        assert!(both.tokens().is_empty());
        let hints: Vec<_> = both.at("/revoke").iter().map(|asked| asked.body.clone()).collect();
        assert!(hints.iter().any(|body| body.contains("refresh_token")), "{hints:?}");
        let cases = project.agent("Mcp('up').call('echo', 'echo')");
        assert!(!cases.get("echo").to_string().contains("redacted"), "{}", cases.get("echo"));
        let log =
            std::fs::read_to_string(project.state().join("log/machine.jsonl")).expect("a log");
        assert!(log.contains("signed_out") && log.contains("\"revoked\":\"revoked\""), "{log}");
        project.ringfence(&["audit", "verify"]).ok().done();

        // A keychain that is locked or gone: it is still there, and says so.
        project.ringfence(&["login", "up"]).ok().done();
        keychain.lock(&project);
        project.ringfence(&["logout", "up"]).expect(1).says(&["locked"]).done();
        keychain.end_service();
        project.ringfence(&["logout", "up"]).expect(1).says(&["keychain"]).done();
        assert_eq!(both.live(), 1);
        let list = project.ringfence(&["login", "--list"]).ok();
        assert!(list.stdout.contains("up: "), "{}", list.stdout);
    });
}

#[test]
fn what_is_not_taken_back_is_forgotten_all_the_same_and_said() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        let login = || project.ringfence(&["login", "up", "--store", "file"]).ok().done();
        both.script(&json!({"metadata": {"revocation_endpoint": null}}));
        login();
        project.ringfence(&["logout", "up"]).ok().says(&["takes no tokens back"]).done();
        both.script(&json!({}));
        login();
        both.script(&json!({"redirect": "revoke"}));
        let json = project.ringfence(&["logout", "up", "--json"]).ok().json();
        assert_eq!((&json["version"], &json["revoked"]), (&json!(1), &json!(false)));
        assert!(json["why_not"].as_str().expect("words").contains("redirect"), "{json}");
        let list = project.ringfence(&["login", "--list", "--json"]).ok().json();
        assert_eq!(list["sign_ins"], json!([]));
        let folder = project.state().join("signins");
        assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 0);
    });
}

#[test]
fn an_address_can_be_signed_out_of_whose_project_is_gone() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        project.ringfence(&["login", "up", "--store", "file"]).ok().done();
        project.manifest(&upstream("https://mcp.example.com/mcp"));
        project.ringfence(&["logout", "up"]).expect(1).says(&["nobody is signed in"]).done();
        assert_eq!(both.live(), 1);
        project.ringfence(&["logout", &url]).ok().done();
        assert_eq!(both.live(), 0);
    });
}
