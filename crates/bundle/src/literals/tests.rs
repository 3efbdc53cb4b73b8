use proptest::prelude::{any, prop, prop_assert, proptest};

use super::{Context, MAX_LITERALS, find};

/// Characters drawn by a fixed generator: values that nobody was given, made when the test runs.
fn draw(alphabet: &str, count: usize, seed: u64) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut next = || {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        usize::try_from(state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap()
    };
    (0..count).map(|_| letters[next() % letters.len()]).collect()
}

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const URL: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
const B64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const HEX: &str = "0123456789abcdef";
const B32: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Rule, what stands before, alphabet and length of the rest, what stands behind.
const TOKENS: &[(&str, &str, &str, usize, &str)] = &[
    ("github-token", "ghp_", ALNUM, 36, ""),
    ("github-token", "gho_", ALNUM, 36, ""),
    ("github-token", "ghs_", ALNUM, 36, ""),
    ("github-token", "ghr_", ALNUM, 76, ""),
    ("github-token", "github_pat_11", ALNUM, 80, ""),
    ("gitlab-token", "glpat-", URL, 20, ""),
    ("gitlab-token", "glrt-t1_", ALNUM, 20, ""),
    ("gitlab-token", "gldt-", URL, 20, ""),
    ("gitlab-token", "glptt-", HEX, 40, ""),
    ("slack-token", "xoxb-7392847561-9182736455-", ALNUM, 24, ""),
    ("slack-token", "xoxp-73928475-91827364-8172635-", HEX, 32, ""),
    ("slack-token", "xapp-1-A0B1C2D3E4F-73928475610-", HEX, 64, ""),
    ("slack-webhook", "https://hooks.slack.com/services/T0C3H9K2M/B0D8F7G6H/", ALNUM, 24, ""),
    ("aws-access-key", "AKIA", B32, 16, ""),
    ("aws-access-key", "ASIA", B32, 16, ""),
    ("google-api-key", "AIza", URL, 35, ""),
    ("google-oauth", "ya29.", URL, 120, ""),
    ("google-oauth", "GOCSPX-", URL, 28, ""),
    ("stripe-key", "sk_live_", ALNUM, 24, ""),
    ("stripe-key", "rk_live_51", ALNUM, 97, ""),
    ("stripe-key", "sk_test_51", ALNUM, 97, ""),
    ("stripe-key", "whsec_", B64, 32, ""),
    ("anthropic-key", "sk-ant-api03-", URL, 93, "AA"),
    ("anthropic-key", "sk-ant-oat01-", URL, 93, "AA"),
    ("anthropic-key", "sk-ant-admin01-", URL, 93, "AA"),
    ("openai-key", "sk-proj-", URL, 74, ""),
    ("openai-key", "sk-svcacct-", URL, 74, ""),
    ("openai-key", "sk-", ALNUM, 48, ""),
    ("openrouter-key", "sk-or-v1-", HEX, 64, ""),
    ("groq-key", "gsk_", ALNUM, 52, ""),
    ("xai-key", "xai-", ALNUM, 80, ""),
    ("replicate-token", "r8_", ALNUM, 37, ""),
    ("perplexity-key", "pplx-", ALNUM, 48, ""),
    ("hugging-face-token", "hf_", ALNUM, 34, ""),
    ("langsmith-key", "lsv2_pt_", HEX, 32, "_0a1b2c3d4e"),
    ("npm-token", "npm_", ALNUM, 36, ""),
    ("pypi-token", "pypi-AgEIcHlwaS5vcmc", URL, 150, ""),
    ("rubygems-key", "rubygems_", HEX, 48, ""),
    ("docker-token", "dckr_pat_", URL, 27, ""),
    ("sendgrid-key", "SG.", ALNUM, 22, ".q0wE9rT8yU7iO6pA5sD4fG3hJ2kL1zX0cV9bN8mQ7w2"),
    ("mailgun-key", "key-", HEX, 32, ""),
    ("digitalocean-token", "dop_v1_", HEX, 64, ""),
    ("linear-key", "lin_api_", ALNUM, 40, ""),
    ("notion-token", "ntn_", ALNUM, 46, ""),
    ("notion-token", "secret_", ALNUM, 43, ""),
    ("shopify-token", "shpat_", HEX, 32, ""),
    ("square-token", "sq0atp-", URL, 22, ""),
    ("databricks-token", "dapi", HEX, 32, ""),
    ("vault-token", "hvs.CAESI", URL, 90, ""),
    ("doppler-token", "dp.pt.", ALNUM, 43, ""),
    ("figma-token", "figd_", URL, 40, ""),
    ("new-relic-key", "NRAK-", UPPER, 27, ""),
    ("planetscale-token", "pscale_tkn_", URL, 43, ""),
    ("pulumi-token", "pul-", HEX, 40, ""),
    ("supabase-token", "sbp_", HEX, 40, ""),
    ("tailscale-key", "tskey-auth-k", ALNUM, 12, "CNTRL-9qWe8rTy7uIo6pAs5dFg"),
    ("age-key", "AGE-SECRET-KEY-1", UPPER, 58, ""),
    ("buildkite-token", "bkua_", HEX, 40, ""),
    ("bearer-token", "Authorization: Bearer ", ALNUM, 40, ""),
    ("bearer-token", "-H 'authorization: bearer ", URL, 43, "'"),
    ("password-in-address", "postgres://app:", ALNUM, 24, "@db.internal.net:5432/app"),
    ("password-in-address", "https://bot:", ALNUM, 20, "@git.corp.net/x.git"),
    ("secret-in-key", "BANK_TOKEN=\"", ALNUM, 40, "\""),
    ("secret-in-key", "\"api_key\": \"", HEX, 32, "\""),
    ("secret-in-key", "client_secret = '", URL, 40, "'"),
    ("secret-in-key", "aws_secret_access_key = \"", B64, 40, "\""),
    ("secret-in-key", "apiKey: \"", ALNUM, 32, "\","),
    ("secret-in-key", "const authToken = `", ALNUM, 32, "`;"),
    ("secret-in-key", "{\"password\":\"", ALNUM, 24, "\"}"),
];

