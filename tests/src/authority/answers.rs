//! What the two servers answer.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Asked, Authority, Token, decode, form, lock, random};

/// An answer of either.
pub(super) struct Told {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

fn encode(text: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes()
        .map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

fn merge(into: &mut Value, over: &Value) {
    for (key, value) in over.as_object().into_iter().flatten() {
        match value {
            Value::Null => {
                into.as_object_mut().map(|map| map.shift_remove(key));
            }
            value => into[key] = value.clone(),
        }
    }
}

fn json_told(status: u16, body: &Value) -> Told {
    let headers = vec![("Content-Type".into(), "application/json".into())];
    Told { status, headers, body: body.to_string() }
}

fn error(status: u16, code: &str) -> Told {
    json_told(status, &json!({"error": code}))
}

impl Authority {
    /// The answer to one request.
    pub(super) fn answer(&self, asked: &Asked, script: &Value) -> Told {
        let base = asked.base();
        let text = |key: &str, or: String| script[key].as_str().map_or(or, str::to_owned);
        let mcp = text("mcp", base.clone());
        let issuer = text("issuer", base.clone());
        let step = match asked.path.as_str() {
            "/mcp" => "mcp",
            "/authorize" => "authorize",
            "/token" => "token",
            "/register" => "register",
            "/revoke" => "revoke",
            // An approval webhook, which has a decision once the script has one.
            "/hook" => {
                let headers = vec![("Retry-After".into(), "1".into())];
                let (status, body) = match script["decision"].as_str() {
                    Some(decision) => (200, decision.to_owned()),
                    None => (202, String::new()),
                };
                return Told { status, headers, body };
            }
            path if path.starts_with("/.well-known/oauth-protected-resource") => "resource",
            path if path.starts_with("/.well-known/oauth-authorization-server") => "metadata",
            _ => return error(404, "nothing_here"),
        };
        if script["redirect"] == step {
            let to = text("to", format!("{base}/elsewhere"));
            return Told {
                status: 302,
                headers: vec![("Location".into(), to)],
                body: String::new(),
            };
        }
        if script["huge"] == step {
            let pad = "x".repeat(1 << 20);
            return json_told(200, &json!({"issuer": issuer, "resource": pad}));
        }
        if script["html"] == step {
            let headers = vec![("Content-Type".into(), "text/html".into())];
            return Told { status: 200, headers, body: "{\"a\": 1}".into() };
        }
        if script["missing"] == step {
            return error(404, "nothing_here");
        }
        match step {
            "mcp" => self.mcp(asked, script, &mcp),
            "resource" => {
                let mut body = json!({
                    "resource": format!("{mcp}/mcp"), "authorization_servers": [issuer],
                });
                merge(&mut body, &script["resource"]);
                json_told(200, &body)
            }
            "metadata" => {
                let mut body = json!({
                    "issuer": issuer,
                    "authorization_endpoint": format!("{issuer}/authorize"),
                    "token_endpoint": format!("{issuer}/token"),
                    "registration_endpoint": format!("{issuer}/register"),
                    "revocation_endpoint": format!("{issuer}/revoke"),
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
                    "authorization_response_iss_parameter_supported": true,
                });
                merge(&mut body, &script["metadata"]);
                json_told(200, &body)
            }
            "register" => self.register(asked),
            "authorize" => self.authorize(asked, script, &issuer),
            "token" => self.token(asked, script),
            _ => self.revoke(asked),
        }
    }

    fn register(&self, asked: &Asked) -> Told {
        let Ok(wanted) = serde_json::from_str::<Value>(&asked.body) else {
            return error(400, "invalid_client_metadata");
        };
        let id = format!("client-{}", random());
        let mut client = wanted;
        client["client_id"] = json!(id);
        lock(&self.books).clients.insert(id, client.clone());
        json_told(201, &client)
    }

    fn authorize(&self, asked: &Asked, script: &Value, issuer: &str) -> Told {
        let with = form(&asked.query);
        let get = |key: &str| with.get(key).cloned().unwrap_or_default();
        let mut books = lock(&self.books);
        let redirect = get("redirect_uri");
        let known = match books.clients.get(&get("client_id")) {
            Some(client) => client["redirect_uris"]
                .as_array()
                .is_some_and(|all| all.iter().any(|uri| *uri == redirect.as_str())),
            None => script["client"]["id"] == get("client_id").as_str(),
        };
        // An authorization server that does not know the redirect sends nobody there.
        if !known || get("response_type") != "code" || get("code_challenge_method") != "S256" {
            return error(400, "invalid_request");
        }
        let code = random();
        let state = get("state");
        let mut to = format!("{redirect}?state={}", encode(&state));
        match script["deny"].as_str() {
            Some(reason) => to += &format!("&error={}", encode(reason)),
            None => to += &format!("&code={code}"),
        }
        match &script["iss"] {
            Value::Null => to += &format!("&iss={}", encode(issuer)),
            Value::String(iss) => to += &format!("&iss={}", encode(iss)),
            _ => {}
        }
        books.codes.insert(code, json!(with));
        let headers = vec![("Location".into(), to)];
        Told { status: 302, headers, body: String::new() }
    }

    fn token(&self, asked: &Asked, script: &Value) -> Told {
        let with = form(&asked.body);
        let get = |key: &str| with.get(key).cloned().unwrap_or_default();
        if let Some(words) = script["token_error"].as_str() {
            // As a careless server might: with what it was sent.
            let names = ["code", "code_verifier", "refresh_token"];
            let sent = names.iter().filter_map(|name| with.get(*name));
            let sent: String =
                sent.map(|it| format!(" {it} {}", BASE64_STANDARD.encode(it))).collect();
            let body = json!({
                "error": "invalid_request", "error_description": format!("{words}{sent}"),
            });
            return json_told(400, &body);
        }
        let mut books = lock(&self.books);
        let basic = asked.header("authorization").strip_prefix("Basic ").and_then(|coded| {
            let bytes = BASE64_STANDARD.decode(coded).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let (id, secret) = text.split_once(':')?;
            Some((decode(id), decode(secret)))
        });
        let client = basic.as_ref().map_or_else(|| get("client_id"), |(id, _)| id.clone());
        if let Some(wanted) = script["client"]["secret"].as_str()
            && basic.as_ref().is_none_or(|(_, secret)| secret != wanted)
        {
            return error(401, "invalid_client");
        }
        let token = match get("grant_type").as_str() {
            "authorization_code" => {
                // A code is good once.
                let Some(code) = books.codes.remove(&get("code")) else {
                    return error(400, "invalid_grant");
                };
                let proof = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(get("code_verifier")));
                let same = code["client_id"] == client.as_str()
                    && code["redirect_uri"] == get("redirect_uri").as_str()
                    && code["resource"] == get("resource").as_str()
                    && code["code_challenge"] == proof.as_str();
                if !same {
                    return error(400, "invalid_grant");
                }
                let scope = code["scope"].as_str().unwrap_or_default();
                Token {
                    audience: get("resource"),
                    scopes: scope.split_whitespace().map(str::to_owned).collect(),
                    client,
                }
            }
            "refresh_token" => {
                // It is rotated: the old one is good no more.
                match books.refresh.remove(&get("refresh_token")) {
                    Some(token) if token.client == client && token.audience == get("resource") => {
                        token
                    }
                    _ => return error(400, "invalid_grant"),
                }
            }
            _ => return error(400, "unsupported_grant_type"),
        };
        let mut token = token;
        if let Some(audience) = script["audience"].as_str() {
            token.audience = audience.to_owned();
        }
        let (access, refresh) = (format!("at-{}", random()), format!("rt-{}", random()));
        let scope = token.scopes.join(" ");
        books.access.insert(access.clone(), token.clone());
        let mut body = json!({
            "access_token": access, "token_type": "Bearer", "expires_in": 3600,
        });
        if !scope.is_empty() {
            body["scope"] = json!(scope);
        }
        if script["no_refresh"] != true {
            books.refresh.insert(refresh.clone(), token);
            body["refresh_token"] = json!(refresh);
        }
        merge(&mut body, &script["token"]);
        json_told(200, &body)
    }

    fn revoke(&self, asked: &Asked) -> Told {
        let with = form(&asked.body);
        let token = with.get("token").cloned().unwrap_or_default();
        let mut books = lock(&self.books);
        books.access.remove(&token);
        books.refresh.remove(&token);
        Told { status: 200, headers: Vec::new(), body: String::new() }
    }

    /// The MCP server: every request needs a token for this very address.
    fn mcp(&self, asked: &Asked, script: &Value, mcp: &str) -> Told {
        let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let metadata = match &script["challenge"] {
            Value::Null => format!("{mcp}/.well-known/oauth-protected-resource/mcp"),
            Value::String(url) => url.clone(),
            _ => String::new(),
        };
        let refuse = |status, more: &str| {
            let mut value = "Bearer realm=\"case\"".to_owned();
            if !metadata.is_empty() {
                value += &format!(", resource_metadata=\"{metadata}\"");
            }
            value += more;
            let headers = vec![("WWW-Authenticate".into(), value)];
            Told { status, headers, body: String::new() }
        };
        let bearer = asked.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
        let token = lock(&self.books).access.get(bearer).cloned();
        if script["open"] != true {
            let Some(token) = token.filter(|token| token.audience == format!("{mcp}/mcp")) else {
                let scope = script["scope"].as_str().map(|scope| format!(", scope=\"{scope}\""));
                return refuse(401, &scope.unwrap_or_default());
            };
            if let Some(needed) = script["needs"][&method].as_str()
                && !token.scopes.iter().any(|scope| scope == needed)
            {
                let more = format!(", error=\"insufficient_scope\", scope=\"{needed}\"");
                return refuse(403, &more);
            }
        }
        let Some(id) = message.get("id") else {
            return Told { status: 202, headers: Vec::new(), body: String::new() };
        };
        let result = match method.as_str() {
            "initialize" => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "authority", "version": "0"},
            }),
            "tools/list" => json!({
                "tools": [{"name": "echo", "description": "e", "inputSchema": {"type": "object"}}],
            }),
            "tools/call" => {
                // As a careless server might.
                let mut text = format!("{} {:?}", message["params"]["arguments"], asked.headers);
                text += script["say"].as_str().unwrap_or_default();
                json!({"content": [{"type": "text", "text": text}]})
            }
            _ => {
                let error = json!({"code": -32601, "message": "no such method"});
                return json_told(200, &json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        json_told(200, &json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }
}
