use super::Reply;

#[test]
fn nothing_given_can_break_out_of_the_answer() {
    let reply = Reply::forbidden("a\r\nSet-Cookie: x\u{1b}[31m\u{202e}é", "hint");
    let text = String::from_utf8(reply.render(true, true)).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("Set-Cookie"));
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
    assert_eq!(body, "ringfence: a?\nSet-Cookie: x?[31m??.\nhint\n");
}

#[test]
fn a_missing_token_says_how_to_show_it() {
    let text = String::from_utf8(Reply::no_token().render(false, false)).unwrap();
    assert!(text.starts_with("HTTP/1.1 407 Proxy Authentication Required\r\n"));
    assert!(text.contains("\r\nProxy-Authenticate: Basic realm=\"ringfence\"\r\n"));
    assert!(text.ends_with("\r\n\r\n"), "no body where none is wanted");
}