#[test]
fn tokens_are_found_wherever_they_stand() {
    for (number, (rule, before, of, count, behind)) in TOKENS.iter().enumerate() {
        // More than one draw each: what looks drawn is decided by figures.
        let mut missed = Vec::new();
        for seed in 0..20_u64 {
            let value =
                format!("{before}{}{behind}", draw(of, *count, seed * 1000 + number as u64));
            for text in [value.clone(), format!("# see\n  x: {value} and so on\n")] {
                let found = find(text.as_bytes(), Context::File("a.toml".as_ref()));
                if !found.iter().any(|literal| literal.rule == *rule) {
                    missed.push(format!("{text}: {found:?}"));
                }
                for literal in &found {
                    let secret = &text[literal.range.clone()];
                    assert!(!format!("{literal:?}").contains(secret), "{rule} is shown whole");
                }
            }
        }
        // Of those without a form of their own one in twenty may look like words.
        let may = if rule.starts_with("secret") || rule.contains("bearer") { 2 } else { 0 };
        assert!(missed.len() <= may, "{rule} is missed: {missed:#?}");
    }
    assert!(TOKENS.len() >= 60);
}

/// The first texts are read by an automaton that is built fast, later ones by one that reads fast.
#[test]
fn the_first_bytes_are_read_as_the_later_ones_are() {
    let read = || -> Vec<_> {
        let texts = TOKENS.iter().zip(0..).map(|((_, before, of, count, behind), seed)| {
            format!("x: {before}{}{behind}\n", draw(of, *count, seed))
        });
        texts.map(|text| find(text.as_bytes(), Context::File("a.toml".as_ref()))).collect()
    };
    let first = read();
    assert!(first.iter().flatten().count() >= 50, "{first:?}");
    let _ = find("plain words. ".repeat(10_000).as_bytes(), Context::File("a.toml".as_ref()));
    assert_eq!(first, read());
}

