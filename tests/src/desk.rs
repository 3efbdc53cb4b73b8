//! A person's browser: a program of the name that `ringfence login` runs. It opens its one argument
//! and follows redirects, as browsers do, and writes down what it was given.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::Project;

/// What it does is in `desk`, what came of it goes to `desk.jsonl`.
const BROWSER: &str = r#"#!/usr/bin/python3
import json, os, sys, urllib.error, urllib.parse, urllib.request
root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
def note(**what):
    with open(os.path.join(root, "home", "desk.jsonl"), "a") as log:
        log.write(json.dumps(what) + "\n")
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None
opener = urllib.request.build_opener(Stay, urllib.request.ProxyHandler({}))
def get(url, **headers):
    try:
        reply = opener.open(urllib.request.Request(url, headers=headers), timeout=20)
    except urllib.error.HTTPError as error:
        reply = error
    except Exception as error:
        return 0, {}, repr(error)
    return reply.status, reply.headers, reply.read().decode()
note(argv=sys.argv[1:])
with open(os.path.join(root, "desk")) as script:
    moves = script.read().split()
status, headers, body = get(sys.argv[1])
back = headers.get("Location", "") if status in (302, 303) else ""
note(page=status, back=back, body=body[:200])
parts = urllib.parse.urlsplit(back)
query = dict(urllib.parse.parse_qsl(parts.query))
def come(what, url, **headers):
    status, _, body = get(url, **headers)
    note(move=what, status=status, body=body)
def changed(**over):
    pairs = {k: v for k, v in {**query, **over}.items() if v is not None}
    return urllib.parse.urlunsplit(parts._replace(query=urllib.parse.urlencode(pairs)))
for move in moves if back else []:
    if move == "honest":
        come(move, back)
    elif move == "state":
        come(move, changed(state="x" * 43))
    elif move == "no-state":
        come(move, changed(state=None))
    elif move == "two-states":
        come(move, back + "&state=" + query["state"])
    elif move == "path":
        come(move, urllib.parse.urlunsplit(parts._replace(path="/callback/other")))
    elif move == "host":
        come(move, back, Host="evil.example.com")
    elif move == "code":
        come(move, changed(code="another-code"))
"#;

impl Project {
    /// Puts a browser on `PATH`, which makes these moves when it comes back: `honest`, `state`,
    /// `no-state`, `two-states`, `path`, `host`, `code`.
    ///
    /// # Panics
    /// When the files cannot be written.
    pub fn browser(&mut self, moves: &str) {
        let program = self.state_file("../bin/xdg-open", BROWSER);
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))
            .expect("our own file");
        self.state_file("../desk", moves);
        let bin = self.root().join("bin").display().to_string();
        self.env("PATH", &format!("{bin}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"));
    }

    /// What the browser noted so far, and forgets it.
    #[must_use]
    pub fn desk(&self) -> Vec<Value> {
        let path = self.home().join("desk.jsonl");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}
