use super::*;

fn mode(url: &str) -> PgSslMode {
    Address::parse(url).unwrap_or_else(|e| panic!("{url}: {e}")).options.get_ssl_mode()
}

#[test]
fn to_another_machine_the_name_is_verified_whatever_the_address_says() {
    for url in [
        "postgres://u:p@db.example/x",
        "postgresql://u:p@10.0.0.1/x",
        "postgres://u:p@db.example/x?sslmode=require",
        "postgres://u:p@db.example/x?sslmode=verify-ca",
        "postgres://u:p@localhost/x?host=db.example",
        "postgres://u:p@localhost/x?hostaddr=192.0.2.1",
        "postgres://u:p@[2001:db8::1]/x",
        "postgres://u:p@localhost.example/x",
        "postgres://u:p@localhost/x?hostaddr=::ffff:127.0.0.1",
    ] {
        assert!(matches!(mode(url), PgSslMode::VerifyFull), "{url}");
    }
    for word in ["disable", "allow", "prefer"] {
        for key in ["sslmode", "ssl-mode"] {
            let url = format!("postgres://u:secret@db.example/x?{key}={word}");
            let error = Address::parse(&url).err().expect("refused").to_string();
            assert!(error.contains("without TLS") && !error.contains("secret"), "{error}");
        }
    }
}

#[test]
fn on_this_machine_the_address_says() {
    for url in [
        "postgres://u@localhost/x?sslmode=disable",
        "postgres://u@127.0.0.9/x?sslmode=disable",
        "postgres://u@%2Frun%2Fpg/x?sslmode=disable",
        "postgres://u@db.example/x?host=/run/pg&sslmode=disable",
        "postgres://u@db.example/x?hostaddr=::1&sslmode=disable",
    ] {
        assert!(matches!(mode(url), PgSslMode::Disable), "{url}");
    }
}

#[test]
fn what_is_no_address_is_refused_and_never_shown() {
    for url in [
        "",
        "secret",
        "mysql://u:secret@h/x",
        "postgres//u:secret@h",
        "postgres://u:secret@h:port/x",
        "postgres://u:secret@h/x?sslmode=secret",
        &format!("postgres://u:secret@h/{}", "x".repeat(MAX_BYTES)),
    ] {
        let error = Address::parse(url).err().expect(url).to_string();
        assert!(error.contains("url_ref") && !error.contains("secret"), "{error}");
    }
    let shown = Address::parse("postgres://u:secret@db.example:99/x").expect("fine");
    assert_eq!(shown.shown(), "postgres at db.example:99");
}