#[test]
fn shapes_are_found() {
    let body = (0..12).map(|n| draw(B64, 64, n)).collect::<Vec<_>>();
    for label in ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY"] {
        for end in ["\n", "\\n"] {
            let text = format!(
                "k = \"-----BEGIN {label}-----{end}{}{end}-----END {label}-----\"",
                body.join(end)
            );
            let found = find(text.as_bytes(), Context::File("k.json".as_ref()));
            assert_eq!(found.len(), 1, "{label}");
            assert_eq!((found[0].rule, found[0].column), ("private-key", 6));
            assert!(text[found[0].range.end..].starts_with("-----END"), "all of it");
        }
    }
    let jwt = format!("eyJ{}.eyJ{}.{}", draw(URL, 33, 1), draw(URL, 60, 2), draw(URL, 43, 3));
    let found = find(format!("t={jwt};").as_bytes(), Context::File("x".as_ref()));
    assert_eq!((found[0].rule, found[0].range.len()), ("signed-token", jwt.len()));
    // `ci-bot:` and a password, in base64.
    let basic = format!("Basic {}", "Y2ktYm90OnE5VzhlN1I2dDVZNHUzSTJv");
    assert_eq!(find(basic.as_bytes(), Context::File("x".as_ref()))[0].rule, "basic-credentials");
}

#[test]
fn a_value_by_itself_has_its_key_beside_it() {
    let value = draw(ALNUM, 32, 7);
    for key in ["API_KEY", "X-Api-Key", "--token", "Authorization", "password", "botToken"] {
        assert_eq!(find(value.as_bytes(), Context::Value(key)).len(), 1, "{key}");
    }
    for key in ["url", "X-Team", "next_token", "digest", "tokens", "key", ""] {
        assert!(find(value.as_bytes(), Context::Value(key)).is_empty(), "{key}");
    }
}

/// As they stand in manifests of servers that people really share.
#[test]
fn a_value_is_found_within_a_word_of_a_command_and_an_address() {
    let value = draw(ALNUM, 32, 11);
    let words = [
        "--env=API_KEY=V",
        "API_KEY=V",
        "X-Api-Key: V",
        "Authorization:V",
        "Authorization: token V",
        "export API_KEY=V && run",
        "{\"apiKey\":\"V\"}",
        "https://mcp.corp.net/mcp?api_key=V",
        "https://mcp.corp.net/mcp?a=b&corpApiKey=V&c=d",
        "https://mcp.corp.net/mcp?key=V#x",
        "Server=db;Password=V;Port=1",
    ];
    let at = |text: &str, context| {
        let found = find(text.as_bytes(), context);
        found.iter().map(|l| text[l.range.clone()].to_owned()).collect::<Vec<_>>()
    };
    for word in words {
        let text = word.replace('V', &value);
        assert_eq!(at(&text, Context::Value("args")), [value.as_str()], "{word}");
        let toml = format!("args = [\"-x\", \"{}\"]\n", text.replace('"', "\\\""));
        assert_eq!(at(&toml, Context::File("a.toml".as_ref())), [value.as_str()], "{toml}");
        for other in ["${NAME}", "$NAME", "value", "/run/secrets/key-1", "your-key-goes-here-1"] {
            let text = word.replace('V', other);
            assert!(at(&text, Context::Value("args")).is_empty(), "{text}");
        }
    }
    let comment = format!("# API_KEY={value}\n");
    assert_eq!(at(&comment, Context::File("a.toml".as_ref())), [value.as_str()]);
    for key in ["OPENAI_KEY", "AZURE_PAT", "API_TOKEN_2", "API_TOKEN2", "DB_PASS", "DB_PWD"] {
        assert_eq!(at(&value, Context::Value(key)), [value.as_str()], "{key}");
        assert_eq!(at(&format!("{key}={value}"), Context::Value("-e")), [value.as_str()], "{key}");
    }
    for key in ["PUBLIC_KEY", "CACHE_KEY", "MONKEY", "COMPASS", "PATH", "CSRF_TOKEN_1"] {
        assert!(at(&value, Context::Value(key)).is_empty(), "{key}");
    }
    assert_eq!(at(&format!("token {value}"), Context::Value("Authorization")), [value]);
}

#[test]
fn settings_need_no_quotes_and_code_does() {
    let text = format!("API_TOKEN={}\n", draw(ALNUM, 32, 9));
    for name in [".env", ".env.local", "a.yaml", "a.ini", "run.sh"] {
        assert_eq!(find(text.as_bytes(), Context::File(name.as_ref())).len(), 1, "{name}");
    }
    assert!(find(text.as_bytes(), Context::File("a.rs".as_ref())).is_empty());
}

/// Lines as they stand in files that hold no secret.
fn harmless() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for seed in 0..10 {
        let hex = |count| draw(HEX, count, seed);
        let uuid = format!("{}-{}-4{}-a{}-{}", hex(8), hex(4), hex(3), hex(3), hex(12));
        all.extend([
            format!("sha256:{}", hex(64)),
            format!("checksum = \"{}\"", hex(64)),
            format!("\"commit\": \"{}\"", hex(40)),
            format!("etag = \"{}\"", hex(32)),
            format!("ref = \"{}\" # pinned", hex(40)),
            format!("\"id\": \"{uuid}\""),
            format!("request_token = \"{uuid}\""),
            format!("\"integrity\": \"sha512-{}==\"", draw(B64, 86, seed)),
            format!("  resolution: {{integrity: sha512-{}==}}", draw(B64, 86, seed)),
            format!("example.com/mod v1.2.3/go.mod h1:{}=", draw(B64, 43, seed)),
            format!("src=\"data:image/png;base64,{}\"", draw(B64, 900, seed)),
            format!("url(data:font/woff2;base64,{})", draw(B64, 400, seed)),
            format!(
                "//# sourceMappingURL=data:application/json;base64,eyJ{}",
                draw(B64, 300, seed)
            ),
            format!(
                "did:key:z6Mk{}",
                draw("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz", 44, seed)
            ),
            format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} a@b", draw(B64, 43, seed)),
            format!(
                "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----",
                draw(B64, 64, seed)
            ),
        ]);
    }
    let lines = r#"
BANK_TOKEN = "${BANK_TOKEN}"
headers = { Authorization = "Bearer ${ACCOUNTING_TOKEN}" }
Authorization: Bearer <token>
Authorization: Bearer YOUR_API_KEY
Authorization: Bearer $TOKEN
Authorization: Bearer {token}
Authorization: Bearer xxxxxxxxxxxxxxxxxxxx
Authorization: Basic <credentials>
Authorization: Basic dXNlcjpwYXNzd29yZA==
Bearer authentication is described in RFC 6750
api_key = "your-api-key-goes-here-123"
api_key: "sk-..."
OPENAI_API_KEY=sk-your-key-here
OPENAI_API_KEY="sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
ANTHROPIC_API_KEY=sk-ant-your-key
token = "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
token = "ghp_EXAMPLEEXAMPLEEXAMPLEEXAMPLEEXAMPLE1"
token: ghp_...
AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE
AWS_SECRET_ACCESS_KEY="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
password = "changeme"
password = "hunter2"
password: "correct horse battery staple"
passwd = "placeholder-password-1"
db_password = os.environ["DB_PASSWORD"]
password = getpass.getpass()
const token = await getToken();
let secret = Secret::new(value);
token: process.env.GITHUB_TOKEN,
"token": "{{ secrets.TOKEN }}",
token: ${{ secrets.GITHUB_TOKEN }}
secret = read_secret("projects/my-project/secrets/db-password-v2")
"accessToken": "string",
"refresh_token": "REFRESH_TOKEN_HERE_1234"
next_token = "CiQAAAAAAAAAAAAAAAAAAAAAAAABBBBBBBBB12"
max_tokens = 4096
tokens = ["read_file", "write_file"]
tokenizer = "cl100k_base_2024_version_17"
private_key = "./keys/server-2024-05-12.pem"
secret_key_ref = "vault-path-to-key-1"
secretName: "ingress-tls-secret-v2-2024"
"secret": "my-application-secret-v12-2024"
password_hash = "$2b$12$KIXQ0s8xkq8f8v8m8Xv8Xe"
credential = "arn:aws:iam::123456789012:role/deploy-role-1"
apiKey = "test"
api_key = ""
api-key: REDACTED
x-api-key: $API_KEY
postgres://user:password@localhost:5432/db
postgres://postgres:postgres@db/app
postgres://user:${PASSWORD}@db.internal/app
mysql://root:root@127.0.0.1/x
https://user:pass@example.com/
https://username:p4ssw0rd123@example.org/path
redis://:@cache/0
https://github.com/a/b@v1.2.3
git+ssh://git@github.com/a/b.git#v1
mailto:someone@example.com
http://[::1]:8080/@scope/pkg
sk-learn and sk-image are packages
the prefix ghp_ is GitHub's, glpat- is GitLab's, xoxb- is Slack's
npm_config_registry=https://registry.example/
npm_lifecycle_event_and_more_words_that_are_long
hf_hub_download(repo_id="a/b", filename="c")
pypi-publish-action-v1-and-more-words-in-a-row
key-value pairs and key-bindings
AKIA is how an access key begins
AIza starts a Google key
eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9
eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c
-----BEGIN PRIVATE KEY-----
-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----
-----BEGIN PUBLIC KEY-----
if line.startswith("-----BEGIN OPENSSH PRIVATE KEY-----"): return "private"
function f(t){var e=t.token,n=t.password;return e||n}var r={token:null,secret:void 0}
var a={password:"Password",token:"Token",secret:"Secret",apiKey:"API key"}
e.exports={tokenType:"Bearer",accessTokenUri:"/oauth/token",clientIdKey:"client_id"}
secretOrPublicKey:"secretOrPrivateKey must have a value"
this.tokenV2=this.state.tokenV2||this.props.tokenV2FromTheServer
@csrf_token = "aZ3kQ9xW7vB2nM5cR8tY1uI4oP6sD0fG"
class="btn-token-refresh-2 col-md-12 mt-4"
version = "1.2.3-beta.4+build.5678"
docker run -e TOKEN -e PASSWORD image:1.2.3
curl -u "$USER:$PASSWORD" https://api.example.com
export GITHUB_TOKEN=$(gh auth token)
GITHUB_TOKEN="$(cat /run/secrets/github)"
token_endpoint = "https://login.example.com/oauth2/v2.0/token"
"passwordPolicy": "minLength=12,maxLength=64,digits=2"
secret_store: aws-secrets-manager-eu-west-1
"#;
    all.extend(lines.trim().lines().map(str::to_owned));
    all
}

#[test]
fn what_is_no_secret_is_not_found() {
    let all = harmless();
    assert!(all.len() >= 200, "{}", all.len());
    let mut wrong = Vec::new();
    for text in &all {
        for name in ["a.toml", "a.json", "README.md", ".env", "a.yaml", "min.js"] {
            for literal in find(text.as_bytes(), Context::File(name.as_ref())) {
                wrong.push(format!("{name}: {literal:?} in {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), all.len() * 6);
}

#[test]
fn places_are_counted_in_lines_and_characters() {
    let token = format!("npm_{}", draw(ALNUM, 36, 3));
    let text = format!("é\n\tüx {token}, {token}\r\n{token}");
    let found = find(text.as_bytes(), Context::File("x".as_ref()));
    let places: Vec<_> = found.iter().map(|l| (l.line, l.column)).collect();
    assert_eq!(places, [(2, 5), (2, 47), (3, 1)]);
    assert!(
        found
            .iter()
            .all(|l| text[l.range.clone()] == token && l.preview == "npm_… (40 characters)")
    );
}

#[test]
fn any_bytes_in_linear_time_and_bounded() {
    let token = format!("npm_{} ", draw(ALNUM, 36, 3));
    assert_eq!(find(token.repeat(500).as_bytes(), Context::File("x".as_ref())).len(), MAX_LITERALS);
    // Each of these makes a rule look ahead again and again.
    for piece in [
        "eyJ",
        "eyJ.",
        "Bearer ",
        "://a:",
        "token=\"",
        "token=",
        "a=:",
        "-----BEGIN PRIVATE KEY-----",
        "sk-",
        "\u{e9}\0",
    ] {
        let text = piece.repeat(2_000_000 / piece.len());
        let begun = std::time::Instant::now();
        assert!(find(text.as_bytes(), Context::File(".env".as_ref())).is_empty(), "{piece}");
        assert!(find(text.as_bytes(), Context::File("a.toml".as_ref())).is_empty(), "{piece}");
        assert!(begun.elapsed().as_secs() < 20, "{piece}: {:?}", begun.elapsed());
    }
}

proptest! {
    #[test]
    fn any_bytes_have_places(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        pieces in "(ghp_|eyJ|://a:|@|Bearer |Basic |token=|\"|'|[.]|-----BEGIN |PRIVATE KEY-----|[a-zA-Z0-9]{1,40}|é|\n){0,20}",
    ) {
        for text in [&bytes[..], pieces.as_bytes()] {
            for context in [Context::File(".env".as_ref()), Context::Value("api_key")] {
                let found = find(text, context);
                let inside = |l: &super::Literal| l.range.start < l.range.end && l.range.end <= text.len();
                prop_assert!(found.iter().all(inside));
                prop_assert!(found.windows(2).all(|two| two[0].range.end <= two[1].range.start));
            }
        }
    }
}
